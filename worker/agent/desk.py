"""The agent part of a session worker: the calls it serves, and the turn that runs.

Failure: a turn's failure is its answer; a refused question or an unexpected exception makes it
failed without ending the worker.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipc.agent_events import TurnEnd, TurnOrder
from ipc.messages import Call
from worker.agent import files, shell
from worker.agent.observer import Observer
from worker.agent.turn import Refused, Turn, TurnCancelled, TurnFailed
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.agent.external import Program
    from worker.session import Session

_encode: Final = msgspec.json.Encoder().encode


class Desk:
    # `turn` is the running one, set by its thread and read by the others. `program` is the external
    # agent program of the session; `known_calls` are tool call ids given out so far.

    def __init__(self, session: Session) -> None:
        self.session = session
        self.turn: Turn | None = None
        self.observer: Observer | None = None
        self.program: Program | None = None
        self.known_calls: set[str] = set()

    def observe(self, call: Call) -> Observer | None:
        """Who watches a submission: the tool call it is."""
        turn = self.turn
        if not call.caller.tool_call or turn is None:
            return None
        return turn.observers.get(call.caller.tool_call)

    def show(self, value: Value) -> None:
        """The sink of the session."""
        observer = self.observer
        if observer is not None:
            observer.sink(value)

    def cancel(self, call_id: int) -> None:
        turn = self.turn
        if turn is not None and turn.call_id == call_id:
            turn.cancel()

    def close(self) -> None:
        if self.program is not None:
            self.program.close()


def run_turn(session: Session, call: Call) -> bytes:
    """Serve `agent.turn`: run it to its end."""
    order = msgspec.json.decode(call.params, type=TurnOrder)
    turn = Turn(session, call.id, order)
    session.desk.turn = turn
    try:
        end = _provider(order.provider.kind)(turn)
    except TurnCancelled:
        end = TurnEnd("cancelled")
    except TurnFailed as failed:
        end = TurnEnd(error=str(failed))
    except Refused as refused:
        end = TurnEnd("cancelled") if turn.cancelled.is_set() else TurnEnd(error=str(refused))
    except Exception as error:  # noqa: BLE001 - one broken turn must not end the session
        traceback.print_exc(file=sys.stderr)
        end = TurnEnd(error=f"unexpected failure: {type(error).__name__}")
    turn.reporter.flush()
    turn.reporter.close()
    session.desk.turn = None
    return _encode(end)


def _provider(kind: str) -> Callable[[Turn], TurnEnd]:
    """The run function of a provider kind; the large ones are loaded when first used."""
    if kind == "openai":
        from worker.agent import openai

        return openai.run
    if kind == "acp":
        from worker.agent import external

        return external.run
    return shell.run


def start_program(session: Session, call: Call) -> bytes:
    """Serve `agent.start`: bring up the external program of the session."""
    from worker.agent import external

    return external.start(session, call.params)


CALLS: Final[dict[str, Callable[[Any, Call], bytes]]] = {
    "agent.turn": run_turn,
    "agent.attach": files.attach,
    "agent.start": start_program,
}
