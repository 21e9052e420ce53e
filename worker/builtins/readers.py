"""Readers for single argument values that several builtin families share (chapter 31 §1.3).

They take a value that is already evaluated and give it back as what the builtin works with, or
raise with the words of the chapter. Counting and path readers live with the arguments themselves
(`worker.commands.arguments`).

Failure: `type_error` for a value of another type, `arg_error` for text that does not parse.
"""

from __future__ import annotations

from worker.errors import Raised, arg_error, os_text, raised, type_error
from worker.values.types import Path, Value, display_name, type_name


def is_decimal(text: str) -> bool:
    """ASCII digits only."""
    return text.isascii() and text.isdigit()


def path_value(value: Value) -> Path:
    """A path as it was given: neither joined nor normalised."""
    if type(value) is Path:
        return value
    if type(value) is str:
        return Path(value)
    raise type_error(f"expected path, found {type_name(value)}")


def line_count(value: Value) -> int:
    """A non-negative int or decimal text."""
    if type(value) is str:
        if not is_decimal(value) or len(value) > 20:
            raise arg_error(f"expected a line count, found {value!r}")
        return int(value)
    if type(value) is int and value >= 0:
        return value
    raise type_error(f"expected non-negative int, found {type_name(value)}")


def os_failure(operation: str, path: str, error: OSError) -> Raised:
    """The error of a file builtin: `OP PATH: TEXT (os error N)` (chapter 31 §1.4)."""
    return raised("custom", f"{operation} {display_name(path)}: {os_text(error)}")
