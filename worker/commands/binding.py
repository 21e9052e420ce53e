"""Command words bound to the parameters of a function (chapter 30 §6.3, chapter 20 §5.1).

`bind_words` turns the arguments of a command-form call into positional and named values for the
function's ordinary binding, which checks arity and fills defaults. Here flags find their values,
globs expand or stay whole as the parameter wants them, and strings convert to declared types.

Failure: `arg_error` for a flag without its value and for a word that does not convert, with the
span of the word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from worker.commands.arguments import Argument, Role, expand_glob
from worker.errors import Raised, raised
from worker.evaluate.binding import type_text
from worker.language import ast
from worker.values.convert import coerce_word, list_element_type
from worker.values.types import MISSING, Glob, Value

if TYPE_CHECKING:
    from worker.evaluate.callables import Closure
    from worker.evaluate.evaluator import Evaluator

HELP_FLAG: Final = "help"


def wants_help(items: Sequence[Argument]) -> bool:
    """Whether `--help` stands anywhere among the arguments."""
    return any(item.role is Role.LONG_FLAG and item.name == HELP_FLAG for item in items)


def signature(name: str, closure: Closure) -> str:
    """`name(p: type, q, ...rest) -> ret`; types by their base name only."""
    code = closure.code
    parts = [_declaration(param.name, param.type) for param in code.params]
    if code.rest is not None:
        parts.append("..." + _declaration(code.rest.name, code.rest.type))
    text = f"{name}({', '.join(parts)})"
    result = getattr(code.node, "ret", None)
    return text if result is None else f"{text} -> {result.name}"


def _declaration(name: str, type_ref: ast.TypeRef | None) -> str:
    return name if type_ref is None else f"{name}: {type_ref.name}"


def bind_words(
    ev: Evaluator, closure: Closure, items: Sequence[Argument]
) -> tuple[list[Value], dict[str, Value]]:
    """Positional and named values for the call; items come unexpanded, in source order."""
    return _Binder(ev, closure).bind(items)


class _Binder:
    # `_named` collects the flags of one call before the other arguments are placed.

    def __init__(self, ev: Evaluator, closure: Closure) -> None:
        code = closure.code
        self._ev = ev
        self._slots = [_declared(param.type) for param in code.params]
        self._types = {param.name: _declared(param.type) for param in code.params}
        self._names = [param.name for param in code.params]
        self._rest = None if code.rest is None else _declared(code.rest.type)
        self._named: dict[str, Value] = {}

    def bind(self, items: Sequence[Argument]) -> tuple[list[Value], dict[str, Value]]:
        loose: list[Argument] = []
        waiting = list(reversed(items))
        while waiting:
            item = waiting.pop()
            if item.role is Role.LONG_FLAG:
                self._flag(item, waiting)
            else:
                loose.append(item)
        positional: list[Value] = []
        for item in loose:
            self._place(item, positional)
        return positional, self._named

    def _flag(self, item: Argument, waiting: list[Argument]) -> None:
        """Bind one long flag; `waiting` are the arguments after it, the next one last."""
        declared = self._types.get(item.name)
        if item.value is not MISSING:
            value = self._converted(item.value, declared, item)
        elif declared is None or _base(declared) == "bool":
            value = True
        elif not waiting or waiting[-1].role is Role.LONG_FLAG:
            raise raised("arg_error", f"{item.spelling} requires a value", span=item.span)
        else:
            word = waiting.pop()
            value = self._converted(_text_or_value(word), declared, word)
        # The first of several flags of one name counts.
        self._named.setdefault(item.name, value)

    def _place(self, item: Argument, positional: list[Value]) -> None:
        """Add a positional argument, or what its glob matches, to the next free slots."""
        value = _text_or_value(item)
        index = len(positional)
        fixed = index < len(self._slots)
        declared = self._slots[index] if fixed else _element(self._rest)
        if fixed and self._names[index] in self._named:
            # The slot was given by name; the word stays unused and unconverted.
            declared = None
        if type(value) is not Glob or not item.glob_word:
            positional.append(self._converted(value, declared, item))
        elif declared is not None and _base(declared) == "glob":
            positional.append(value)
        else:
            matches = expand_glob(self._ev, value, item.span)
            if fixed and declared is not None and list_element_type(declared) is not None:
                if matches:
                    positional.append(matches)
            else:
                positional.extend(matches)

    def _converted(self, value: Value, declared: str | None, item: Argument) -> Value:
        if declared is None or type(value) is not str:
            return value
        try:
            return coerce_word(value, declared, self._ev.cwd)
        except Raised as error:
            raise error.at(item.span) from None


def _declared(type_ref: ast.TypeRef | None) -> str | None:
    return None if type_ref is None else type_text(type_ref)


def _text_or_value(item: Argument) -> Value:
    """Short flags, `--` and `-` are plain strings to a function."""
    return item.value if item.role is Role.VALUE else item.spelling


def _base(declared: str) -> str:
    return declared.removesuffix("?")


def _element(declared: str | None) -> str | None:
    """What one word of `...rest: list<T>` or `...rest: T` becomes."""
    if declared is None:
        return None
    return list_element_type(declared) or declared
