"""Having the database hold what was acknowledged, seen from another process.

A running daemon gives the database what its commit log holds within a moment; `settle` waits for
that. When no daemon runs, what one left in the log when it was killed is brought over here.

Failure: StoreError and OSError from opening the store; a database that does not take what the log
holds is no failure, the result says how much it lacks.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from journal.commit_log import LOG_NAME, applied_sequence, known_identity, newest_sequence
from journal.database import DATABASE_NAME, file_uri, unavailable
from journal.errors import StoreInUse
from journal.state_dir import DirectoryLock
from journal.store import Store, StoreConfig

# A daemon takes some 50 ms; one on a slow disk may take longer for what is in front.
SETTLE_S: Final = 10.0
LOOK_S: Final = 0.01


def settle(directory: Path, within_s: float = SETTLE_S) -> int:
    """See to it that the database holds what was acknowledged before this was called; returns how
    many records of the log it still lacks after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    try:
        with closing(_beside(directory)) as database:
            if not _may_have_log(database):
                return 0
            newest = newest_sequence(directory / LOG_NAME, known_identity(database) or 0)
            while (lacking := newest - applied_sequence(database)) > 0:
                if time.monotonic() >= deadline:
                    return lacking
                _bring_over(directory)
                time.sleep(LOOK_S)
    except sqlite3.Error as error:
        raise unavailable(error) from error
    return 0


def _beside(directory: Path) -> sqlite3.Connection:
    uri = f"file:{file_uri(directory / DATABASE_NAME)}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _may_have_log(database: sqlite3.Connection) -> bool:
    """Databases of the first schema never had one."""
    found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'counter'")
    return found.fetchone() is not None


def _bring_over(directory: Path) -> None:
    """Open and close the store when no daemon has it, which applies what the log holds."""
    try:
        lock = DirectoryLock(directory)
    except StoreInUse:
        return
    try:
        Store.open(StoreConfig(path=directory, lock=lock)).close()
    finally:
        lock.release()
