"""Methods of list, table and range (chapter 21 §4), but for ordering and grouping.

Rows of a table are records, elements of a range are ints; the result of a transform is a list.
Receivers are never changed: a result may share elements, but not the list object, unless the method
gives back its receiver.

Failure: bodies raise type_error and arg_error in the words of the chapter; whatever a callback
raises goes through, and partial results are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from worker.errors import arg_error, overflow, raised, type_error
from worker.evaluate.streams import Stream
from worker.evaluate.streams.sources import finite
from worker.values.methods.arguments import (
    CALLBACK,
    FOLDER,
    FORKS,
    INIT,
    PREDICATE,
    TAKEN,
    Parameter,
    any_value,
    count,
    text,
)
from worker.values.methods.registry import COLLECTION, TAKES_NOTHING, Named, method
from worker.values.types import Range, Table, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

_TEE_MESSAGE: Final = "tee count must be positive"
_CHUNK_MESSAGE: Final = "chunk size must be positive"


def elements(recv: Value) -> Sequence[Value]:
    """The elements of a collection, without copying: the list itself, rows, or a lazy range."""
    kind = type(recv)
    if kind is list:
        return recv  # type: ignore[no-any-return]
    if kind is Table:
        return recv.rows  # type: ignore[no-any-return]
    return recv.python_range()  # type: ignore[no-any-return]


def collection(value: Value) -> Sequence[Value]:
    """The elements of a value that must be a collection: an argument, a result, an element."""
    kind = type(value)
    if kind is list or kind is Table or kind is Range:
        return elements(value)
    if kind is Stream:
        raise raised(
            "stream_consumed",
            "a stream must be collected with `.collect()` before this operation",
        )
    raise type_error(f"expected collection, found {type_name(value)}")


@method(
    "len", "count", on=COLLECTION, result="int", doc="Number of elements.", refuses=TAKES_NOTHING
)
def length(ev: Evaluator, recv: Value) -> Value:
    try:
        return len(elements(recv))
    except OverflowError:
        # Only a range can be longer than an int can say.
        raise overflow("integer overflow in the length of a range") from None


@method(
    "is_empty",
    on=COLLECTION,
    result="bool",
    doc="Whether there are no elements.",
    refuses=TAKES_NOTHING,
)
def is_empty(ev: Evaluator, recv: Value) -> Value:
    return not elements(recv)


_END_COUNT: Final = Parameter("n", "int", count, default=0)


@method(
    "first",
    on=COLLECTION,
    params=(_END_COUNT,),
    raw=True,
    result="element, null or list",
    doc="The first element, or with `n` a list of the first n.",
)
def first(ev: Evaluator, recv: Value, pos: list[Value], named: Named | None) -> Value:
    items = elements(recv)
    if pos or named:
        return list(items[: count(pos[0]) if pos else 0])
    return items[0] if items else None


@method(
    "last",
    on=COLLECTION,
    params=(_END_COUNT,),
    raw=True,
    result="element, null or list",
    doc="The last element, or with `n` a list of the last n.",
)
def last(ev: Evaluator, recv: Value, pos: list[Value], named: Named | None) -> Value:
    items = elements(recv)
    if pos or named:
        kept = count(pos[0]) if pos else 0
        return list(items[-kept:]) if kept else []
    return items[-1] if items else None


@method(
    "collect",
    on=COLLECTION,
    result="list, or the same table",
    doc="The elements as a list; a table stays a table.",
)
def collect(ev: Evaluator, recv: Value) -> Value:
    return list(recv.python_range()) if type(recv) is Range else recv


@method(
    "stream",
    on=COLLECTION,
    result="stream",
    doc="A bounded stream of the elements.",
    refuses=TAKES_NOTHING,
)
def stream(ev: Evaluator, recv: Value) -> Value:
    return finite(elements(recv))


@method(
    "tee",
    on=COLLECTION,
    params=(FORKS,),
    result="list of streams",
    doc="n bounded streams, each of all elements.",
)
def tee(ev: Evaluator, recv: Value, forks: int) -> Value:
    if forks == 0:
        raise arg_error(_TEE_MESSAGE)
    return [finite(elements(recv)) for _ in range(forks)]


@method(
    "map",
    on=COLLECTION,
    params=(CALLBACK,),
    result="list",
    doc="The results of `f` for every element.",
)
def map_(ev: Evaluator, recv: Value, f: Value) -> Value:
    call = ev.callback(f)
    return [call(item) for item in elements(recv)]


@method(
    "where",
    "filter",
    on=COLLECTION,
    params=(PREDICATE,),
    result="list",
    doc="The elements for which `f` holds.",
)
def where(ev: Evaluator, recv: Value, f: Value) -> Value:
    call = ev.callback(f)
    holds = ev.condition
    return [
        item
        for item in elements(recv)
        if (verdict := call(item)) is True or (verdict is not False and holds(verdict))
    ]


@method(
    "each", on=COLLECTION, params=(CALLBACK,), result="null", doc="Calls `f` for every element."
)
def each(ev: Evaluator, recv: Value, f: Value) -> Value:
    call = ev.callback(f)
    for item in elements(recv):
        call(item)
    return None


@method(
    "reduce",
    "fold",
    on=COLLECTION,
    params=(INIT, FOLDER),
    result="the last accumulator",
    doc="Folds the elements from the left, starting with `init`.",
)
def reduce(ev: Evaluator, recv: Value, init: Value, f: Value) -> Value:
    call = ev.callback(f)
    accumulator = init
    for item in elements(recv):
        accumulator = call(accumulator, item)
    return accumulator


@method(
    "any",
    on=COLLECTION,
    params=(PREDICATE,),
    result="bool",
    doc="Whether `f` holds for some element; stops at the first.",
)
def any_(ev: Evaluator, recv: Value, f: Value) -> Value:
    call = ev.callback(f)
    for item in elements(recv):
        verdict = call(item)
        if verdict is True or (verdict is not False and ev.condition(verdict)):
            return True
    return False


@method(
    "all",
    on=COLLECTION,
    params=(PREDICATE,),
    result="bool",
    doc="Whether `f` holds for every element; stops at the first that fails.",
)
def all_(ev: Evaluator, recv: Value, f: Value) -> Value:
    call = ev.callback(f)
    for item in elements(recv):
        verdict = call(item)
        if verdict is False or (verdict is not True and not ev.condition(verdict)):
            return False
    return True


@method(
    "find",
    on=COLLECTION,
    params=(PREDICATE,),
    result="element or null",
    doc="The first element for which `f` holds.",
)
def find(ev: Evaluator, recv: Value, f: Value) -> Value:
    call = ev.callback(f)
    for item in elements(recv):
        verdict = call(item)
        if verdict is True or (verdict is not False and ev.condition(verdict)):
            return item
    return None


@method(
    "flat_map",
    on=COLLECTION,
    params=(CALLBACK,),
    result="list",
    doc="The elements of all collections that `f` gives.",
)
def flat_map(ev: Evaluator, recv: Value, f: Value) -> Value:
    call = ev.callback(f)
    joined: list[Value] = []
    for item in elements(recv):
        joined.extend(collection(call(item)))
    return joined


@method(
    "flatten",
    on=COLLECTION,
    result="list",
    doc="One level of nesting removed; every element must be a collection.",
)
def flatten(ev: Evaluator, recv: Value) -> Value:
    return list(chain.from_iterable([collection(item) for item in elements(recv)]))


@method("reverse", on=COLLECTION, result="list", doc="The elements in reverse order.")
def reverse(ev: Evaluator, recv: Value) -> Value:
    return list(elements(recv)[::-1])


@method("enumerate", on=COLLECTION, result="list", doc="`[index, element]` pairs from 0.")
def enumerate_(ev: Evaluator, recv: Value) -> Value:
    return [[index, item] for index, item in enumerate(elements(recv))]


@method("take", on=COLLECTION, params=(TAKEN,), result="list", doc="The first n elements.")
def take(ev: Evaluator, recv: Value, n: int) -> Value:
    return list(elements(recv)[:n])


@method("skip", on=COLLECTION, params=(TAKEN,), result="list", doc="All but the first n elements.")
def skip(ev: Evaluator, recv: Value, n: int) -> Value:
    return list(elements(recv)[n:])


_CHUNK_SIZE: Final = Parameter("n", "int", count, missing=_CHUNK_MESSAGE)


@method(
    "chunks",
    on=COLLECTION,
    params=(_CHUNK_SIZE,),
    result="list of lists",
    doc="Lists of n elements; the last one may be shorter.",
)
def chunks(ev: Evaluator, recv: Value, n: int) -> Value:
    if n == 0:
        raise arg_error(_CHUNK_MESSAGE)
    items = elements(recv)
    return [list(items[start : start + n]) for start in range(0, len(items), n)]


_OTHER: Final = Parameter("other", "list, table or range", collection)


@method(
    "zip",
    on=COLLECTION,
    params=(_OTHER,),
    result="list",
    doc="`[left, right]` pairs, as many as the shorter side has.",
)
def zip_(ev: Evaluator, recv: Value, other: Sequence[Value]) -> Value:
    return [[left, right] for left, right in zip(elements(recv), other, strict=False)]


_SEPARATOR: Final = Parameter("sep", "str", text, default="")


@method(
    "join",
    on=COLLECTION,
    params=(_SEPARATOR,),
    result="str",
    doc="The elements, all str, as one str.",
)
def join(ev: Evaluator, recv: Value, separator: str) -> Value:
    items = elements(recv)
    for item in items:
        if type(item) is not str:
            raise type_error(f"join expects str elements, found {type_name(item)}")
    return separator.join(items)


_INDEX: Final = Parameter("index", "int", any_value)
_DEFAULT: Final = Parameter("default", "any", any_value, default=None)


@method(
    "get",
    on=("list",),
    params=(_INDEX, _DEFAULT),
    result="element or default",
    doc="The element at an index, negative from the end; never fails for a range.",
)
def get(ev: Evaluator, recv: Value, index: Value, default: Value) -> Value:
    if type(index) is not int:
        raise type_error("get expects record+str or list+int")
    return recv[index] if -len(recv) <= index < len(recv) else default
