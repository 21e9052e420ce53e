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
    Cell,
    Emit,
    Failure,
    Finished,
    Go,
    Held,
    Init,
    Inject,
    Ping,
    Pong,
    Ready,
    Refuse,
    Reply,
    Shutdown,
    Started,
    Suspend,
    ToWorker,
    Watch,
    decode_cells,
    encode_cells,
)
from ipc.methods import METHODS, ExecParams
from worker import reads
from worker.evaluate.evaluator import Evaluator
from worker.evaluate.host import Host, Limits
from worker.evaluate.threads import evaluator_thread
from worker.hosting import apply_settings, build_host
from worker.link import Link, LinkClosed, Parcel, read_content
from worker.planning import Plan, derive
from worker.saving import load_value, save_value
from worker.submission import Preparer, Submission, run
from worker.transcript import Transcript, out_number
from worker.values.types import MISSING, Value

# A program without effects that is still running after this long is announced on its own.
ANNOUNCE_AFTER_S: Final = 0.005

READS: Final[dict[str, Callable[[Session, Call], bytes]]] = {
    "session.cwd": reads.session_cwd,
    "session.env": reads.session_env,
    "session.names": reads.session_names,
    "value.get": reads.value_get,
}


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
    # begin; `_asks` questions to the router. Each is changed by both threads under `_lock`.
    # `evaluator` belongs to the evaluator thread; the I/O thread only reads plain attributes of it.

    def __init__(self, link: Link, init: Init, fds: list[int]) -> None:
        self.link = link
        self.name = init.session
        self.owner = init.owner
        self.init = init
        self._lock = threading.Lock()
        self._waiting: dict[int, Submission] = {}
        self._gates: dict[int, Gate] = {}
        self._asks: dict[int, queue.SimpleQueue[tuple[bool, bytes]]] = {}
        self._next_ask = 1
        self._queue: queue.SimpleQueue[Submission | None] = queue.SimpleQueue()
        self._results: dict[int, list[int]] = {}
        self._cwd = ("", b"")
        self._env_pairs: tuple[tuple[bytes, bytes], ...] = ()
        self._env_hash = ""
        self.preparer = Preparer()
        self._unannounced: Started | None = None
        self.transcript = Transcript(init.next_out, init.transcript_values, init.transcript_bytes)
        self._config: dict[str, Any] = msgspec.json.decode(init.config)
        self.evaluator = Evaluator(os.fsdecode(init.cwd), dict(init.environment), self._host(init))
        self.evaluator.channels.on_emit = self._emitted
        for warning in () if init.restored else apply_settings(self.evaluator, self._config):
            _note(f"warning: {warning}")
        self.lost = self._restore(read_content(init.cells, fds))
        self.note_places()

    def _host(self, init: Init) -> Host:
        return build_host(
            self._config,
            principal=init.owner,
            limits=Limits(init.capture_bytes, init.spill_bytes),
            sink=lambda _value: None,
            echo="quiet",
            note=_note,
        )

    # -- state -----------------------------------------------------------------------------------

    def cwd_bytes(self) -> bytes:
        """The current directory as it is now."""
        cwd = self.evaluator.cwd
        if self._cwd[0] != cwd:
            self._cwd = (cwd, os.fsencode(cwd))
        return self._cwd[1]

    def derive(self, node: Any) -> Plan:
        """The plan of a statement of a sourced program, with the names bound now."""
        values, _commands = self.evaluator.bound_names()
        return derive(node, values.__contains__)

    def note_places(self) -> None:
        """Look again at what a program with effects may have changed outside its bindings."""
        pairs = tuple(self.evaluator.env.items())
        if self._env_pairs != pairs:
            self._env_pairs = pairs
            self._env_hash = reads.env_hash(self.evaluator.env)

    def env_hash(self) -> str:
        """The hash of the environment after the last program that could change it."""
        return self._env_hash

    def repl_names(self, caller: Caller) -> dict[str, Value] | None:
        """What `it` and `out` name for a terminal attachment (chapter 60 §5.9)."""
        if not caller.repl:
            return None
        results = [self._stored(number) for number in self._results.get(caller.connection, [])]
        return {"it": results[-1] if results else None, "out": results}

    def _stored(self, number: int) -> Value:
        try:
            return self.transcript.get(f"out:{number}")
        except RpcError:
            return None

    def remember_result(self, caller: Caller, number: int) -> None:
        if caller.repl:
            self._results.setdefault(caller.connection, []).append(number)

    def changed_cells(self, number: int, stored: Value, expired: list[int]) -> bytes:
        """The state this submission changed, encoded for the store; a leading `-` removes a
        cell."""
        cells = [Cell(f"out:{number}", save_value(stored))]
        cells += [Cell(f"-out:{gone}") for gone in expired]
        return encode_cells(cells)

    def _restore(self, data: bytes) -> list[str]:
        """Bring stored state back; returns the names that are lost, sorted."""
        lost: list[str] = []
        for cell in decode_cells(data) if data else ():
            number = out_number(cell.name)
            if number is None:
                continue
            value = load_value(cell.value)
            if value is MISSING:
                lost.append(cell.name)
            self.transcript.restore(number, value, len(cell.value or b""))
        return sorted(lost)

    # -- the I/O thread ----------------------------------------------------------------------------

    def serve(self) -> None:
        """Read and dispatch until the channel ends."""
        evaluator_thread(self._evaluate_forever, "evaluator")
        self.link.send(Ready(os.getpid(), self.cwd_bytes(), self.env_hash(), self.lost))
        while (received := self._receive()) is not None:
            message, fds = received
            handler = _HANDLERS.get(type(message))
            if handler is not None:
                handler(self, message, fds)

    def _receive(self) -> tuple[ToWorker, list[int]] | None:
        """The next message. A submission that does not end at once is announced meanwhile."""
        if self._unannounced is not None and not self.link.wait(ANNOUNCE_AFTER_S):
            self._announce_late()
        return self.link.receive()

    def _announce_late(self) -> None:
        with self._lock:
            started, self._unannounced = self._unannounced, None
            if started is not None:
                self.link.send(started)

    def _call(self, call: Call, _fds: list[int]) -> None:
        try:
            read = READS.get(call.method)
            if read is not None:
                self._reply(call.id, read(self, call))
                return
            if call.method != "exec":
                raise internal("internal_error", f"no worker method {call.method}")
            params: ExecParams = decode_params(call.params, METHODS["exec"].decoder)
            work = Submission(call, params, self.evaluator.session_cancel.child())
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

    def _reply(self, call_id: int, result: bytes) -> None:
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
            work.token.cancel()

    def _suspend(self, suspend: Suspend, _fds: list[int]) -> None:
        with self._lock:
            work = self._waiting.get(suspend.call)
        done = False
        if work is not None:
            done = work.hold(suspend.hold)
        self.link.send(Held(suspend.id, done))

    def _inject(self, inject: Inject, _fds: list[int]) -> None:
        from worker.values.json_codec import from_plain

        self.evaluator.channels.inject(
            inject.channel, from_plain(msgspec.json.decode(inject.payload))
        )

    def _watch(self, _watch: Watch, _fds: list[int]) -> None:
        return None

    def _ping(self, ping: Ping, _fds: list[int]) -> None:
        self.link.send(Pong(ping.number))

    def _answer(self, answer: Answer, fds: list[int]) -> None:
        with self._lock:
            waiting = self._asks.pop(answer.id, None)
        body = read_content(answer.body, fds)
        if waiting is not None:
            waiting.put((answer.ok, body))

    def _shutdown(self, _shutdown: Shutdown, _fds: list[int]) -> None:
        self.evaluator.session_cancel.cancel()
        with self._lock:
            running = list(self._waiting.values())
        for work in running:
            work.token.cancel()
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

    def finish(self, finished: Finished, fds: list[int]) -> None:
        self.link.send(finished, fds)

    def ask(self, call_id: int, op: str, params: bytes) -> tuple[bool, bytes]:
        """Ask the router from an evaluator thread and wait for its answer."""
        waiting: queue.SimpleQueue[tuple[bool, bytes]] = queue.SimpleQueue()
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
                try:
                    run(self, work)
                except LinkClosed:
                    raise
                except Exception:  # noqa: BLE001 - one broken call must not end the session
                    self.link.send(Failure(work.call.id, _unexpected().encode()))
                finally:
                    with self._lock:
                        self._waiting.pop(work.call.id, None)
                        self._gates.pop(work.call.id, None)
        except LinkClosed:
            # The I/O thread sees the end of the channel too and ends the process.
            return


_HANDLERS: Final[dict[type, Callable[[Session, Any, list[int]], None]]] = {
    Call: Session._call,
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
