"""`shoal config`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from supervisor.config import KEYS
from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_shown_configuration_is_toml_that_means_the_same(program: Program) -> None:
    program.configure(
        "[aliases]\n'g s' = 'x'\n".replace("g s", "gs")
        + '[env]\nA = "it\'s \\"quoted\\"\\n"\n[reef.tools]\nnode = { version = \'1\', n = [1] }\n'
        "[adapters]\ndirs = ['a b', 'c']\n"
    )
    ran = program.run("config", "show")
    assert ran.code == 0
    shown = tomllib.loads(ran.out)
    assert shown["env"] == {"A": 'it\'s "quoted"\n'}
    assert shown["reef"]["tools"] == {"node": {"version": "1", "n": [1]}}
    assert shown["adapters"]["dirs"] == ["a b", "c"]
    program.configure(ran.out)
    again = program.run("config", "show")
    assert tomllib.loads(again.out) == shown
    assert program.run("config", "check").code == 0


def test_defaults_are_marked_and_set_values_are_not(program: Program) -> None:
    program.configure("[quotas]\nsessions = 256\n")
    lines = program.run("config", "show", "quotas").out.splitlines()
    assert "sessions = 256" in lines
    assert "connections = 256  # default" in lines


def test_every_key_is_shown(program: Program) -> None:
    document = program.run("config", "show", "--json").document
    for path in KEYS:
        value = document
        for name in path.split("."):
            value = value[name]


def test_one_key(program: Program) -> None:
    assert program.run("config", "show", "quotas.sessions").out == "256\n"
    assert program.run("config", "show", "--json", "kernel.session").document == "default"
    ran = program.run("config", "show", "quotas.nope")
    assert ran.code == 1
    assert "unknown config key `quotas.nope`" in ran.err


def test_check_exit_codes(program: Program, tmp_path: Path) -> None:
    clean, odd, bad = (tmp_path / name for name in ("clean.toml", "odd.toml", "bad.toml"))
    clean.write_text("")
    odd.write_text("[kernel]\nsesion = 'x'\n")
    bad.write_text("[kernel]\nsession = 1\n")
    assert program.run("config", "check", str(clean)).code == 0
    ran = program.run("config", "check", str(clean), str(odd))
    assert ran.code == 1
    assert "did you mean `kernel.session`?" in ran.out
    ran = program.run("config", "check", str(odd), str(bad))
    assert ran.code == 2
    assert "expected a string, found integer" in ran.err
    assert program.run("config", "check", str(tmp_path / "none.toml")).code == 2
    ran = program.run("config", "check", "--json", str(odd), str(bad))
    assert [len(ran.document[name]) for name in ("warnings", "errors")] == [1, 1]


def test_sources_in_order(program: Program, tmp_path: Path) -> None:
    program.configure("")
    (tmp_path / ".shoal.toml").write_text("")
    other = tmp_path / "other.toml"
    other.write_text("")
    ran = program.run("config", "sources", "--json", environ={"SHOAL_CONFIG": str(other)})
    assert ran.document == [
        {"path": "/etc/shoal/shoal.toml", "state": "absent"},
        {"path": str(program.user_file), "state": "ignored"},
        {"path": str(other), "state": "used"},
        {"path": str(tmp_path / ".shoal.toml"), "state": "used"},
    ]
