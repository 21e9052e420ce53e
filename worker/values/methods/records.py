"""Methods of record (chapter 21 §10). They need parentheses: a record's fields are its own.

Failure: type_error and arg_error in the words of the chapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.errors import type_error
from worker.values.methods.arguments import Parameter, any_value, text
from worker.values.methods.registry import TAKES_NOTHING, method
from worker.values.types import Record, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

RECORD: Final = ("record",)


def record_to_merge(value: Value) -> Record:
    if type(value) is dict:
        return value
    raise type_error(f"merge expects a record argument, found {type_name(value)}")


def field_name(value: Value) -> str:
    if type(value) is str:
        return value
    raise type_error("record contains expects str key")


@method("keys", on=RECORD, result="list of str", doc="The names of the fields, in order.")
def keys(ev: Evaluator, recv: Record) -> Value:
    return list(recv)


@method("values", on=RECORD, result="list", doc="The values of the fields, in order.")
def values(ev: Evaluator, recv: Record) -> Value:
    return list(recv.values())


@method("items", on=RECORD, result="list of [key, value]", doc="The fields as pairs, in order.")
def items(ev: Evaluator, recv: Record) -> Value:
    return [[key, value] for key, value in recv.items()]


_SET_KEY: Final = Parameter(
    "key", "str", text, missing=".set requires a key argument: .set(key, value)"
)
_SET_VALUE: Final = Parameter("value", "any", any_value)


@method(
    "set",
    on=RECORD,
    params=(_SET_KEY, _SET_VALUE),
    result="record",
    doc="A record with one field set; an existing field keeps its place.",
)
def set_(ev: Evaluator, recv: Record, key: str, value: Value) -> Value:
    return {**recv, key: value}


_MERGED: Final = Parameter("other", "record", record_to_merge)


@method(
    "merge",
    on=RECORD,
    params=(_MERGED,),
    result="record",
    doc="Both records in one; the argument wins, its new fields come last.",
)
def merge(ev: Evaluator, recv: Record, other: Record) -> Value:
    return {**recv, **other}


_GET_KEY: Final = Parameter("key", "str", any_value)
_DEFAULT: Final = Parameter("default", "any", any_value, default=None)


@method(
    "get",
    on=RECORD,
    params=(_GET_KEY, _DEFAULT),
    result="value or default",
    doc="A field's value, the default when there is no such field.",
)
def get(ev: Evaluator, recv: Record, key: Value, default: Value) -> Value:
    if type(key) is not str:
        raise type_error("get expects record+str or list+int")
    return recv.get(key, default)


_CONTAINED: Final = Parameter("key", "str", field_name)


@method(
    "contains",
    on=RECORD,
    params=(_CONTAINED,),
    result="bool",
    doc="Whether there is a field of that name.",
)
def contains(ev: Evaluator, recv: Record, key: str) -> Value:
    return key in recv


@method("len", "count", on=RECORD, result="int", doc="Number of fields.", refuses=TAKES_NOTHING)
def length(ev: Evaluator, recv: Record) -> Value:
    return len(recv)


@method(
    "is_empty", on=RECORD, result="bool", doc="Whether there are no fields.", refuses=TAKES_NOTHING
)
def is_empty(ev: Evaluator, recv: Record) -> Value:
    return not recv
