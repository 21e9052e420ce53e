"""How evaluation stops: raised language errors, and cancellation.

A language error is an `ErrorValue` (a plain value of type `error`) carried by the exception
`Raised`. Every module below the evaluator raises `Raised`, nearest to the cause and with everything
a program needs to react; the evaluator adds the span of the innermost node when none is set.
Cancellation is no language error: `Cancelled` is not a `Raised`, so nothing that catches language
errors can catch it.

Failure: this module only describes failures; it raises nothing by itself.
"""

from __future__ import annotations

from worker.values.types import ErrorValue, Span


class Raised(Exception):
    """A language error on its way to a `catch` or to the end of the submission."""

    __slots__ = ("error",)

    def __init__(self, error: ErrorValue) -> None:
        super().__init__(error.code, error.msg)
        self.error = error

    def __str__(self) -> str:
        return f"{self.error.code}: {self.error.msg}"

    def at(self, span: Span | None) -> Raised:
        """Set the span unless an inner node has set one already; returns self."""
        if self.error.span is None and span is not None:
            self.error.span = span
        return self


class Cancelled(Exception):
    """The evaluation's token was cancelled. Uncatchable in the language (`cancelled`)."""

    def __init__(self) -> None:
        super().__init__("evaluation cancelled")


def raised(
    code: str,
    msg: str,
    *,
    hint: str | None = None,
    stderr: str | None = None,
    status: int | None = None,
    span: Span | None = None,
) -> Raised:
    """Build the exception for one language error; write `raise raised("type_error", ...)`."""
    return Raised(
        ErrorValue(code=code, msg=msg, hint=hint, stderr=stderr, status=status, span=span)
    )


def type_error(msg: str, *, hint: str | None = None) -> Raised:
    return raised("type_error", msg, hint=hint)


def arg_error(msg: str, *, hint: str | None = None) -> Raised:
    return raised("arg_error", msg, hint=hint)


def overflow(msg: str) -> Raised:
    return raised("overflow", msg)


def field_missing(msg: str, *, hint: str | None = None) -> Raised:
    return raised("field_missing", msg, hint=hint)


def not_found(msg: str, *, hint: str | None = None) -> Raised:
    return raised("not_found", msg, hint=hint)


def os_text(error: OSError) -> str:
    """The system's words for an OS failure: `No such file or directory (os error 2)`."""
    return f"{error.strerror or error} (os error {error.errno or 0})"
