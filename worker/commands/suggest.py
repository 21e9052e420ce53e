"""Near misses of a command name (chapter 40 §1.6).

Candidates are the builtin heads, the adapter heads and the callables in scope; PATH is never
scanned. The nearest one counts when its distance is small for the length of the name.

Failure: nothing is raised; no candidate close enough gives None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# Names of this many characters and more may be two edits away.
LONG_NAME_CHARS: Final = 5


def near_miss(ev: Evaluator, name: str) -> str | None:
    """The candidate to suggest for a head that was not found."""
    from worker.builtins import BUILTINS

    candidates = {*BUILTINS, *ev.visible_callables()}
    if ev.host.adapters is not None:
        candidates.update(ev.host.adapters.heads())
    return nearest(name.rpartition("/")[2], candidates)


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The closest candidate within reach; ties go to the first in sorted order."""
    reach = min(2 if len(name) >= LONG_NAME_CHARS else 1, len(name) - 1)
    best: str | None = None
    for candidate in sorted(candidates):
        if abs(len(candidate) - len(name)) <= reach:
            found = edit_distance(name, candidate, reach)
            if found is not None and found <= reach:
                best = candidate
                reach = found - 1
    return best


def edit_distance(a: str, b: str, limit: int) -> int | None:
    """Levenshtein distance in characters; None when it is above `limit`."""
    previous = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        current = [i]
        for j, right in enumerate(b, 1):
            current.append(
                min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (left != right))
            )
        if min(current) > limit:
            return None
        previous = current
    return previous[-1] if previous[-1] <= limit else None
