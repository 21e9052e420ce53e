"""`shoal exec`: run source in a kernel session (chapter 81, section 7.3).

The source is sent as a task and the task is waited for, so that Ctrl-C can cancel it: closing the
connection alone would cancel nothing.

Failure: see `results`; Ctrl-C exits 130 once the task has ended, SIGTERM 143.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ipc.client import Client, RpcError
from ipc.client.protocol import rpc_error
from supervisor.cli.call import Call
from supervisor.cli.diagnostic import INTERACTIVE_NAME, STDIN_NAME
from supervisor.cli.failure import Exit, Failure, Terminated
from supervisor.cli.options import UsageError
from supervisor.cli.plans import print_plan
from supervisor.cli.results import fetch_result, print_failure, print_raw, print_result


def run(call: Call) -> int:
    _check(call)
    name, source = _source(call)
    with call.connect() as client:
        call.attached(client, tty=call.out.color and not call.out.json)
        try:
            return _submit(call, client, source)
        except RpcError as error:
            return print_failure(call.out, error, source, name=name)


def _check(call: Call) -> None:
    for group in (("json", "raw", "quiet"), ("plan", "background", "timeout_ms")):
        given = [key for key in group if key in call.arguments.values]
        if len(given) > 1:
            names = " and ".join(f"--{key.replace('_', '-')}" for key in given)
            raise UsageError(f"{names} cannot be combined")


def _source(call: Call) -> tuple[str, str]:
    """The name for diagnostics, and the text."""
    file = call.text("file")
    if (file is None) == (not call.operands):
        raise UsageError("one of SOURCE, -f FILE and - is needed")
    if file is not None:
        return file, read_source(file)
    if call.operands[0] == "-":
        return STDIN_NAME, decode_source(STDIN_NAME, sys.stdin.buffer.read())
    return INTERACTIVE_NAME, call.operands[0]


def read_source(file: str) -> str:
    try:
        return decode_source(file, Path(file).read_bytes())
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}") from error


def decode_source(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Failure(f"cannot read {name}: not UTF-8 at byte {error.start}") from error


def elision(call: Call) -> dict[str, int] | None:
    """The budgets that were asked for."""
    names = ("max_bytes", "max_rows", "max_items")
    budgets = {name: number for name in names if (number := call.number(name)) is not None}
    return budgets or None


def _submit(call: Call, client: Client, source: str) -> int:
    params: dict[str, Any] = {"src": source, "position": call.text("position") or "stmt"}
    if call.flag("plan"):
        planned = client.call("exec", {**params, "mode": "plan"})
        print_plan(call.out, client.call("plan.get", {"plan_ref": planned["plan_ref"]}))
        return Exit.SUCCESS
    if call.flag("background"):
        return _left_running(call, client.call("exec", {**params, "async": True}))
    timeout_ms = call.number("timeout_ms")
    if timeout_ms is not None:
        params |= {"timeout_ms": timeout_ms, "elide": elision(call)}
        answer = client.call("exec", params)
        if "task" in answer:
            call.out.note(f"still running: {answer['task']}")
            return _left_running(call, answer)
        _print(call, client, answer)
        return Exit.SUCCESS
    return _finish(call, client, run_as_task(client, params))


def _left_running(call: Call, answer: dict[str, Any]) -> int:
    if call.out.json:
        call.out.document(answer)
    elif not call.flag("quiet"):
        call.out.line(answer["task"])
    return Exit.SUCCESS


def run_as_task(client: Client, params: dict[str, Any]) -> dict[str, Any]:
    """Submit as a task and wait: its record at the end. An interrupt cancels it, waits for that end
    and goes on."""
    accepted = client.start("exec", {**params, "async": True})
    try:
        record: dict[str, Any] = client.call("task.await", {"task": accepted.result()["task"]})
    except (KeyboardInterrupt, Terminated):
        task = accepted.result()["task"]
        client.call("task.cancel", {"task": task})
        client.call("task.await", {"task": task})
        raise
    return record


def _finish(call: Call, client: Client, record: dict[str, Any]) -> int:
    error = record["error"]
    if error is not None:
        raise rpc_error(error["code"], error["message"], error["data"])
    ref = record["result_ref"]
    if call.flag("raw"):
        print_raw(call.out, client, ref)
    elif not call.flag("quiet"):
        print_result(call.out, fetch_result(client, ref, elision(call)))
    return Exit.SUCCESS


def _print(call: Call, client: Client, answer: dict[str, Any]) -> None:
    if call.flag("raw"):
        print_raw(call.out, client, answer["ref"])
    elif not call.flag("quiet"):
        print_result(call.out, answer)
