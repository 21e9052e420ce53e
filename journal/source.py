"""What a read gets to read from: a connection that sees the last commit, and the content store.

Failure: a read may raise sqlite3 errors and OSError; the store turns them into `StoreUnavailable`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from journal.cas import ContentStore

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Source:
    connection: sqlite3.Connection
    content: ContentStore
    # Says that content was read on behalf of a client; keeps `last_access_ns` current.
    touched: Callable[[bytes], None]


class Read(Protocol[R_co]):
    """A question to the store; `run` is called on a reader thread."""

    def run(self, source: Source) -> R_co: ...
