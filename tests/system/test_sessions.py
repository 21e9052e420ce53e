"""Attachment, gates, sessions and what belongs to whom (chapter 60 §4, §5.1-§5.5)."""

from __future__ import annotations

import os

import pytest

from ipc.methods import METHODS, Gate
from tests.system.daemon import Daemon, Wire

LOCAL_HUMAN = f"uid:{os.geteuid()}"


def test_exactly_three_methods_are_public() -> None:
    public = {name for name, method in METHODS.items() if method.gate is Gate.PUBLIC}
    assert public == {"session.attach", "parse", "complete"}


@pytest.mark.parametrize(
    "method", [name for name, method in METHODS.items() if method.gate is Gate.ATTACHED]
)
@pytest.mark.parametrize("params", [None, {}, [], {"src": 5, "ref": []}])
def test_before_attach_everything_else_is_refused_even_with_broken_params(
    wire: Wire, method: str, params: object
) -> None:
    error = wire.error(method, params)
    assert error == {
        "code": -32000,
        "message": "attach to a session first",
        "data": {"kind": "not_attached"},
    }


def test_an_unknown_method_is_unknown_in_either_state(wire: Wire) -> None:
    expected = {
        "code": -32601,
        "message": "method not found",
        "data": {"kind": "method_not_found"},
    }
    assert wire.error("no.such") == expected
    wire.result("session.attach")
    assert wire.error("no.such") == expected


def test_the_attach_result(daemon: Daemon, wire: Wire) -> None:
    result = wire.result("session.attach", {"session": "shape"})
    assert result["session"] == "shape"
    assert result["owner"] == result["principal"] == LOCAL_HUMAN
    assert result["cwd"] == {"display": str(daemon.work)}
    assert len(result["env_hash"]) == 16 and int(result["env_hash"], 16) >= 0
    assert result["ast_version"] == 2
    assert result["caps_enforced"] is False
    assert result["caps"]["profile"] == "local-human"
    assert result["caps"]["token_caps"] == []
    assert result["caps"]["opaque"] == "allow"
    assert result["elide_defaults"] == {
        "max_bytes": 8192,
        "max_rows": 100,
        "max_items": 500,
        "max_bytes_raw": 4096,
        "hard_cap": 65536,
    }
    assert result["channels"] == ["session.transcript", "journal", "approval", "render"]
    assert "restored" not in result and "lost" not in result


@pytest.mark.parametrize("name", ["a", "n" * 128, "with blank", "ünï"])
def test_session_names_at_the_limit(wire: Wire, name: str) -> None:
    assert wire.result("session.attach", {"session": name})["session"] == name


@pytest.mark.parametrize("name", ["", "n" * 129, "new\nline", "\x7f", 5])
def test_bad_session_names_are_refused_and_leave_the_old_attachment(
    wire: Wire, name: object
) -> None:
    wire.result("session.attach", {"session": "kept"})
    assert wire.error("session.attach", {"session": name})["code"] == -32602
    assert wire.result("exec", {"src": "1"})["render"] == "1"


def test_the_own_principal_before_the_slash_means_the_own_session(wire: Wire) -> None:
    wire.result("session.attach", {"session": f"{LOCAL_HUMAN}/mine"})
    wire.result("exec", {"src": "let here = 1"})
    assert wire.result("session.attach", {"session": "mine"})["session"] == "mine"
    assert wire.result("exec", {"src": "here"})["render"] == "1"


def test_a_session_of_another_owner_is_not_shared_whether_it_exists_or_not(wire: Wire) -> None:
    error = wire.error("session.attach", {"session": "agent:x/work"})
    assert error["code"] == -32010
    assert error["message"] == "session is not shared with this principal"
    assert error["data"]["kind"] == "not_shared"


def test_sessions_are_apart(daemon: Daemon) -> None:
    with daemon.wire() as first, daemon.wire() as second:
        first.result("session.attach", {"session": "apart-1"})
        second.result("session.attach", {"session": "apart-2"})
        first.result("exec", {"src": "let secret_name = 1"})
        assert second.error("exec", {"src": "(secret_name)"})["data"]["code"] == "not_found"
        first.result("exec", {"src": "cd /"})
        assert second.result("session.cwd") == {"display": str(daemon.work)}


def test_environment_names_and_values(attached: Wire) -> None:
    attached.result("exec", {"src": 'env.SHOAL_TEST_NAME = "kept"'})
    result = attached.result("session.env")
    assert result["granted"] is True
    assert result["names"] == sorted(result["names"])
    assert result["env"]["SHOAL_TEST_NAME"] == "kept"


