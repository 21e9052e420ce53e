"""Moving committed pages from the log into the database while nobody waits for a commit.

A checkpoint waits for the disk, and while it runs appending to the log waits too. So the writer
asks for one when it has had nothing to do for a moment; a thread with a connection of its own does
it. Under constant load SQLite does it inside a commit, once the log has `database.LOG_PAGES_MAX`
pages.

Failure: a checkpoint that fails is tried again with the next one; nothing committed depends on it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable

log = logging.getLogger("shoal.journal")


class Checkpointer:
    """One thread, from `start` to `stop`."""

    # Only ever becomes True.
    _stopping: bool

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._stopping = False
        self._due = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="journal-checkpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request(self) -> None:
        """Have it done soon; never blocks."""
        self._due.release()

    def stop(self) -> None:
        self._stopping = True
        self._due.release()
        self._thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            self._due.acquire()
            while self._due.acquire(blocking=False):
                # Several were asked for during the last one: one is enough for all of them.
                continue
            if self._stopping:
                break
            try:
                connection = connection or self._connect()
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except sqlite3.Error as error:
                log.warning("a checkpoint of the store failed: %s", error)
        if connection is not None:
            connection.close()
