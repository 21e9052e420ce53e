"""`exec`, its results, errors and positions (chapter 60 §5.9)."""

from __future__ import annotations

import pytest

from tests.system.daemon import Daemon, Wire


def test_a_result_has_ref_value_and_render(attached: Wire) -> None:
    result = attached.result("exec", {"src": "[4, 9]"})
    assert result == {
        "ref": "out:1",
        "value": {"$": "list", "v": [{"$": "int", "v": 4}, {"$": "int", "v": 9}]},
        "render": "4\n9",
    }


def test_an_empty_program_yields_null(attached: Wire) -> None:
    assert attached.result("exec", {"src": " # nothing\n"}) == {
        "ref": "out:1",
        "value": {"$": "null"},
        "render": "",
    }


def test_a_captured_failure_is_a_result(attached: Wire) -> None:
    result = attached.result("exec", {"src": "sh -c 'exit 3'", "position": "value"})
    value = result["value"]
    assert (value["status"], value["ok"], value["cmd"]) == (3, False, "sh -c exit 3")
    assert value["span"] == {"start": 0, "end": 14}
    assert result["render"] == "[❌ status 3]"


def test_a_failed_command_in_statement_position_raises(attached: Wire) -> None:
    error = attached.error("exec", {"src": "sh -c 'echo no >&2; exit 3'"})
    assert error["code"] == -32002
    assert error["message"] == "`sh -c echo no >&2; exit 3` exited with status 3"
    data = error["data"]
    assert set(data) == {"kind", "code", "span", "hint", "status", "stderr", "ref", "uri"}
    assert (data["kind"], data["code"], data["status"]) == ("raised", "cmd_failed", 3)
    assert (data["stderr"], data["ref"], data["uri"]) == ("no\n", "out:1", "shoal://out/1")


def test_a_raised_error_is_a_stored_value(attached: Wire) -> None:
    error = attached.error("exec", {"src": "1 / 0"})
    assert error["data"]["span"] == {"start": 0, "end": 5}
    stored = attached.result("value.get", {"ref": error["data"]["ref"]})["value"]
    assert stored == {
        "$": "error",
        "code": "div_zero",
        "msg": "division by zero",
        "span": {"start": 0, "end": 5},
    }


def test_a_syntax_error_takes_no_number(attached: Wire) -> None:
    error = attached.error("exec", {"src": "1 < 2 < 3"})
    assert error["code"] == -32001
    assert error["data"]["kind"] == "parse_error"
    assert "hint" in error["data"]
    assert attached.result("exec", {"src": "7"})["ref"] == "out:1"


def test_bindings_live_from_call_to_call(attached: Wire) -> None:
    attached.result("exec", {"src": "let n = 4"})
    attached.result("exec", {"src": "fn double(x) { x * 2 }"})
    assert attached.result("exec", {"src": "n - 1"})["render"] == "3"
    assert attached.result("exec", {"src": "double(n)"})["render"] == "8"


def test_exit_stops_the_submission_and_not_the_session(attached: Wire) -> None:
    assert attached.result("exec", {"src": "let a = 1; exit 3; let b = 2"})["value"] == {
        "$": "null"
    }
    assert attached.result("exec", {"src": "a"})["render"] == "1"
    assert attached.error("exec", {"src": "(b)"})["data"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "src"),
        ({"src": 5}, "src"),
        ({"src": "1", "mode": "dry"}, "mode must be run or plan"),
        ({"src": "1", "async": True, "background": True}, "background"),
        ({"src": "1", "timeout_ms": -1}, "timeout_ms"),
        ({"src": "1", "elide": {"max_rows": "many"}}, "max_rows"),
    ],
)
def test_wrong_parameters_are_refused(attached: Wire, params: object, message: str) -> None:
    error = attached.error("exec", params)
    assert (error["code"], error["data"]["kind"]) == (-32602, "invalid_params")
    assert message in error["message"]


def test_an_approved_run_without_a_plan_is_denied(attached: Wire) -> None:
    error = attached.error("exec", {"src": "1", "mode": "approved", "plan_ref": "plan:" + "0" * 32})
    assert (error["code"], error["data"]["kind"]) == (-32010, "not_approved")
    assert error["message"].startswith('mode "approved" requires an approved plan_ref')


def test_externals_have_no_terminal_and_an_empty_stdin(attached: Wire) -> None:
    assert attached.result("exec", {"src": "wc -c"})["render"].strip() == "0"
    assert attached.result("exec", {"src": "sh -c 'test -t 0 || echo none'"})["render"] == "none"


def test_a_big_value_is_elided_and_its_parts_are_there(attached: Wire) -> None:
    value = attached.result("exec", {"src": "(1..=2000).collect()"})["value"]
    assert (value["$"], value["of"], value["n"], value["uri"]) == (
        "ref",
        "list",
        2000,
        "shoal://out/1",
    )
    piece = attached.result("value.get", {"ref": "out:1", "slice": [1990, 3000]})["value"]
    assert [item["v"] for item in piece["v"]] == list(range(1991, 2001))


def test_terminal_sequences_reach_only_terminal_clients(daemon: Daemon) -> None:
    with daemon.wire() as plain, daemon.wire() as terminal:
        plain.result("session.attach", {"session": "colour"})
        terminal.result("session.attach", {"session": "colour", "client": {"tty": True}})
        source = {"src": "{a: 1}"}
        assert "\x1b[" not in plain.result("exec", source)["render"]
        assert "\x1b[" in terminal.result("exec", source)["render"]


def test_it_and_out_belong_to_a_terminal_connection(daemon: Daemon) -> None:
    with daemon.wire() as first, daemon.wire() as second, daemon.wire() as plain:
        for wire in (first, second):
            wire.result(
                "session.attach", {"session": "repl", "client": {"kind": "repl", "tty": True}}
            )
        plain.result("session.attach", {"session": "repl"})
        assert first.result("exec", {"src": "it"})["value"] == {"$": "null"}
        first.result("exec", {"src": "5"})
        second.result("exec", {"src": "70"})
        assert first.result("exec", {"src": "it + 1"})["value"] == {"$": "int", "v": 6}
        assert first.result("exec", {"src": "out[-1]"})["value"] == {"$": "int", "v": 6}
        assert second.result("exec", {"src": "it"})["value"] == {"$": "int", "v": 70}
        error = plain.error("exec", {"src": "it"})
        assert error["code"] == -32001
        assert "REPL-only" in error["message"]


def test_a_source_of_sixteen_mebibytes_of_parentheses_is_a_syntax_error(attached: Wire) -> None:
    error = attached.error("exec", {"src": "(" * (16 * 1024 * 1024 - 200)})
    assert error["code"] == -32001
    assert "nesting too deep" in error["message"]
    assert attached.result("exec", {"src": "1"})["render"] == "1"
