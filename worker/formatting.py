"""Formatting source for `shoal fmt`, in a fork of the command.

Failure: a source that does not parse is answered with its message; anything else ends the process.
"""

from __future__ import annotations

from ipc.local_run import Formatted
from worker.language import ParseError, parse
from worker.language.format import format_program


def formatted(source: str) -> Formatted:
    """The canonical text of a source, or why it has none."""
    try:
        return Formatted(text=format_program(parse(source)))
    except ParseError as error:
        return Formatted(error=error.message)
