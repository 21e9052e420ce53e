"""Where everything is: the one resolver of daemon and command line (chapter 81, section 4).

Pure: the environment, the configuration and the options come in, paths go out. Nothing is created
and nothing is looked up on disk, except whether the default policy file exists.

Failure: `ipc.client.locate.InvalidLabel` when no socket name can be made of a session name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ipc.client.locate import runtime_dir, socket_path

if TYPE_CHECKING:
    from supervisor.config.schema import Config

# Bytes of a socket path that the platform can bind, without the closing NUL.
SOCKET_PATH_BYTES_MAX: Final = 107 if os.uname().sysname == "Linux" else 103

# Accepted beside SHOAL_DATA_DIR so that existing clients of the agent endpoint need no change.
DATA_DIR_VARIABLES: Final = ("SHOAL_DATA_DIR", "ZEROCLAW_DATA_DIR")
AGENT_SOCKET_VARIABLES: Final = ("SHOAL_AGENT_SOCKET", "ZEROCLAW_SOCKET")


class Paths(msgspec.Struct, frozen=True):
    """Every place, resolved."""

    config_dir: Path | None
    state_dir: Path
    runtime_dir: Path
    socket: Path
    agent_socket: Path
    token_store: Path
    secret_dir: Path
    # None: there is no policy file, which is not an error unless one was named.
    policy: Path | None
    policy_is_explicit: bool
    history: Path


def expand(text: str, environ: Mapping[str, str]) -> Path:
    """A configured path: `~/` at its start is the home directory."""
    home = environ.get("HOME")
    if home and (text == "~" or text.startswith("~/")):
        return Path(home) / text[2:]
    return Path(text)


def config_dir(environ: Mapping[str, str]) -> Path | None:
    return _below(environ, "XDG_CONFIG_HOME", ".config")


def _below(environ: Mapping[str, str], variable: str, in_home: str) -> Path | None:
    """`$variable/shoal`, else `~/in_home/shoal`, else nothing."""
    base = environ.get(variable)
    if base:
        return Path(base) / "shoal"
    home = environ.get("HOME")
    return Path(home) / in_home / "shoal" if home else None


def _first(environ: Mapping[str, str], *texts: str | None) -> Path | None:
    return next((expand(text, environ) for text in texts if text), None)


def _variable(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := environ.get(name, "").strip())), None)


def state_dir(environ: Mapping[str, str], config: Config, option: str | None = None) -> Path:
    found = _first(
        environ, option, _variable(environ, DATA_DIR_VARIABLES), config.journal.state_dir
    )
    return found or _below(environ, "XDG_STATE_HOME", ".local/state") or Path("shoal")


def resolve(
    environ: Mapping[str, str],
    config: Config,
    *,
    socket: str | None = None,
    session: str | None = None,
    state: str | None = None,
    policy: str | None = None,
    store: str | None = None,
) -> Paths:
    """All places. The keyword arguments are command-line options; the variables whose key is part
    of the configuration (`SHOAL_SOCKET`, `SHOAL_SESSION`, ...) are already in `config`."""
    home = config_dir(environ)
    state_path = state_dir(environ, config, state)
    explicit_policy = _first(environ, policy, config.leash.policy)
    default_policy = home / "leash.toml" if home else None
    if default_policy and not default_policy.exists():
        default_policy = None
    return Paths(
        config_dir=home,
        state_dir=state_path,
        runtime_dir=runtime_dir(environ),
        socket=socket_path(
            environ,
            explicit=_first(environ, socket, config.kernel.socket),
            session=session or config.kernel.session,
        ),
        agent_socket=_first(environ, _variable(environ, AGENT_SOCKET_VARIABLES))
        or state_path / "daemon.sock",
        token_store=_first(
            environ,
            store,
            str(state_path / "tokens.json") if state else None,
            environ.get("SHOAL_TOKEN_STORE"),
            config.tokens.path,
        )
        or state_path / "tokens.json",
        secret_dir=_first(environ, environ.get("SHOAL_SECRET_DIR"), config.secrets.dir)
        or _secrets_default(environ),
        policy=explicit_policy or default_policy,
        policy_is_explicit=explicit_policy is not None,
        history=_first(environ, config.history.path) or state_path / "history.txt",
    )


def _secrets_default(environ: Mapping[str, str]) -> Path:
    data = _below(environ, "XDG_DATA_HOME", ".local/share")
    return (data or Path("shoal")) / "secrets"
