"""Binding arguments to the parameters of a closure (chapter 30 §6.1, §6.2).

Failure: `arg_error` for too many, unknown and missing arguments, and for elements of a `list<T>`
parameter that do not parse, in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.errors import Raised, raised
from worker.evaluate.callables import Closure
from worker.evaluate.code import Frame
from worker.evaluate.scopes import Cell
from worker.language import ast
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


def type_text(ref: ast.TypeRef) -> str:
    """A declared type as the conversions of worker.values.convert read it: `list<int>`, `str`. A
    trailing `?` means nothing (chapter 20 §5.1)."""
    if not ref.args:
        return ref.name
    return f"{ref.name}<{', '.join(type_text(arg) for arg in ref.args)}>"


def element_type(ref: ast.TypeRef | None) -> str | None:
    """The T of a `list<T>` whose string elements convert, None when nothing does."""
    if ref is None or ref.name != "list" or not ref.args or ref.args[0].name == "str":
        return None
    return type_text(ref.args[0])


def too_many(expected: int, got: int) -> Raised:
    noun = "argument" if expected == 1 else "arguments"
    return raised("arg_error", f"expected {expected} {noun}, got {got}")


def bind(
    ev: Evaluator, closure: Closure, pos: list[Value], named: dict[str, Value] | None
) -> Frame:
    """A frame for one call, with parameters and rest filled and defaults evaluated in it.

    Call with the depth of the callee already counted: defaults belong to its scope.
    """
    code = closure.code
    count = len(code.params)
    if len(pos) > count and code.rest is None:
        raise too_many(count, len(pos))
    if named:
        known = {param.name for param in code.params}
        for name in named:
            if name not in known:
                raise raised("arg_error", f"unknown argument `{name}`")
    frame: Frame = [ev, closure.captured, *code.parameters, *code.padding]
    for slot, name in code.boxed:
        frame[slot] = Cell(name)
    for index, param in enumerate(code.params):
        if named and param.name in named:
            value = named[param.name]
        elif index < len(pos):
            value = pos[index]
        elif param.default is not None:
            value = param.default(frame)
        else:
            raise raised("arg_error", f"missing argument `{param.name}`")
        if param.element is not None and type(value) is list:
            value = convert_elements(ev, value, param.element)
        _fill(frame, param.slot, value)
    if code.rest is not None:
        _fill(frame, code.rest.slot, pos[count:])
    return frame


def _fill(frame: Frame, slot: int, value: Value) -> None:
    content = frame[slot]
    if type(content) is Cell:
        content.v = value
    else:
        frame[slot] = value


def convert_elements(ev: Evaluator, items: list[Value], element: str) -> list[Value]:
    """String elements of a list converted to the declared element type."""
    from worker.values.convert import coerce_word

    return [coerce_word(item, element, ev.cwd) if type(item) is str else item for item in items]
