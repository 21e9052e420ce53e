"""Methods of every receiver: tap, also, json, save, append, pick (chapter 21 §3).

`feed` is an expression form of the evaluator; here it is only the error of its field form.

Failure: what the callback raises; `custom` for writing; `arg_error` for `pick` without a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.errors import arg_error, type_error
from worker.values.content import resident
from worker.values.json_codec import to_json
from worker.values.methods.arguments import CALLBACK, TARGET
from worker.values.methods.files import write_file
from worker.values.methods.registry import CONTENT, EVERY, WRITES_TARGET, Named, method
from worker.values.types import LazyBytes, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# Outcomes, globs and streams have been replaced by what they stand for before these are looked up.
_WRITABLE = tuple(name for name in EVERY if name not in ("stream", "outcome", "glob"))


@method(
    "tap",
    "also",
    on=(*EVERY, CONTENT),
    params=(CALLBACK,),
    result="the receiver",
    doc="Calls `f` with the receiver, whose value goes on unchanged.",
)
def tap(ev: Evaluator, recv: Value, f: Value) -> Value:
    ev.callback(f)(recv)
    return recv


@method("json", on=(*_WRITABLE, CONTENT), result="str", doc="Compact JSON text.")
def json(ev: Evaluator, recv: Value) -> Value:
    return to_json(resident(recv) if type(recv) is LazyBytes else recv)


def file_bytes(recv: Value) -> bytes:
    """What `save` writes: text and bytes as they are, anything else as compact JSON."""
    kind = type(recv)
    if kind is str:
        return recv.encode()  # type: ignore[no-any-return]
    if kind is bytes:
        return recv  # type: ignore[no-any-return]
    return to_json(recv).encode()


@method(
    "save",
    on=_WRITABLE,
    params=(TARGET,),
    result="the receiver",
    doc="Writes the value to a file that is created or truncated.",
    effects=WRITES_TARGET,
)
def save(ev: Evaluator, recv: Value, target: str) -> Value:
    write_file(ev, target, file_bytes(recv), append=False)
    return recv


@method(
    "append",
    on=_WRITABLE,
    params=(TARGET,),
    result="the receiver",
    doc="Writes the value at the end of a file that is created when missing.",
    effects=WRITES_TARGET,
)
def append(ev: Evaluator, recv: Value, target: str) -> Value:
    write_file(ev, target, file_bytes(recv), append=True)
    return recv


@method(
    "pick",
    on=(*EVERY, CONTENT),
    raw=True,
    result="the chosen value, or a list with multi",
    doc="Lets a person choose at a terminal.",
)
def pick(ev: Evaluator, recv: Value, pos: list[Value], named: Named | None) -> Value:
    # Evaluators live in session workers, whose standard streams are never a terminal.
    raise arg_error("pick needs a terminal")


def feed_field() -> Exception:
    """`v.feed` without parentheses."""
    return type_error(".feed needs a command to feed", hint="write `.feed(cmd args)`")
