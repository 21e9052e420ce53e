"""The order in which each place is looked for."""

import os
from pathlib import Path

import pytest

from ipc.client.locate import InvalidLabel, socket_path
from supervisor.config import load
from supervisor.config.schema import Config
from supervisor.paths import Paths, resolve

UID = os.geteuid()


def resolved(environ: dict[str, str], toml: str = "", **options: str) -> Paths:
    import tomllib

    import msgspec

    config = msgspec.convert(tomllib.loads(toml), Config)
    return resolve(environ, config, **options)


def test_runtime_directory_order() -> None:
    environ = {"XDG_RUNTIME_DIR": "/run/u", "TMPDIR": "/t"}
    assert resolved(environ).socket == Path("/run/u/shoal/default.sock")
    environ["XDG_RUNTIME_DIR"] = ""
    assert resolved(environ).socket == Path(f"/t/shoal-{UID}/shoal/default.sock")
    environ["TMPDIR"] = ""
    assert resolved(environ).socket == Path(f"/tmp/shoal-{UID}/shoal/default.sock")


def test_socket_order() -> None:
    toml = '[kernel]\nsocket = "/configured"\n'
    assert resolved({}, toml, socket="/flag", session="s").socket == Path("/flag")
    assert resolved({}, toml, session="s").socket == Path("/configured")
    assert resolved({"TMPDIR": "/t"}, session="s").socket.name == "s.sock"


def test_state_order() -> None:
    environ = {"HOME": "/h"}
    assert resolved(environ).state_dir == Path("/h/.local/state/shoal")
    environ["XDG_STATE_HOME"] = "/x"
    assert resolved(environ).state_dir == Path("/x/shoal")
    toml = '[journal]\nstate_dir = "~/conf"\n'
    assert resolved(environ, toml).state_dir == Path("/h/conf")
    environ["ZEROCLAW_DATA_DIR"] = "/z"
    assert resolved(environ, toml).state_dir == Path("/z")
    environ["SHOAL_DATA_DIR"] = "/d"
    assert resolved(environ, toml).state_dir == Path("/d")
    assert resolved(environ, toml, state="/flag").state_dir == Path("/flag")


def test_without_home_state_is_local_and_configuration_absent() -> None:
    paths = resolved({})
    assert paths.state_dir == Path("shoal")
    assert paths.config_dir is None
    assert paths.policy is None


def test_token_store_order() -> None:
    environ = {"HOME": "/h", "SHOAL_TOKEN_STORE": "/var"}
    toml = '[tokens]\npath = "/configured"\n'
    assert resolved(environ, toml, store="/flag", state="/s").token_store == Path("/flag")
    assert resolved(environ, toml, state="/s").token_store == Path("/s/tokens.json")
    assert resolved(environ, toml).token_store == Path("/var")
    del environ["SHOAL_TOKEN_STORE"]
    assert resolved(environ, toml).token_store == Path("/configured")
    assert resolved(environ).token_store == Path("/h/.local/state/shoal/tokens.json")


def test_policy_default_only_when_it_exists(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert resolved(environ).policy is None
    default = tmp_path / "shoal" / "leash.toml"
    default.parent.mkdir()
    default.write_text("")
    assert (resolved(environ).policy, resolved(environ).policy_is_explicit) == (default, False)
    explicit = resolved(environ, '[leash]\npolicy = "/p"\n')
    assert (explicit.policy, explicit.policy_is_explicit) == (Path("/p"), True)


def test_agent_socket_lies_in_the_state_directory_unless_a_variable_moves_it() -> None:
    assert resolved({}, state="/s").agent_socket == Path("/s/daemon.sock")
    moved = {"SHOAL_AGENT_SOCKET": " /a ", "ZEROCLAW_SOCKET": "/z"}
    assert resolved(moved, state="/s").agent_socket == Path("/a")
    assert resolved({"ZEROCLAW_SOCKET": "/z"}, state="/s").agent_socket == Path("/z")


def test_secret_store_order() -> None:
    assert resolved({"HOME": "/h"}).secret_dir == Path("/h/.local/share/shoal/secrets")
    assert resolved({"XDG_DATA_HOME": "/x"}).secret_dir == Path("/x/shoal/secrets")
    toml = '[secrets]\ndir = "/c"\n'
    assert resolved({}, toml).secret_dir == Path("/c")
    assert resolved({"SHOAL_SECRET_DIR": "/v"}, toml).secret_dir == Path("/v")


def test_owner_part_of_a_session_name_is_no_part_of_the_socket_name() -> None:
    assert socket_path({}, session="uid:1/work").name == "work.sock"


@pytest.mark.parametrize("name", ["", "a/", "uid:1/.", ".."])
def test_session_name_without_usable_last_part_has_no_socket(name: str) -> None:
    with pytest.raises(InvalidLabel, match="invalid session name"):
        socket_path({}, session=name)
    assert socket_path({}, session=name, explicit="/s") == Path("/s")


def test_session_variable_names_the_socket() -> None:
    environ = {"SHOAL_SESSION": "work", "TMPDIR": "/t"}
    assert resolve(environ, load(environ).config).socket.name == "work.sock"
