"""What `shoal kernel` was asked to do, resolved and checked.

The command line makes one of these; `supervisor.daemon.run` serves by it. A reload calls `load`
again: the same files, variables and options give the new configuration.

Failure: `load` raises ConfigError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.config import Config, Loaded, load
from supervisor.paths import Paths, resolve


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class KernelOptions:
    """The start of one daemon."""

    # Resolved at start; what a reload changes comes from `load`.
    loaded: Loaded
    paths: Paths
    environ: Mapping[str, str]
    # Options that set a configuration key, by dotted path, and those that only name a place.
    config_file: str | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    socket: str | None = None
    session: str | None = None
    state: str | None = None
    policy: str | None = None
    # No durable state: journal and blobs in memory and a private temporary directory.
    in_memory: bool = False
    # End with the last client.
    ephemeral: bool = False
    agent_endpoint: bool = True
    pid_file: Path | None = None
    # Called once, after the ready line was written.
    on_ready: Callable[[], None] = _nothing

    @property
    def config(self) -> Config:
        return self.loaded.config

    def load(self) -> Loaded:
        """Read all layers again. Raises ConfigError."""
        return load(self.environ, config_file=self.config_file, options=self.overrides)


def kernel_options(
    environ: Mapping[str, str],
    *,
    config_file: str | None = None,
    overrides: Mapping[str, object] | None = None,
    socket: str | None = None,
    session: str | None = None,
    state: str | None = None,
    policy: str | None = None,
    in_memory: bool = False,
    ephemeral: bool = False,
    pid_file: str | None = None,
    on_ready: Callable[[], None] = _nothing,
) -> KernelOptions:
    """Load the configuration and resolve the places. Raises ConfigError or InvalidLabel."""
    options = dict(overrides or {})
    loaded = load(environ, config_file=config_file, options=options)
    config = loaded.config
    ephemeral = ephemeral or config.kernel.ephemeral
    return KernelOptions(
        loaded=loaded,
        paths=resolve(environ, config, socket=socket, session=session, state=state, policy=policy),
        environ=environ,
        config_file=config_file,
        overrides=options,
        socket=socket,
        session=session,
        state=state,
        policy=policy,
        in_memory=in_memory or not config.journal.enabled or (ephemeral and not state),
        ephemeral=ephemeral,
        agent_endpoint=config.agents.enabled,
        pid_file=Path(pid_file) if pid_file else None,
        on_ready=on_ready,
    )
