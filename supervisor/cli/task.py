"""`shoal task`: background work of a session (chapter 81, section 7.7).

Failure: exit 1 for an unknown task and where control is unavailable.
"""

from __future__ import annotations

import time
from typing import Any, Final

from ipc.client import Client
from ipc.client.protocol import rpc_error
from supervisor.cli.call import Call
from supervisor.cli.failure import Exit
from supervisor.cli.options import UsageError
from supervisor.cli.output import local_time, one_line
from supervisor.cli.results import fetch_result, print_failure, print_raw, print_result

_ENDS: Final = {
    "completed": Exit.SUCCESS,
    "failed": Exit.FAILED,
    "cancelled": Exit.INTERRUPTED,
}


def task_ref(text: str) -> str:
    """`N` or `task:N`."""
    number = text.removeprefix("task:")
    if not (number.isascii() and number.isdigit()):
        raise UsageError(f"not a task: `{text}`")
    return f"task:{number}"


def _attach(call: Call, client: Client) -> None:
    call.attached(client, tty=call.out.color and not call.out.json)


def list_tasks(call: Call) -> int:
    with call.connect() as client:
        _attach(call, client)
        records = client.call("task.list")
    if call.out.json:
        call.out.document(records)
    else:
        columns = ("TASK", "STATE", "STARTED", "TIME", "RESULT", "ERROR")
        call.out.table(columns, map(_row, records))
    return Exit.SUCCESS


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    end_ns = record["finished_ns"] or time.time_ns()
    state = "suspended" if record.get("suspended") else record["state"]
    error = record["error"]
    return (
        record["task"],
        state,
        local_time(record["started_ns"]),
        f"{max(0, end_ns - record['started_ns']) / 1e9:.1f}s",
        record["result_ref"] or "",
        one_line(error["message"]) if error else "",
    )


def print_record(call: Call, record: dict[str, Any]) -> None:
    if call.out.json:
        call.out.document(record)
        return
    for name, value in record.items():
        if name.endswith("_ns"):
            name, value = name.removesuffix("_ns"), local_time(value)
        elif name == "error" and value:
            value = f"{value['message']} ({value['code']})"
        call.out.line(f"{name + ':':<12}{'' if value is None else value}".rstrip())


def show(call: Call) -> int:
    ref = task_ref(call.operands[0])
    with call.connect() as client:
        _attach(call, client)
        print_record(call, client.call("task.get", {"task": ref}))
    return Exit.SUCCESS


def wait(call: Call) -> int:
    ref = task_ref(call.operands[0])
    timeout_s = call.number("timeout")
    timeout_ms = None if timeout_s is None else timeout_s * 1000
    with call.connect() as client:
        _attach(call, client)
        record = client.call("task.await", {"task": ref, "timeout_ms": timeout_ms})
    print_record(call, record)
    return _ENDS.get(record["state"], Exit.APPROVAL)


def cancel(call: Call) -> int:
    ref = task_ref(call.operands[0])
    with call.connect() as client:
        _attach(call, client)
        answer = client.call("task.cancel", {"task": ref})
        if call.flag("wait"):
            answer = client.call("task.await", {"task": ref})
    if call.out.json:
        call.out.document(answer)
    elif call.flag("wait"):
        call.out.line(answer["state"])
    return Exit.SUCCESS


def suspend(call: Call) -> int:
    return _control(call, "task.suspend")


def resume(call: Call) -> int:
    return _control(call, "task.resume")


def _control(call: Call, method: str) -> int:
    ref = task_ref(call.operands[0])
    with call.connect() as client:
        _attach(call, client)
        answer = client.call(method, {"task": ref})
    if call.out.json:
        call.out.document(answer)
    else:
        call.out.line("suspended" if answer["suspended"] else "running")
    return Exit.SUCCESS


def output(call: Call) -> int:
    """The value of a finished task as `exec` prints it; the record when there is none."""
    ref = task_ref(call.operands[0])
    with call.connect() as client:
        _attach(call, client)
        record = client.call("task.get", {"task": ref})
        result = record["result_ref"]
        if result is None:
            if record["error"] is None:
                print_record(call, record)
                return Exit.FAILED
            error = record["error"]
            failed = rpc_error(error["code"], error["message"], error["data"])
            if call.out.json:
                print_failure(call.out, failed, "")
            else:
                print_record(call, record)
            return Exit.FAILED
        if call.flag("raw"):
            print_raw(call.out, client, result)
        else:
            print_result(call.out, fetch_result(client, result, None))
    return Exit.SUCCESS
