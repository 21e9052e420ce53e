"""What a check of `shoal doctor` says.

Failure: none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"


class Finding(NamedTuple):
    """A level and what was found."""

    level: str
    detail: str
