"""Methods of a channel handle (chapter 21 §14, chapter 30 §15).

Failure: arg_error and type_error for arguments, `timeout` and `channel_closed` from `take`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.errors import type_error
from worker.values.methods.arguments import ABSENT, Parameter, any_value, count
from worker.values.methods.registry import CHANNEL, Named, method
from worker.values.types import Duration, Record, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

HANDLE: Final = (CHANNEL,)


def timeout(value: Value) -> Duration:
    if type(value) is Duration and value.ns >= 0:
        return value
    raise type_error(f"expected a non-negative duration, found {type_name(value)}")


def _optional(name: str, pos: list[Value], named: Named | None) -> Value:
    """The one argument of `events` or `take`, by name or by position."""
    if named and name in named:
        return named[name]
    return pos[0] if pos else ABSENT


_PAYLOAD: Final = Parameter("value", "any", any_value, missing="emit expects a value to publish")
_SINCE: Final = Parameter("since", "int", count, default=ABSENT)
_TIMEOUT: Final = Parameter("timeout", "duration", timeout, default=ABSENT)


@method("emit", on=HANDLE, params=(_PAYLOAD,), result="null", doc="Publishes a value.")
def emit(ev: Evaluator, recv: Record, value: Value) -> Value:
    ev.channels.emit(recv["channel"], value)
    return None


@method("latest", on=HANDLE, result="value or null", doc="The newest payload.")
def latest(ev: Evaluator, recv: Record) -> Value:
    return ev.channels.latest(recv["channel"])


@method(
    "events",
    on=HANDLE,
    params=(_SINCE,),
    raw=True,
    result="stream of event records",
    doc="What the ring still holds, then live events.",
)
def events(ev: Evaluator, recv: Record, pos: list[Value], named: Named | None) -> Value:
    since = _optional("since", pos, named)
    return ev.channels.events(recv["channel"], None if since is ABSENT else count(since))


@method(
    "take",
    on=HANDLE,
    params=(_TIMEOUT,),
    raw=True,
    result="value",
    doc="Waits for the next event and gives its payload.",
)
def take(ev: Evaluator, recv: Record, pos: list[Value], named: Named | None) -> Value:
    limit = _optional("timeout", pos, named)
    limit_ns = None if limit is ABSENT else timeout(limit).ns
    return ev.channels.take(ev, recv["channel"], limit_ns)
