"""`make demo`: a kernel on a temporary socket, shown at work step by step.

Starts a kernel of its own below a temporary directory, talks to it through the client library, and
prints each call with what came back, as it happens. Ends everything it started.

Failure: exit 1 with the step that did not go as announced.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ipc.client import Client, RpcError
from ipc.client.autostart import PROGRAM

WAIT_S: Final = 30.0


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def step(title: str) -> None:
    say()
    say(f"\x1b[1m── {title}\x1b[0m" if os.isatty(1) else f"── {title}")


class Failed(Exception):
    """A step did not go as announced."""


def expect(truth: object, text: str) -> None:
    if not truth:
        raise Failed(text)


def run(client: Client, source: str) -> dict[str, Any]:
    """Run source, and show it with its answer."""
    say(f"  > {source}")
    began = time.perf_counter()
    answer: dict[str, Any] = client.call("exec", {"src": source, "position": "value"})
    took_ms = (time.perf_counter() - began) * 1000
    if answer["render"]:
        say(textwrap.indent(answer["render"], "    "))
    say(f"    [{answer['ref']}, {took_ms:.1f} ms]")
    return answer


def failing(call: Callable[[], Any]) -> RpcError:
    """Make a call that must fail, and show how."""
    try:
        call()
    except RpcError as error:
        say(f"    error {error.code} {error.kind}: {error.message}")
        return error
    raise Failed("a call that must fail did not")


def start_kernel(root: Path) -> tuple[subprocess.Popen[str], Path]:
    socket = root / "kernel.sock"
    command = [sys.executable, str(PROGRAM), "kernel", "--socket", str(socket)]
    command += ["--state-dir", str(root / "state"), "--log-file", str(root / "log")]
    say(f"  $ shoal {' '.join(command[2:])}")
    kernel = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root / "work",
    )
    assert kernel.stderr is not None
    line = kernel.stderr.readline()
    say(f"    {line.rstrip()}")
    expect(line.startswith("shoal-kernel: ready "), "the kernel did not start")
    return kernel, socket


def values(client: Client) -> None:
    step("Values, not text: bindings stay in the session, results have numbers")
    run(client, "let n = 6; n * 7")
    run(client, "fn double(x) { x * 2 }")
    run(client, "double(n)")
    run(client, "90s + 1h")


def commands(client: Client) -> None:
    step("Real commands: builtins give tables, programs give outcomes")
    run(client, "ls.sort_by(.size).map(.name)")
    run(client, "wc -l fruit.txt")
    outcome = run(client, "sh -c 'echo oops >&2; exit 3'")
    expect(outcome["value"]["status"] == 3, "the status of a failed command is part of its value")


def events(client: Client) -> None:
    step("Events: every submission is announced once it is committed")
    subscription = client.subscribe("journal")
    run(client, "'seen'")
    event = subscription.take(WAIT_S)
    while event is not None and event.payload["v"]["head"]["v"] != "'seen'":
        event = subscription.take(WAIT_S)
    expect(event is not None, "the event of the submission")
    if event is not None:
        say(f"    event {event.seq} of journal: {event.payload['v']['head']['v']} by a submission")


def background(client: Client) -> None:
    step("Background work: a task that can be waited for, and one that is cancelled")
    task = client.call("exec", {"src": "sh -c 'sleep 0.2; echo built'", "async": True})["task"]
    say(f"  > sh -c 'sleep 0.2; echo built'   [{task}]")
    record = client.call("task.await", {"task": task})
    say(f"    {record['state']}, {record['result_ref']}")
    task = client.call("exec", {"src": "sh -c 'sleep 60'", "async": True})["task"]
    say(f"  > sh -c 'sleep 60'                [{task}]")
    client.call("task.cancel", {"task": task})
    record = client.call("task.await", {"task": task})
    say(f"    {record['state']}")
    expect(record["state"] == "cancelled", "a cancelled task says so")


def plans(client: Client) -> None:
    step("Plan and approval: what would it touch, may it, then do it")
    source = "echo planned > planned.txt"
    plan = client.call("exec", {"src": source, "mode": "plan"})
    say(f"  plan: {source}")
    for effect in plan["effects"]:
        say(f"    {effect}")
    say(f"    {plan['verdict']}, {plan['reversibility']}, {plan['plan_ref'][:13]}…")
    granted = client.call("cap.request", {"plan_ref": plan["plan_ref"]})
    say(f"  approve: {granted['grant']}")
    applied = client.call("plan.apply", {"plan_ref": plan["plan_ref"]})
    say(f"  apply: done, {applied['ref']}")


def crash(client: Client, other: Client) -> None:
    step("A worker is killed in the middle of work; nobody else notices")
    [session] = [
        each for each in client.call("session.list")["sessions"] if each["session"] == "work"
    ]
    say(f"  worker of `work`: pid {session['pid']}")
    running = client.start("exec", {"src": "sh -c 'sleep 60'"})
    other.call("exec", {"src": "1"})
    os.kill(session["pid"], signal.SIGKILL)
    say(f"  $ kill -9 {session['pid']}")
    began = time.perf_counter()
    error = failing(lambda: running.result(WAIT_S))
    say(f"    [after {(time.perf_counter() - began) * 1000:.0f} ms]")
    expect(error.kind == "worker_lost", "the call says that its worker is gone")
    say("  the other session:")
    run(other, "6 * 7")
    say("  the same session, in a new worker, with its results:")
    again = client.call("value.get", {"ref": "out:1", "format": "render"})
    say(f"    out:1 = {again['render']}")
    expect(again["render"] == "42", "a committed result is still there")
    run(client, "1 + 1")


def history(client: Client) -> None:
    step("The journal knows what happened")
    for entry in client.call("journal.query", {"limit": 5}):
        ending = {True: "ok", False: "failed", None: entry["state"]}[entry["ok"]]
        say(f"    {entry['id']:>3}  {ending:<12} {entry['src']}")


def show(root: Path) -> None:
    work = root / "work"
    work.mkdir()
    (work / "fruit.txt").write_text("apple 3\npear 55\n")
    (work / "info.json").write_text('{"name": "shoal"}\n')
    step("A kernel on a socket of its own")
    kernel, socket = start_kernel(root)
    try:
        with Client.connect(socket) as client, Client.connect(socket) as other:
            attached = client.attach("work")
            other.attach("other")
            say(f"  attached to {attached['session']} as {attached['principal']}")
            values(client)
            commands(client)
            events(client)
            background(client)
            if "plan.apply" in client.call("server.info")["methods"]:
                plans(client)
            crash(client, other)
            history(client)
        step("SIGTERM: the kernel drains and takes its socket away")
        kernel.terminate()
        say(f"    exit {kernel.wait(WAIT_S)}, socket gone: {not socket.exists()}")
    finally:
        if kernel.poll() is None:
            kernel.kill()
            kernel.wait()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="shoal-demo-") as root:
        try:
            show(Path(root))
        except (Failed, RpcError, TimeoutError) as error:
            sys.stderr.write(f"demo: {error}\n")
            return 1
    say()
    return 0


if __name__ == "__main__":
    sys.exit(main())
