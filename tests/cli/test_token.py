"""`shoal token`, on a store and beside a kernel."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from blake3 import blake3

from supervisor.token_writer import EXPIRES_NS_MAX
from tests.cli.program import WAIT_S, Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def store(program: Program) -> Path:
    return program.root / ".local" / "state" / "shoal" / "tokens.json"


def test_created_secret_is_alone_on_stdout_and_not_in_the_store(program: Program) -> None:
    ran = program.run("token", "create", "agent:fmt")
    assert ran.code == 0
    secret = ran.out.removesuffix("\n")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", secret)
    assert len(base64.urlsafe_b64decode(secret + "=")) == 32
    stored = json.loads(store(program).read_text())
    [token] = stored["tokens"]
    assert ran.err == f"created {token['id']} (secret shown once)\n"
    assert secret not in store(program).read_text()
    key = base64.b64decode(stored["key"])
    assert token["digest"] == blake3(secret.encode(), key=key).hexdigest()
    assert token["id"] == token["digest"][:16]
    assert (token["profile"], token["caps"], token["expires_ns"]) == ("default", [], None)
    assert store(program).stat().st_mode & 0o777 == 0o600
    assert store(program).parent.stat().st_mode & 0o777 == 0o700


def test_options_of_create(program: Program) -> None:
    before = time.time_ns()
    ran = program.run(
        *("token", "create", "agent:a", "review", "--cap", "fs.read", "--cap=journal_read"),
        *("--ttl", "60", "--json"),
    )
    document = ran.document
    assert list(document) == ["id", "secret", "principal", "profile", "caps", "expires_ns"]
    assert document["profile"] == "review"
    assert document["caps"] == ["fs.read", "journal_read"]
    assert before + 60_000_000_000 <= document["expires_ns"] <= time.time_ns() + 60_000_000_000


def test_expiry_saturates(program: Program) -> None:
    ran = program.run("token", "create", "a", "--ttl", "9" * 18, "--json")
    assert ran.document["expires_ns"] == EXPIRES_NS_MAX


def test_list_is_oldest_first_with_state_and_without_secrets(program: Program) -> None:
    ids = [program.run("token", "create", f"agent:{n}", "--json").document["id"] for n in range(3)]
    assert program.run("token", "revoke", ids[1]).code == 0
    ran = program.run("token", "list")
    assert ran.out == (
        f"{ids[0]}\tagent:0\tdefault\tactive\n"
        f"{ids[1]}\tagent:1\tdefault\trevoked\n"
        f"{ids[2]}\tagent:2\tdefault\tactive\n"
    )
    rows = program.run("token", "list", "--json").document
    assert list(rows[0]) == [
        *("id", "principal", "profile", "caps", "created_ns", "expires_ns", "revoked_ns", "state")
    ]


def test_empty_store_lists_nothing(program: Program) -> None:
    assert program.run("token", "list").out == ""
    assert program.run("token", "list", "--json").document == []


def test_revoking_is_silent_and_may_repeat(program: Program) -> None:
    token = program.run("token", "create", "a", "--json").document["id"]
    for _ in range(2):
        ran = program.run("token", "revoke", token)
        assert (ran.code, ran.out, ran.err) == (0, "", "")
    ran = program.run("token", "revoke", "0" * 16)
    assert (ran.code, ran.err) == (1, "shoal-token: unknown token id\n")


def test_store_places(program: Program, tmp_path: Path) -> None:
    program.run("token", "create", "a", "--store", str(tmp_path / "s" / "one.json"))
    assert (tmp_path / "s" / "one.json").exists()
    program.run("token", "--state-dir", str(tmp_path / "state"), "create", "a")
    assert (tmp_path / "state" / "tokens.json").exists()


def test_broken_store_is_not_replaced(program: Program) -> None:
    store(program).parent.mkdir(parents=True)
    store(program).write_text('{"version": 2}')
    for words in (("create", "a"), ("list",), ("revoke", "x")):
        ran = program.run("token", *words)
        assert (ran.code, ran.out) == (1, "")
        assert "malformed" in ran.err
    assert store(program).read_text() == '{"version": 2}'


def test_writers_at_once_lose_nothing(program: Program) -> None:
    started = [
        subprocess.Popen(
            program.command("token", "create", f"agent:{n}"),
            env=program.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for n in range(6)
    ]
    assert [each.wait(WAIT_S) for each in started] == [0] * 6
    assert len(program.run("token", "list").out.splitlines()) == 6


def test_principal_without_policy_entry_is_warned_about(program: Program) -> None:
    policy = program.root / ".config" / "shoal" / "leash.toml"
    policy.parent.mkdir(parents=True)
    policy.write_text('[principal."agent:known"]\ntime = true\n')
    assert "warning" not in program.run("token", "create", "agent:known").err
    err = program.run("token", "create", "agent:other").err
    assert "warning: principal agent:other has no policy entry\n" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "usage: shoal-token create|list|revoke"),
        (["frob"], "usage: shoal-token create|list|revoke"),
        (["create"], "create PRINCIPAL [PROFILE]"),
        (["create", "a", "--cap"], "--cap requires value"),
        (["create", "a", "--ttl"], "--ttl requires seconds"),
        (["create", "a", "--ttl", "x"], "--ttl requires seconds"),
        (["create", "a", "--ttl", "0"], "--ttl must be greater than 0"),
        (["create", "a", "--frob"], "unknown create option --frob"),
        (["revoke"], "revoke ID"),
    ],
)
def test_usage_errors(program: Program, words: list[str], message: str) -> None:
    ran = program.run("token", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[0] == f"shoal-token: {message}"


def test_kernel_admits_a_new_token_at_once_and_refuses_a_revoked_one(program: Program) -> None:
    with program.kernel():
        created = program.run("token", "create", "agent:a", "--json").document
        with_token = {"SHOAL_TOKEN": created["secret"]}
        ran = program.run("session", "list", "--json", environ=with_token)
        assert ran.code == 0
        assert {row["owner"] for row in ran.document} == {"agent:a"}
        program.run("token", "revoke", created["id"])
        ran = program.run("session", "list", environ=with_token)
        assert (ran.code, ran.out) == (77, "")
        assert created["secret"] not in ran.err
