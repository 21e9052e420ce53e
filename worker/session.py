"""One session in its worker process: the I/O thread's loop and what it shares with the evaluator.

The main thread reads the control channel. Reads are answered there and then; submissions go to the
evaluator thread, one at a time, in the order they arrived (chapter 60 §2.4). The evaluator thread
answers by itself, so a call costs one hand-over between threads.

Failure: the end of the control channel ends the process and every process it started, at once. A
message that is none ends it too. An unexpected exception in a call is answered as `internal_error`
and leaves the session running.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ipc.jsonrpc import RpcError, decode_params, internal
from ipc.messages import (
    Answer,
    Ask,
    Call,
    Caller,
    Cancel,
    Emit,
    Failure,
    Finished,
    Go,
    Held,
    Init,
    Inject,
    Ping,
    Pong,
    Progress,
    Ready,
    Refuse,
    Reply,
    SetPolicies,
    Shutdown,
    Started,
    Suspend,
    TaskOutput,
    ToWorker,
    Watch,
)
from ipc.methods import METHODS, ExecParams
from leash.effects import OPAQUE, PROC_SPAWN, spawn, unit
from leash.verdict import caps_admit
from worker import reads, terminal_calls
from worker.agent.desk import CALLS as AGENT_CALLS
from worker.agent.desk import Desk
from worker.authority import Hosts, Policies
from worker.commands.capture import StreamName
from worker.commands.processes import TABLE
from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator
from worker.evaluate.host import Host, Limits, nowhere
from worker.evaluate.threads import evaluator_thread
from worker.hosting import apply_settings, build_host
from worker.journal_port import CURRENT_CALL, JournalPort, WouldBlock
from worker.kept_state import KeptState
from worker.language import ast
from worker.link import Link, LinkClosed, Parcel, read_content
from worker.memory import lifted, out_of_memory
from worker.navigation_port import kept_by_router
from worker.output_tail import OutputTail
from worker.planning import Plan, derive
from worker.ptys import PtyTable
from worker.recording import Recorder
from worker.sandbox import Sandbox
from worker.secrets_port import SecretsPort
from worker.submission import Preparer, Submission, raised_error, run
from worker.values.types import Value

# A program without effects that is still running after this long is announced on its own.
ANNOUNCE_AFTER_S: Final = 0.005

# Sessions of the agent endpoint show values between results to whoever prompted.
AGENT_PREFIX: Final = "agent/"

CallHandler = Callable[["Session", Call], bytes]

# Answered by the I/O thread itself.
READS: Final[dict[str, CallHandler]] = {
    "session.cwd": reads.session_cwd,
    "session.reef": reads.session_reef,
    "session.env": reads.session_env,
    "session.names": reads.session_names,
    "value.get": reads.value_get,
    "pty.send": terminal_calls.pty_send,
    "pty.read": terminal_calls.pty_read,
    "pty.resize": terminal_calls.pty_resize,
    "pty.list": terminal_calls.pty_list,
}

# Answered on a thread of their own, which the I/O thread does not wait for.
SLOW_CALLS: Final[dict[str, CallHandler]] = {
    "pty.open": terminal_calls.pty_open,
    "pty.close": terminal_calls.pty_close,
    **AGENT_CALLS,
}

# Calls that take their turn at the evaluator, in the order they came.
QUEUED: Final = frozenset(("exec", "plan", "explain"))


def queued_params(call: Call) -> ExecParams:
    """The parameters of a queued call; those of `explain` are its own. Raises RpcError."""
    if call.method not in QUEUED:
        raise internal("internal_error", f"no worker method {call.method}")
    if call.method == "explain":
        return ExecParams("")
    params: ExecParams = decode_params(call.params, METHODS["exec"].decoder)
    return params


class Gate:
    """The router's word on a submission that waits to begin."""

    __slots__ = ("_event", "_open")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._open = False

    def open(self, go: bool) -> None:
        self._open = go
        self._event.set()

    def wait(self) -> bool:
        self._event.wait()
        return self._open


