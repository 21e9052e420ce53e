"""Wire values as bytes: the complete encoding, and the elided form of an answer (chapter 60).

`encode` is what the journal stores as output `value`; `elide` is what answers carry. The forms are
in `wire_forms`, the budgets, previews and `ref` objects in `elision`.

Failure: see the parts; nothing here raises for a value.
"""

from __future__ import annotations

from worker.values.elision import Budget, elide_text
from worker.values.types import Value
from worker.values.wire_forms import encode_text

__all__ = ["DEFAULT_BUDGET", "Budget", "elide", "encode"]

DEFAULT_BUDGET = Budget()


def encode(value: Value) -> bytes:
    """The complete wire value, compact JSON in UTF-8."""
    return encode_text(value).encode()


def elide(value: Value, uri: str, budget: Budget = DEFAULT_BUDGET, tty: bool = False) -> bytes:
    """The wire value of an answer: within the budget inline, else a `ref` object for `uri`."""
    return elide_text(value, uri, budget, tty).encode()
