"""What names mean where the walk stands.

Failure: none.
"""

from __future__ import annotations

from typing import Any

from worker.errors import Raised
from worker.planning.known import DYNAMIC, session_value
from worker.planning.walk import Walk
from worker.values.types import MISSING


def value_of_name(walk: Walk, name: str) -> Any:
    """What is known of a bound name; MISSING when nothing of that name is bound."""
    found = walk.names.find(name)
    if found is not None:
        return found[0]
    if walk.names.isolated:
        return MISSING
    if walk.ev.repl is not None and name in walk.ev.repl:
        return DYNAMIC
    try:
        value = walk.ev.lookup(name)
    except Raised:
        # Lost with a restored session: it raises when it is read.
        return DYNAMIC
    if value is MISSING:
        return MISSING
    return DYNAMIC if name in walk.assigned else session_value(value)