class Session:
    # `_waiting` holds accepted submissions by call id until they end; `_gates` those that wait to
    # begin; `_asks` questions to the router; `_running` is the submission the evaluator is at. Each
    # is changed by both threads under `_lock`.
    # `evaluator` belongs to the evaluator thread; the I/O thread only reads plain attributes of it.

    def __init__(
        self, link: Link, init: Init, fds: list[int], policies: Policies, sandbox: Sandbox
    ) -> None:
        self.link = link
        self.name = init.session
        self.owner = init.owner
        self.init = init
        self._lock = threading.Lock()
        self._waiting: dict[int, Submission] = {}
        self._gates: dict[int, Gate] = {}
        self._asks: dict[int, queue.SimpleQueue[tuple[bool, bytes, int]]] = {}
        self._next_ask = 1
        self._queue: queue.SimpleQueue[Submission | None] = queue.SimpleQueue()
        self.preparer = Preparer()
        self.policies = policies
        self.sandbox = sandbox
        self._unannounced: Started | None = None
        self._running: Submission | None = None
        # Held while rows are handed over and sent, so that they arrive in order.
        self.reporting = threading.Lock()
        self.journal = JournalPort(self)
        self.kept = KeptState(init, self.journal)
        self.desk = Desk(self)
        self._config: dict[str, Any] = msgspec.json.decode(init.config)
        self.evaluator = Evaluator(os.fsdecode(init.cwd), dict(init.environment), self._host(init))
        self.evaluator.channels.on_emit = self._emitted
        self.terminals = PtyTable()
        self.evaluator.host.journal = self.journal
        self.evaluator.host.navigation = kept_by_router(self.journal)
        self.evaluator.host.secrets = SecretsPort(self.journal)
        cells = read_content(init.cells, fds)
        for warning in () if cells else apply_settings(self.evaluator, self._config):
            _note(f"warning: {warning}")
        self.kept.attach(self.evaluator, cells)
        self.hosts = Hosts(self.evaluator.host, policies, init.owner, sandbox.domain)

    def _host(self, init: Init) -> Host:
        return build_host(
            self._config,
            principal=init.owner,
            limits=Limits(init.capture_bytes, init.spill_bytes),
            sink=self.desk.show if init.session.startswith(AGENT_PREFIX) else nowhere,
            echo="quiet",
            note=_note,
        )

    # -- evaluators --------------------------------------------------------------------------------

    def derive(self, node: Any) -> Plan:
        """The plan of a statement of a sourced program, with the names bound now."""
        return derive(self.evaluator, ast.Program([node])).plan

    def evaluator_for_terminal(self, caller: Caller, program: str) -> Evaluator:
        """An evaluator that starts a terminal's program as the caller, beside whatever runs."""
        evaluator = self.evaluator.child(cancel=self.evaluator.session_cancel.child())
        by_name = caps_admit(caller.caps, PROC_SPAWN)
        effect = spawn("", program) if by_name else unit(OPAQUE)
        evaluator.host = Hosts.admitted(self.hosts.of(caller.principal, caller.caps), (effect,))
        return evaluator

    # -- the I/O thread ----------------------------------------------------------------------------

    def serve(self) -> None:
        """Read and dispatch until the channel ends."""
        evaluator_thread(self._evaluate_forever, "evaluator")
        self.link.send(
            Ready(os.getpid(), self.kept.cwd_bytes(), self.kept.env_hash(), self.kept.lost)
        )
        self.sandbox.settle()
        while (received := self._receive()) is not None:
            message, fds = received
            handler = _HANDLERS.get(type(message))
            if handler is not None:
                handler(self, message, fds)

    def _receive(self) -> tuple[ToWorker, list[int]] | None:
        """The next message. A submission that does not end at once is reported meanwhile."""
        while self._to_be_reported() and not self.link.wait(ANNOUNCE_AFTER_S):
            self._report_running()
        return self.link.receive()

    def _to_be_reported(self) -> bool:
        """Whether a submission runs, or is about to, of which the router knows too little."""
        running = self._running
        if running is None:
            return bool(self._waiting)
        return running.recorder is None or not running.recorder.reporting

    def _report_running(self) -> None:
        self._announce_late()
        running = self._running
        if running is not None and running.recorder is not None:
            running.recorder.reporting = True
            self.report(running.call.id, running.recorder)

    def _announce_late(self) -> None:
        with self._lock:
            started, self._unannounced = self._unannounced, None
            if started is not None:
                self.link.send(started)

    def _call(self, call: Call, _fds: list[int]) -> None:
        read = READS.get(call.method)
        if read is not None:
            self._answer_call(call, read)
            return
        slow = SLOW_CALLS.get(call.method)
        if slow is not None:
            self._beside(call, slow)
            return
        try:
            work = self._accepted(call, queued_params(call))
        except RpcError as error:
            self.link.send(Failure(call.id, error.encode()))
            return
        except LinkClosed:
            raise
        except Exception:  # noqa: BLE001 - one broken call must not end the session
            self.link.send(Failure(call.id, _unexpected().encode()))
            return
        with self._lock:
            self._waiting[call.id] = work
        self._queue.put(work)

    def _answer_call(self, call: Call, serve: CallHandler) -> None:
        CURRENT_CALL.set(call.id)
        try:
            self.reply(call.id, serve(self, call))
        except RpcError as error:
            self.link.send(Failure(call.id, error.encode()))
        except LinkClosed:
            raise
        except WouldBlock:
            # It needs an answer of the router, which only this thread can receive. Reads change
            # nothing, so it starts again beside.
            self._beside(call, serve)
        except Exception:  # noqa: BLE001 - one broken call must not end the session
            self.link.send(Failure(call.id, _unexpected().encode()))

    def _beside(self, call: Call, serve: CallHandler) -> None:
        """Answer a call on a thread of its own."""
        threading.Thread(
            target=self._answer_slowly, args=(call, serve), name=call.method, daemon=True
        ).start()

    def _answer_slowly(self, call: Call, serve: CallHandler) -> None:
        with contextlib.suppress(LinkClosed):
            self._answer_call(call, serve)

    def _accepted(self, call: Call, params: ExecParams) -> Submission:
        work = Submission(call, params, self.evaluator.session_cancel.child())
        work.observer = work.tail = self.desk.observe(call)
        task = call.task
        if task:

            def publish(stream: StreamName, count: int, tail: str) -> None:
                with contextlib.suppress(LinkClosed):
                    self.link.send(TaskOutput(task, stream, count, tail))

            work.tail = OutputTail(publish)
        return work

    def reply(self, call_id: int, result: bytes) -> None:
        """Answer a call that is no run."""
        with Parcel() as parcel:
            self.link.send(Reply(call_id, parcel.content(result)), parcel.fds)

    def _go(self, go: Go, _fds: list[int]) -> None:
        self._open_gate(go.id, True)

    def _refuse(self, refuse: Refuse, _fds: list[int]) -> None:
        self._open_gate(refuse.id, False)

    def _open_gate(self, call_id: int, go: bool) -> None:
        with self._lock:
            gate = self._gates.pop(call_id, None)
        if gate is not None:
            gate.open(go)

    def _cancel(self, cancel: Cancel, _fds: list[int]) -> None:
        with self._lock:
            work = self._waiting.get(cancel.id)
        if work is not None:
            work.cancel()
        else:
            self.desk.cancel(cancel.id)

    def _suspend(self, suspend: Suspend, _fds: list[int]) -> None:
        def held(done: bool) -> None:
            with contextlib.suppress(LinkClosed):
                self.link.send(Held(suspend.id, done))

        with self._lock:
            work = self._waiting.get(suspend.call)
        if work is None:
            held(False)
        elif suspend.hold:
            work.suspend(held)
        else:
            work.resume()
            held(True)

    def _inject(self, inject: Inject, _fds: list[int]) -> None:
        from worker.values.json_codec import from_plain

        self.evaluator.channels.inject(
            inject.channel, from_plain(msgspec.json.decode(inject.payload))
        )

    def _set_policies(self, message: SetPolicies, _fds: list[int]) -> None:
        self.policies.update(message.entries)

    def _watch(self, watch: Watch, _fds: list[int]) -> None:
        with self._lock:
            running = [work for work in self._waiting.values() if work.call.task == watch.task]
        for work in running:
            if work.tail is not None:
                work.tail.watch(watch.on)

    def _ping(self, ping: Ping, _fds: list[int]) -> None:
        self.link.send(Pong(ping.number))

    def _answer(self, answer: Answer, fds: list[int]) -> None:
        with self._lock:
            waiting = self._asks.pop(answer.id, None)
        body, fd = read_content(answer.body, fds), -1
        if fds and answer.body.fd < 0:
            # A descriptor without content is what was asked for itself.
            fd = fds[0]
        if waiting is not None:
            waiting.put((answer.ok, body, fd))

    def _shutdown(self, shutdown: Shutdown, _fds: list[int]) -> None:
        TABLE.shorten(shutdown.grace_ms / 1000)
        with self._lock:
            running = list(self._waiting.values())
        for work in running:
            work.cancel()
        self.evaluator.session_cancel.cancel()
        self.evaluator.channels.close()
        self.terminals.close_all()
        self._queue.put(None)

    # -- shared ------------------------------------------------------------------------------------

    def announce(self, started: Started) -> bool:
        """Tell the router that a submission begins; False when it must not.

        A program without effects begins at once, and is announced together with its end when that
        comes soon; the I/O thread looks after those that take longer.
        """
        if not started.wait:
            with self._lock:
                self._unannounced = started
            return True
        gate = Gate()
        with self._lock:
            self._gates[started.id] = gate
        with Parcel() as parcel:
            started.ast = parcel.content(started.ast.data)
            self.link.send(started, parcel.fds)
        return gate.wait()

    def unannounced(self) -> Started | None:
        """The start that was not announced yet, which then travels with the end."""
        with self._lock:
            started, self._unannounced = self._unannounced, None
            return started

    def report(self, call_id: int, recorder: Recorder) -> None:
        """Tell the router what the rows of a submission are by now."""
        self._announce_late()
        with self.reporting, Parcel() as parcel:
            statements, undo = recorder.hand_over(parcel)
            if statements or undo:
                self.link.send(Progress(call_id, statements, undo), parcel.fds)

    def report_progress(self) -> None:
        """Tell the router what the rows of the running submission are by now."""
        running = self._running
        if running is not None and running.recorder is not None:
            self.report(running.call.id, running.recorder)

    def finish(self, finished: Finished, fds: list[int]) -> None:
        self.link.send(finished, fds)

    def ask(self, call_id: int, op: str, params: bytes) -> tuple[bool, bytes, int]:
        """Ask the router from an evaluator thread and wait for its answer: whether it is one, its
        body, and a descriptor that came with it or -1."""
        waiting: queue.SimpleQueue[tuple[bool, bytes, int]] = queue.SimpleQueue()
        with self._lock:
            ask_id = self._next_ask
            self._next_ask += 1
            self._asks[ask_id] = waiting
        self.link.send(Ask(ask_id, call_id, op, params))
        return waiting.get()

    def _emitted(self, channel: str, value: Value) -> None:
        from worker.values.wire import encode

        with contextlib.suppress(LinkClosed):
            self.link.send(Emit(channel, encode(value)))

    # -- the evaluator thread ----------------------------------------------------------------------

    def _evaluate_forever(self) -> None:
        try:
            while (work := self._queue.get()) is not None:
                CURRENT_CALL.set(work.call.id)
                self._running = work
                try:
                    self._run_confined(work)
                except LinkClosed:
                    raise
                except Raised as failure:
                    # There is no place where it may be evaluated.
                    error = raised_error(failure.error, None)
                    self.link.send(Failure(work.call.id, error.encode()))
                except MemoryError as failure:
                    with lifted():
                        error = raised_error(out_of_memory(failure).error, None)
                        self.link.send(Failure(work.call.id, error.encode()))
                except Exception:  # noqa: BLE001 - one broken call must not end the session
                    self.link.send(Failure(work.call.id, _unexpected().encode()))
                finally:
                    work.over()
                    with self._lock:
                        self._running = None
                        self._waiting.pop(work.call.id, None)
                        self._gates.pop(work.call.id, None)
        except LinkClosed:
            # The I/O thread sees the end of the channel too and ends the process.
            return

    def _run_confined(self, work: Submission) -> None:
        """Run a submission where its caller's grants put it."""
        caller = work.call.caller
        domain = self.sandbox.domain(self.policies.standing(caller.principal, caller.caps))
        if domain is None:
            run(self, work)
            return

        def there() -> None:
            CURRENT_CALL.set(work.call.id)
            run(self, work)

        domain.run(there)


_HANDLERS: Final[dict[type, Callable[[Session, Any, list[int]], None]]] = {
    Call: Session._call,
    SetPolicies: Session._set_policies,
    Go: Session._go,
    Refuse: Session._refuse,
    Cancel: Session._cancel,
    Suspend: Session._suspend,
    Inject: Session._inject,
    Watch: Session._watch,
    Ping: Session._ping,
    Answer: Session._answer,
    Shutdown: Session._shutdown,
}


def _note(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _unexpected() -> RpcError:
    """Log the active exception to the worker's standard error; clients get no details."""
    traceback.print_exc()
    return internal("internal_error", "unexpected failure in the session worker")
