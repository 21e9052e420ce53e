"""Methods of stream: combinators and sinks (chapter 21 §13, chapter 30 §14).

Arguments are checked before anything is consumed. A name that is none of these collects a bounded
stream and goes on with the list: see `dispatch`.

Failure: `stream_consumed`, `stream_unbounded`, and the argument errors of the chapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.errors import arg_error, type_error
from worker.evaluate.channels import handle_name
from worker.evaluate.streams import Stream, sinks
from worker.evaluate.streams.combinators import (
    CountWindow,
    Dedupe,
    Distinct,
    Enumerate,
    FlatMap,
    Map,
    Scan,
    Take,
    TakeUntil,
    TimeWindow,
    Where,
)
from worker.evaluate.streams.core import Source, consumed
from worker.evaluate.streams.tee import tee as split
from worker.evaluate.streams.timed import Debounce, Merge, TakeUntilStream, Throttle, Zip
from worker.values.methods.arguments import (
    CALLBACK,
    FOLDER,
    FORKS,
    INIT,
    PREDICATE,
    TAKEN,
    TARGET,
    Parameter,
    any_value,
    count,
    gap,
)
from worker.values.methods.registry import TAKES_NOTHING, WRITES_TARGET, method
from worker.values.types import Duration, Value, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.evaluate.evaluator import Evaluator

STREAM: Final = ("stream",)


def window_size(value: Value) -> int | Duration:
    if type(value) is int and value > 0:
        return value
    if type(value) is Duration and value.ns >= 0:
        return value
    raise arg_error("window expects a positive count or a duration")


def partner(name: str) -> Callable[[Value], Stream]:
    def read(value: Value) -> Stream:
        if type(value) is Stream:
            return value
        raise type_error(f"{name} expects a stream, found {type_name(value)}")

    return read


def _both(recv: Stream, other: Stream) -> tuple[Source, Source]:
    """Consume two streams, or neither."""
    recv.check_unused()
    other.check_unused()
    if recv is other:
        raise consumed()
    return recv.consume(), other.consume()


@method(
    "map", on=STREAM, params=(CALLBACK,), result="stream", doc="The results of `f` for every item."
)
def map_(ev: Evaluator, recv: Stream, f: Value) -> Value:
    return Stream(Map(recv.consume(), f), "value", recv.bounded)


@method(
    "where",
    "filter",
    on=STREAM,
    params=(PREDICATE,),
    result="stream",
    doc="The items for which `f` holds.",
)
def where(ev: Evaluator, recv: Stream, f: Value) -> Value:
    return Stream(Where(recv.consume(), f), recv.label, recv.bounded)


@method(
    "scan", on=STREAM, params=(INIT, FOLDER), result="stream", doc="Every accumulator of a fold."
)
def scan(ev: Evaluator, recv: Stream, init: Value, f: Value) -> Value:
    return Stream(Scan(recv.consume(), init, f), "value", recv.bounded)


@method(
    "flat_map",
    on=STREAM,
    params=(CALLBACK,),
    result="stream",
    doc="The items of all streams and collections that `f` gives.",
)
def flat_map(ev: Evaluator, recv: Stream, f: Value) -> Value:
    return Stream(FlatMap(recv.consume(), f), "value", recv.bounded)


@method("take", on=STREAM, params=(TAKEN,), result="stream, bounded", doc="The first n items.")
def take(ev: Evaluator, recv: Stream, n: int) -> Value:
    return Stream(Take(recv.consume(), n), recv.label, bounded=True)


_LIMIT: Final = Parameter("limit", "x -> bool, or stream", any_value)


@method(
    "take_until",
    on=STREAM,
    params=(_LIMIT,),
    result="stream",
    doc="Until a predicate holds, or until another stream gives an item.",
)
def take_until(ev: Evaluator, recv: Stream, limit: Value) -> Value:
    if type(limit) is Stream:
        return Stream(TakeUntilStream(*_both(recv, limit)), recv.label, recv.bounded)
    return Stream(TakeUntil(recv.consume(), limit), recv.label, recv.bounded)


@method(
    "dedupe",
    on=STREAM,
    result="stream",
    doc="Drops an item equal to the one before.",
    refuses=TAKES_NOTHING,
)
def dedupe(ev: Evaluator, recv: Stream) -> Value:
    return Stream(Dedupe(recv.consume()), recv.label, recv.bounded)


@method(
    "distinct",
    on=STREAM,
    result="stream",
    doc="Drops every item seen before.",
    refuses=TAKES_NOTHING,
)
def distinct(ev: Evaluator, recv: Stream) -> Value:
    return Stream(Distinct(recv.consume()), recv.label, recv.bounded)


_GAP: Final = Parameter("d", "duration", gap)


@method(
    "debounce",
    on=STREAM,
    params=(_GAP,),
    result="stream",
    doc="The newest item once `d` has passed without another.",
)
def debounce(ev: Evaluator, recv: Stream, d: Duration) -> Value:
    return Stream(Debounce(recv.consume(), d.ns), recv.label, recv.bounded)


@method(
    "throttle",
    on=STREAM,
    params=(_GAP,),
    result="stream",
    doc="An item, then none until `d` has passed.",
)
def throttle(ev: Evaluator, recv: Stream, d: Duration) -> Value:
    return Stream(Throttle(recv.consume(), d.ns), recv.label, recv.bounded)


_WINDOW: Final = Parameter("size", "int or duration", window_size)


@method(
    "window",
    on=STREAM,
    params=(_WINDOW,),
    result="stream of lists",
    doc="The last n items, or those of the last `d`, for every item.",
)
def window(ev: Evaluator, recv: Stream, size: int | Duration) -> Value:
    source = recv.consume()
    stage = CountWindow(source, size) if isinstance(size, int) else TimeWindow(source, size.ns)
    return Stream(stage, "list", recv.bounded)


_BUFFERED: Final = Parameter("n", "int", count, default=1)


@method("buffer", on=STREAM, params=(_BUFFERED,), result="the same stream", doc="No effect.")
def buffer(ev: Evaluator, recv: Stream, n: int) -> Value:
    recv.check_unused()
    return recv


@method(
    "enumerate",
    on=STREAM,
    result="stream of [index, item]",
    doc="Items with their numbers.",
    refuses=TAKES_NOTHING,
)
def enumerate_(ev: Evaluator, recv: Stream) -> Value:
    return Stream(Enumerate(recv.consume()), "list", recv.bounded)


_MERGED: Final = Parameter("other", "stream", partner("merge"))
_ZIPPED: Final = Parameter("other", "stream", partner("zip"))


@method("merge", on=STREAM, params=(_MERGED,), result="stream", doc="The items of both streams.")
def merge(ev: Evaluator, recv: Stream, other: Stream) -> Value:
    return Stream(Merge(*_both(recv, other)), "value", recv.bounded and other.bounded)


@method(
    "zip",
    on=STREAM,
    params=(_ZIPPED,),
    result="stream of [left, right]",
    doc="Pairs of items, until one stream ends.",
)
def zip_(ev: Evaluator, recv: Stream, other: Stream) -> Value:
    return Stream(Zip(*_both(recv, other)), "list", recv.bounded or other.bounded)


@method(
    "tee",
    on=STREAM,
    params=(FORKS,),
    result="list of streams",
    doc="n streams, each with the items of this one.",
)
def tee(ev: Evaluator, recv: Stream, forks: int) -> Value:
    if forks == 0:
        raise arg_error("tee count must be positive")
    return split(recv, forks)


@method(
    "collect", on=STREAM, result="list", doc="All items of a bounded stream.", refuses=TAKES_NOTHING
)
def collect(ev: Evaluator, recv: Stream) -> Value:
    return sinks.collect(ev, recv)


@method("each", on=STREAM, params=(CALLBACK,), result="null", doc="Calls `f` for every item.")
def each(ev: Evaluator, recv: Stream, f: Value) -> Value:
    sinks.each(ev, recv, f)
    return None


@method(
    "save",
    "append",
    on=STREAM,
    params=(TARGET,),
    result="path",
    doc="Appends one line per item to a file, as they arrive.",
    effects=WRITES_TARGET,
)
def save(ev: Evaluator, recv: Stream, target: str) -> Value:
    return sinks.append_lines(ev, recv, target)


def channel_to_fill(value: Value) -> str:
    name = handle_name(value)
    if name is None:
        raise arg_error(f'into expects a channel: .into(channel("name")), found {type_name(value)}')
    return name


_FILLED: Final = Parameter("channel", "channel handle", channel_to_fill)


@method("into", on=STREAM, params=(_FILLED,), result="null", doc="Emits every item on a channel.")
def into(ev: Evaluator, recv: Stream, name: str) -> Value:
    sinks.into(ev, recv, name)
    return None


@method("render", on=STREAM, result="null", doc="Shows every item.")
def render(ev: Evaluator, recv: Stream) -> Value:
    sinks.render(ev, recv)
    return None