def test_a_daemon_gives_sessions_no_bearer() -> None:
    given = {"SHOAL_TOKEN": "very-secret", "PLAIN": "yes"}
    with Daemon(environ=given) as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        environment = wire.result("session.env")["env"]
        assert "SHOAL_TOKEN" not in environment
        assert environment["PLAIN"] == "yes"
        child = wire.result("exec", {"src": "sh -c 'echo \"<$SHOAL_TOKEN>\"'"})
        assert child["render"] == "<>"


def test_session_list_describes_own_sessions(daemon: Daemon) -> None:
    with Daemon() as fresh, fresh.wire() as wire:
        wire.result("session.attach", {"session": "b"})
        wire.result("session.attach", {"session": "a"})
        rows = wire.result("session.list")["sessions"]
        assert [row["session"] for row in rows] == ["a", "b"]
        row = rows[0]
        assert (row["owner"], row["owned"], row["state"], row["attached"]) == (
            LOCAL_HUMAN,
            True,
            "ready",
            1,
        )
        assert row["shared_with"] == [] and row["share_mode"] is None
        assert rows[1]["attached"] == 0
        assert wire.result("session.list", {"all": True})["sessions"] == rows


def test_close_refuses_a_session_in_use_and_force_ends_it(daemon: Daemon) -> None:
    with daemon.wire() as first, daemon.wire() as second:
        first.result("session.attach", {"session": "closing"})
        second.result("session.attach", {"session": "closing"})
        first.result("exec", {"src": "let x = 1"})
        error = first.error("session.close")
        assert (error["code"], error["data"]["kind"]) == (-32603, "session_in_use")
        assert error["data"]["attached"] == 2
        assert first.result("session.close", {"force": True}) == {
            "session": "closing",
            "closed": True,
            "tasks_cancelled": 0,
            "ptys_closed": 0,
        }
        for wire in (first, second):
            assert wire.error("exec", {"src": "1"})["code"] == -32000
        first.result("session.attach", {"session": "closing"})
        assert first.result("exec", {"src": "7"})["ref"] == "out:1"


def test_closing_an_unknown_session(attached: Wire) -> None:
    error = attached.error("session.close", {"session": "never-was"})
    assert (error["code"], error["data"]["kind"]) == (-32004, "unknown_session")


def test_sharing_lists_are_sorted_and_complete(attached: Wire) -> None:
    result = attached.result("session.share", {"principals": ["b", "a", "b", LOCAL_HUMAN]})
    assert result["principals"] == ["a", "b"]
    assert result["mode"] == "full"
    assert attached.result("session.share", {"principals": []})["principals"] == []
    assert attached.error("session.share", {"principals": [""]})["code"] == -32602
    assert attached.error("session.share", {})["code"] == -32602
    assert attached.error("session.share", {"principals": [], "mode": "all"})["code"] == -32602


def test_server_info_lists_the_methods(attached: Wire) -> None:
    info = attached.result("server.info")
    assert info["methods"] == sorted(METHODS)
    assert (info["kernel_protocol"], info["ast_version"]) == (1, 2)
    assert info["limits"] == {
        "frame_bytes": 16777216,
        "page_bytes": 49152,
        "hard_cap": 65536,
        "requests_in_flight": 256,
    }


def test_parse_and_complete_need_no_session(wire: Wire) -> None:
    assert wire.result("parse", {"src": ""}) == {"ast_version": 2, "ast": {"stmts": []}}
    assert wire.result("complete", {"src": "whi"}) == {"candidates": ["while"]}
    error = wire.error("parse", {"src": "it"})
    assert error["code"] == -32001
    assert "REPL-only" in error["message"]


def test_complete_knows_the_session_beside_the_candidates(attached: Wire) -> None:
    attached.result("exec", {"src": "let total_cost = 1"})
    result = attached.result("complete", {"src": "tot"})
    assert result == {"candidates": [], "session_candidates": ["total_cost"]}


def test_an_unreachable_token_store_is_told_from_a_bad_token(daemon: Daemon, wire: Wire) -> None:
    error = wire.error("session.attach", {"token": "nonsense"})
    assert error == {
        "code": -32030,
        "message": "invalid, expired, or revoked bearer token",
        "data": {"kind": "auth_failed"},
    }
    with Daemon("--in-memory") as fleeting, fleeting.wire() as other:
        error = other.error("session.attach", {"token": "nonsense"})
        assert error["message"] == "bearer tokens unavailable in ephemeral kernel"


def test_a_token_can_be_mandatory() -> None:
    with Daemon("--require-token") as daemon, daemon.wire() as wire:
        error = wire.error("session.attach")
        assert (error["code"], error["data"]["kind"]) == (-32030, "token_required")
        assert error["message"] == "a token is required"
