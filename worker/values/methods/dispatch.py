"""Which method a call means (chapter 21 §1.2), and what an unknown one is told.

The receivers that stand for something else are resolved first: a content reference becomes bytes, a
glob the list of its matches, an outcome its `out`, a stream without such a method the list of its
items. What is left is one lookup by receiver type and name.

Failure: `field_missing` with a hint for a name no method has, `type_error` in the method's own
words for a receiver it does not take; argument checks come before either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.errors import Raised, field_missing, raised
from worker.evaluate.callables import is_callable
from worker.evaluate.channels import handle_name
from worker.evaluate.streams import Stream, sinks
from worker.memory import release
from worker.values.access import decoded_out
from worker.values.content import resident
from worker.values.methods.blobs import REFERENCE_LENGTH, resolve_reference
from worker.values.methods.globs import expanded
from worker.values.methods.hints import method_hint
from worker.values.methods.registry import (
    BY_TYPE,
    CHANNEL,
    CONTENT,
    WRONG_RECEIVER,
    Method,
    Named,
    reader_of,
    wrong_receiver,
)
from worker.values.methods.universal import feed_field
from worker.values.types import (
    MISSING,
    DateTime,
    Duration,
    Glob,
    LazyBytes,
    Outcome,
    Path,
    Range,
    Size,
    Table,
    TimeOfDay,
    Value,
    type_name,
)

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# Methods of the plain types, by exact type: no other rule than the lookup applies to them. Strings
# and records are looked at first; the remaining types go through `_resolve`.
_PLAIN: Final[dict[type, dict[str, Method]]] = {
    list: BY_TYPE["list"],
    int: BY_TYPE["int"],
    float: BY_TYPE["float"],
    bool: BY_TYPE["bool"],
    Table: BY_TYPE["table"],
    Range: BY_TYPE["range"],
    bytes: BY_TYPE["bytes"],
    type(None): BY_TYPE["null"],
    Path: BY_TYPE["path"],
    Size: BY_TYPE["size"],
    Duration: BY_TYPE["duration"],
    DateTime: BY_TYPE["datetime"],
    TimeOfDay: BY_TYPE["time"],
}
_STR: Final = BY_TYPE["str"]
_RECORD: Final = BY_TYPE["record"]
_LIST: Final = BY_TYPE["list"]

# What works on the receiver as it stands, before it is taken for something else.
_AS_IT_IS: Final = frozenset(("tap", "also", "pick"))


def call_method(
    ev: Evaluator,
    recv: Value,
    name: str,
    pos: list[Value],
    named: Named | None = None,
) -> Value:
    """The value of `recv.name(pos..., named...)`."""
    kind = type(recv)
    table = _PLAIN.get(kind)
    try:
        if table is None:
            if kind is str and (len(recv) != REFERENCE_LENGTH or not recv.startswith("val:")):
                table = _STR
            elif kind is dict and len(recv) != 1 and name not in recv:
                table = _RECORD
            else:
                return _resolve(ev, recv, name, pos, named)
        found = table.get(name)
        if found is None:
            raise _unknown(recv, name, pos, named)
        return found.call(ev, recv, pos, named)
    except (MemoryError, OverflowError) as failure:
        # The elements of an immense range, for example; the session goes on.
        release(failure)
        raise raised("custom", f".{name}: the result does not fit into memory") from None


def field_method(ev: Evaluator, recv: Value, name: str) -> Value:
    """The value of `recv.name` as a method without arguments; MISSING when there is none."""
    if name == "feed":
        raise feed_field()
    try:
        return call_method(ev, recv, name, [], None)
    except _UnknownMethod:
        return MISSING


class _UnknownMethod(Raised):
    """No method has this name: the field form then reports the missing field instead."""

    __slots__ = ()


def _unknown(recv: Value, name: str, pos: list[Value], named: Named | None) -> Exception:
    """The error for a name the receiver's type does not have."""
    kind = type_name(recv)
    if name in WRONG_RECEIVER:
        declared = reader_of(name)
        if declared is not None and not declared.raw:
            declared.read(pos, named)
        return wrong_receiver(name, kind)
    error = field_missing(f"unknown method `.{name}` on {kind}", hint=method_hint(kind, name))
    return _UnknownMethod(error.error)


def _general(ev: Evaluator, recv: Value, name: str, pos: list[Value], named: Named | None) -> Value:
    found = BY_TYPE[type_name(recv)].get(name)
    if found is None:
        raise _unknown(recv, name, pos, named)
    return found.call(ev, recv, pos, named)


def _resolve(ev: Evaluator, recv: Value, name: str, pos: list[Value], named: Named | None) -> Value:
    """The lookup order for receivers that need more than their type."""
    kind = type(recv)
    if kind is str:
        stored = resolve_reference(ev, recv)
        if stored is None:
            return _general(ev, recv, name, pos, named)
        return _stored(ev, stored, name, pos, named)
    if kind is dict:
        return _record(ev, recv, name, pos, named)
    if name in _AS_IT_IS:
        # A glob is tapped as the list it stands for.
        target = expanded(ev, recv) if kind is Glob and name != "pick" else recv
        return _general(ev, target, name, pos, named)
    if kind is Outcome:
        own = BY_TYPE["outcome"].get(name)
        if own is not None:
            return own.call(ev, recv, pos, named)
        return call_method(ev, decoded_out(recv), name, pos, named)
    if kind is Glob:
        own = BY_TYPE["glob"].get(name)
        if own is not None:
            return own.call(ev, recv, pos, named)
        return call_method(ev, expanded(ev, recv), name, pos, named)
    if kind is Stream:
        return _stream(ev, recv, name, pos, named)
    if kind is LazyBytes:
        return _stored(ev, recv, name, pos, named)
    return _general(ev, recv, name, pos, named)


def _record(ev: Evaluator, recv: Value, name: str, pos: list[Value], named: Named | None) -> Value:
    if name == "pick":
        return _general(ev, recv, name, pos, named)
    if handle_name(recv) is not None:
        own = BY_TYPE[CHANNEL].get(name)
        if own is not None:
            return own.call(ev, recv, pos, named)
    held = recv.get(name, MISSING)
    if held is not MISSING and is_callable(held):
        return ev.call(held, pos, named)
    return _general(ev, recv, name, pos, named)


def _stored(
    ev: Evaluator, recv: LazyBytes, name: str, pos: list[Value], named: Named | None
) -> Value:
    """Content-addressed bytes: from the metadata where that is enough, else loaded once."""
    own = BY_TYPE[CONTENT].get(name)
    if own is not None:
        return own.call(ev, recv, pos, named)
    found = BY_TYPE["bytes"].get(name)
    if found is None:
        raise _unknown(recv, name, pos, named)
    arguments = pos if found.raw else found.read(pos, named)
    return found.body(ev, resident(recv), *arguments)


def _stream(ev: Evaluator, recv: Stream, name: str, pos: list[Value], named: Named | None) -> Value:
    own = BY_TYPE["stream"].get(name)
    if own is not None:
        return own.call(ev, recv, pos, named)
    recv.need_end()
    found = _LIST.get(name)
    if found is None:
        raise _unknown([], name, pos, named)
    # Bad arguments leave the stream as it is.
    if found.raw:
        return found.body(ev, sinks.collect(ev, recv), pos, named)
    arguments = found.read(pos, named)
    return found.body(ev, sinks.collect(ev, recv), *arguments)
