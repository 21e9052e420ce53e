"""The methods a glob has of its own (chapter 21 §8); every other goes to its sorted matches.

Matches that the principal may not read are left out silently (chapter 50 §8).

Failure: arg_error for a malformed pattern.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.errors import Raised
from worker.values.methods.registry import TAKES_NOTHING_NAMED, method
from worker.values.types import Glob, Path, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

GLOB: Final = ("glob",)


def expanded(ev: Evaluator, pattern: Glob) -> list[Value]:
    """The matches that may be read, sorted."""
    from worker.builtins.authority import check_read
    from worker.values.globs import expand

    def may_read(path: Path) -> bool:
        try:
            check_read(ev, path.raw)
        except Raised as error:
            if error.error.code == "leash_denied":
                return False
            raise
        return True

    return [path for path in expand(pattern) if may_read(path)]


@method(
    "pattern",
    on=GLOB,
    result="str",
    doc="The pattern as it was written.",
    refuses=TAKES_NOTHING_NAMED,
)
def pattern(ev: Evaluator, recv: Glob) -> Value:
    return recv.pattern


@method(
    "expand",
    on=GLOB,
    result="list of path",
    doc="The matching paths, sorted.",
    refuses=TAKES_NOTHING_NAMED,
)
def expand(ev: Evaluator, recv: Glob) -> Value:
    return expanded(ev, recv)
