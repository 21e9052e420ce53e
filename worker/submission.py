"""One submission, from source text to the message that ends it (chapter 60 §5.9).

Runs on the evaluator thread: parse with the session's bindings, derive the plan, announce the start
to the router, evaluate, store the result as the next `out:N`, and pack answer, journal rows and
session state into one `Finished` message. A program without effects is evaluated without waiting
for its row to be committed; any other waits for the router's word.

Failure: a syntax error ends in `Failure` and takes no number; a language error is a result like any
other; anything unexpected is answered as `internal_error` without ending the worker.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.jsonrpc import Code, RpcError
from ipc.messages import Call, Content, Failure, Finished, Output, Started
from ipc.methods import ExecParams
from worker.errors import Cancelled, Raised
from worker.evaluate.cancel import CancelToken
from worker.evaluate.evaluator import Evaluator, Position
from worker.evaluate.tasks import ProcessGroups
from worker.language import ParseContext, ParseError, parse
from worker.link import Parcel
from worker.memory import lifted, out_of_memory
from worker.output_tail import OutputTail
from worker.planning import PURE, Derived, Plan, derive, is_pure, nothing
from worker.recording import Recorder, first_word, outcome_outputs, packed
from worker.suspension import Suspension
from worker.values.render import block, bound_render, strip_terminal
from worker.values.types import ErrorValue, LazyBytes, Outcome, Table, Value, type_name
from worker.values.wire import Budget, elide, encode
from worker.verdicts import answer_plan, verdict_of

if TYPE_CHECKING:
    from worker.agent.observer import Observer
    from worker.session import Session

ERROR_STDERR_BYTES_MAX: Final = 64 * 1024
NO_NAMES: Final[frozenset[str]] = frozenset()
_encode_json = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Submission:
    """A queued `exec`. `token` may be cancelled at any time, also before it runs.

    `suspension` is there while it is held; `groups` are the programs it runs; `tail` is there when
    it runs as a task, whose output can be watched; `recorder` from the begin of its evaluation on.
    """

    call: Call
    params: ExecParams
    token: CancelToken
    groups: ProcessGroups = field(default_factory=ProcessGroups)
    tail: OutputTail | Observer | None = None
    # Who sees it when it is a tool call of an agent's turn.
    observer: Observer | None = None
    suspension: Suspension | None = None
    ended: bool = False
    recorder: Recorder | None = None

    def suspend(self, answered: Callable[[bool], None]) -> None:
        """Hold it; `answered` gets whether it came to stand still."""
        self.resume()
        self.suspension = Suspension(self.token, self.groups, answered)
        self.suspension.begin()
        # The evaluator thread may have come to the end meanwhile, and seen no suspension.
        if self.ended:
            self.resume()

    def resume(self) -> None:
        suspension, self.suspension = self.suspension, None
        if suspension is not None:
            suspension.end()

    def cancel(self) -> None:
        """Ask for its end; a held one is continued first."""
        self.resume()
        self.token.cancel()

    def over(self) -> None:
        """Nothing of it is evaluated any more: it cannot be held from now on."""
        self.ended = True
        self.resume()


def parse_error(error: ParseError) -> RpcError:
    """The wire form of a syntax error (chapter 10 §11.1)."""
    return RpcError(
        Code.PARSE_ERROR,
        error.message,
        "parse_error",
        span={"start": error.span.start, "end": error.span.end},
        hint=error.hint,
    )


def raised_error(error: ErrorValue, ref: str | None) -> RpcError:
    """The wire form of an uncaught language error; all eight members are always there."""
    stderr = error.stderr
    if stderr is not None and len(stderr) > ERROR_STDERR_BYTES_MAX // 4:
        raw = stderr.encode("utf-8", "replace")
        stderr = raw[:ERROR_STDERR_BYTES_MAX].decode("utf-8", "ignore")
    return RpcError(
        Code.RAISED,
        error.msg,
        "raised",
        code=error.code,
        span=None if error.span is None else {"start": error.span[0], "end": error.span[1]},
        hint=error.hint,
        status=error.status,
        stderr=stderr,
        ref=ref,
        uri=None if ref is None else "shoal://" + ref.replace(":", "/", 1),
    )


CANCELLED: Final = "evaluation cancelled"

# Sources that come again (a prompt, a status line, a loop of an agent) are parsed once.
CACHED_SOURCE_BYTES_MAX: Final = 4096
CACHED_PROGRAMS_MAX: Final = 256


@dataclass(slots=True)
class Prepared:
    """A parsed program with what its journal rows say about it. `statements` are the trees of its
    top-level statements with their plans; `pure`: the plan is empty whatever the session holds."""

    program: Any
    ast_json: bytes
    head: str
    derived: Derived
    statements: list[tuple[bytes, Plan]]
    pure: bool


class Preparer:
    """Parses and plans. Parsing depends on source, bindings and mode alone, so it is kept; so
    is the plan of a program that can only compute. Any other plan is derived for every run."""

    # Prepared programs, oldest use first; evaluator thread only.

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], Prepared] = OrderedDict()

    def prepare(
        self, ev: Evaluator, src: str, repl: bool, names: frozenset[str] = NO_NAMES
    ) -> Prepared:
        """`names` are bound for this program alone. Raises ParseError."""
        values, commands = map(frozenset, ev.bound_names())
        values |= names
        key = (src, repl, values, commands)
        found = self._kept.get(key)
        if found is None:
            found = self._parsed(src, ParseContext(repl=repl, values=values, commands=commands))
            if len(src) <= CACHED_SOURCE_BYTES_MAX:
                self._kept[key] = found
                if len(self._kept) > CACHED_PROGRAMS_MAX:
                    self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return found if found.pure else planned(ev, found)

    @staticmethod
    def _parsed(src: str, context: ParseContext) -> Prepared:
        program = parse(src, context)
        ast_json = _encode_json(program)
        statements = [(tree, PURE) for tree in _statements(program, ast_json)]
        return Prepared(
            program,
            ast_json,
            first_word(src),
            nothing(len(statements)),
            statements,
            is_pure(program, frozenset(context.values)),
        )


def planned(ev: Evaluator, prepared: Prepared) -> Prepared:
    """A parsed program with its plan in the session as it is now."""
    derived = derive(ev, prepared.program)
    trees = [tree for tree, _plan in prepared.statements]
    statements = list(zip(trees, derived.statements, strict=True))
    return replace(prepared, derived=derived, statements=statements)


def _statements(program: Any, ast_json: bytes) -> list[bytes]:
    if len(program.stmts) == 1:
        # The only statement's tree is what stands between the brackets of the program's.
        return [ast_json[len(b'{"stmts":[') : -len(b"]}")]]
    return [_encode_json(statement) for statement in program.stmts]


def run(session: Session, work: Submission) -> None:
    """Run one submission to its `Failure` or `Finished`."""
    call = work.call
    if work.token.cancelled:
        error = raised_error(ErrorValue("cancelled", CANCELLED), None)
        session.link.send(Failure(call.id, error.encode()))
        return
    if call.method != "exec":
        answer_plan(session, call)
        return
    evaluator = session.evaluator
    # What the derivation looks at is looked at with the caller's authority.
    evaluator.host = session.hosts.of(call.caller.principal, call.caller.caps)
    try:
        names = frozenset(work.observer.names()) if work.observer is not None else NO_NAMES
        prepared = session.preparer.prepare(evaluator, work.params.src, call.caller.repl, names)
    except ParseError as error:
        session.link.send(Failure(call.id, parse_error(error).encode()))
        return
    plan = prepared.derived.plan
    refusal, uses_approval = verdict_of(session, call, prepared.derived.leash)
    if refusal is not None:
        session.link.send(Failure(call.id, refusal.encode()))
        return
    if plan.effects:
        evaluator.host = session.hosts.admitted(evaluator.host, plan.effects)
    started = Started(
        id=call.id,
        ast=Content(prepared.ast_json),
        effects=plan.effects_json,
        effect_kinds=plan.kinds,
        opaque=plan.opaque,
        cwd=session.kept.cwd_bytes(),
        head=prepared.head,
        ts=time.time_ns(),
        # An approval is used up in the commit that opens the row: even a computation waits for it.
        wait=uses_approval or not plan.pure,
        reversibility=prepared.derived.leash.reversibility,
        uses_approval=uses_approval,
    )
    if not session.announce(started):
        return
    recorder = Recorder(
        session.kept.cwd_bytes, prepared, session.derive, partial(session.report, call.id)
    )
    work.recorder = recorder
    if work.observer is not None:
        work.observer.begin()
    clock = time.perf_counter_ns()
    value, failure = _evaluate(session, work, prepared.program, recorder)
    dur_ns = time.perf_counter_ns() - clock
    if not plan.pure:
        session.kept.note_places()
    _finish(session, work, recorder, value, failure, dur_ns)


def _evaluate(
    session: Session, work: Submission, program: Any, recorder: Recorder
) -> tuple[Value, ErrorValue | None]:
    evaluator = session.evaluator
    evaluator.cancel = work.token
    groups, evaluator.groups = evaluator.groups, work.groups
    evaluator.tail = work.tail
    observer = session.desk.observer = work.observer
    evaluator.hooks = recorder if observer is None else observer.hooks(recorder)
    evaluator.repl = (
        session.kept.repl_names(work.call.caller) if observer is None else observer.names()
    )
    position: Position = "value" if work.params.position == "value" else "stmt"
    try:
        return evaluator.run_program(program, work.params.src, position), None
    except Raised as raised:
        return None, raised.error
    except Cancelled:
        return None, ErrorValue("cancelled", CANCELLED)
    except RecursionError:
        return None, ErrorValue("recursion_limit", "the program nests too deeply to be evaluated")
    except MemoryError as failure:
        return None, out_of_memory(failure).error
    finally:
        session.desk.observer = None
        work.over()
        evaluator.pending_exit = None
        evaluator.hooks = None
        evaluator.repl = None
        # Tasks that the submission started live on below the session.
        work.token.hand_over(evaluator.session_cancel)
        evaluator.cancel = evaluator.session_cancel
        evaluator.groups, evaluator.tail = groups, None
        if work.tail is not None:
            work.tail.finish()


def _budget(call: Call, params: ExecParams) -> Budget:
    return requested_budget(call.caller.budget, params.elide)


def requested_budget(default: Any, asked: Any) -> Budget:
    """The budgets in force: what the client asked for, below the ceilings (chapter 60 §6.1)."""
    max_bytes, raw = default.max_bytes, default.max_bytes_raw
    rows, items = default.max_rows, default.max_items
    if asked is not None:
        if asked.max_bytes is not None:
            max_bytes = raw = min(asked.max_bytes, default.hard_cap)
        rows = rows if asked.max_rows is None else asked.max_rows
        items = items if asked.max_items is None else asked.max_items
    return Budget(max_bytes=max_bytes, max_bytes_raw=raw, max_rows=rows, max_items=items)


@dataclass(slots=True)
class _Answer:
    """What becomes of a result: the body of the answer, and what is kept of it."""

    ok: bool
    number: int
    expired: list[int]
    stored: Value
    body: bytes
    ending: str
    status: int | None
    outputs: list[tuple[str, bytes | LazyBytes]]
    transcript: bytes = b""
    render: bytes = b""


def _answer_error(session: Session, error: ErrorValue) -> _Answer:
    outputs: list[tuple[str, bytes | LazyBytes]] = []
    if error.stderr:
        outputs.append(("stderr", error.stderr.encode("utf-8", "replace")))
    number, expired = session.kept.transcript.add(error, 256 + len(error.stderr or ""))
    return _Answer(
        ok=False,
        number=number,
        expired=expired,
        stored=error,
        body=raised_error(error, f"out:{number}").encode(),
        ending="cancelled" if error.code == "cancelled" else "raised",
        status=error.status,
        outputs=outputs,
    )


def _answer_value(session: Session, work: Submission, value: Value) -> _Answer:
    """Raises MemoryError before anything of the session has changed."""
    caller = work.call.caller
    encoded = encode(value)
    rendered = block(value)
    outputs: list[tuple[str, bytes | LazyBytes]] = [("value", encoded)]
    if rendered:
        outputs.append(("render", rendered.encode("utf-8", "replace")))
    if isinstance(value, Outcome):
        outputs.extend(outcome_outputs(value, empty_stdout=True))
    # Nobody else adds results, so the number of the next one is the number of this one.
    number = session.kept.transcript.next_number
    ref, uri = f"out:{number}", f"shoal://out/{number}"
    text = bound_render(rendered if caller.tty else strip_terminal(rendered), uri)
    text_json = _encode_json(text)
    value_json = elide(value, uri, _budget(work.call, work.params), tty=caller.tty)
    answer = _Answer(
        ok=True,
        number=number,
        expired=[],
        stored=value,
        body=b'{"ref":"%b","value":%b,"render":%b}' % (ref.encode(), value_json, text_json),
        ending=_ending(value),
        status=0,
        outputs=outputs,
        transcript=_transcript_payload(number, value),
        render=(
            b'{"$":"record","v":{"ref":{"$":"str","v":"%b"},"render":{"$":"str","v":%b}}}'
            % (ref.encode(), text_json)
        ),
    )
    _number, answer.expired = session.kept.transcript.add(value, len(encoded))
    session.kept.remember_result(caller, number)
    return answer


def _finish(
    session: Session,
    work: Submission,
    recorder: Recorder,
    value: Value,
    error: ErrorValue | None,
    dur_ns: int,
) -> None:
    if work.observer is not None:
        work.observer.end(value, error)
    if error is None:
        try:
            answer = _answer_value(session, work, value)
        except MemoryError as failure:
            # The value fits, what is made of it to be kept and shown does not.
            answer = _answer_error(session, out_of_memory(failure).error)
    else:
        answer = _answer_error(session, error)
    number = answer.number
    with lifted(), session.reporting, Parcel() as parcel:
        statements, undo = recorder.hand_over(parcel)
        # What tasks of it record from now on goes by itself.
        recorder.reporting = True
        session.finish(
            Finished(
                id=work.call.id,
                ok=answer.ok,
                body=parcel.content(answer.body),
                ending=answer.ending,
                out=number,
                dur_ns=dur_ns,
                status=answer.status,
                outputs=[Output(kind, packed(parcel, data)) for kind, data in answer.outputs],
                statements=statements,
                undo=undo,
                started=session.unannounced(),
                transcript=answer.transcript,
                render=answer.render,
                cells=parcel.content(session.kept.changes(number, answer.stored, answer.expired)),
                cwd=session.kept.cwd_bytes(),
                env_hash=session.kept.env_hash(),
            ),
            parcel.fds,
        )


def _ending(value: Value) -> str:
    if isinstance(value, Outcome) and not value.ok:
        return "signalled" if value.signal else "failed"
    return "value"


def _transcript_payload(number: int, value: Value) -> bytes:
    summary: dict[str, Any] = {"type": {"$": "str", "v": type_name(value)}}
    if isinstance(value, Outcome):
        summary["ok"] = {"$": "bool", "v": value.ok}
        summary["cmd"] = {"$": "str", "v": value.cmd}
    elif isinstance(value, Table):
        summary["n"] = {"$": "int", "v": len(value.rows)}
    elif type(value) is list:
        summary["n"] = {"$": "int", "v": len(value)}
    return _encode_json(
        {
            "$": "record",
            "v": {
                "n": {"$": "int", "v": number},
                "ref": {"$": "str", "v": f"out:{number}"},
                "summary": {"$": "record", "v": summary},
            },
        }
    )
