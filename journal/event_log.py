"""Durable event numbers and the events they bring back (chapter 61 §9.4).

Numbers of a (channel, space) start at 0 and grow by one; they are taken by whatever makes the row
durable, and given back when that fails, so that no gap is left. Numbers of removed rows are kept as
high-water marks in `counter` and never given again. A rebuilt event equals the one that was sent
live.

Failure: a stored transcript payload that is not JSON is left out and counted in `malformed`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import msgspec

from journal.jsontext import checked_json
from journal.source import Source

DurableChannel = Literal["journal", "session.transcript"]
DURABLE_CHANNELS: Final = ("journal", "session.transcript")
ALL_SPACE: Final = "*"


def journal_payload(entry_id: int, head: str, ok: bool | None, principal: str) -> bytes:
    """The payload of the `journal` event of an ended submission; interrupted ones are not ok."""
    return (
        b'{"$":"record","v":{"entry_id":{"$":"int","v":%d},"head":{"$":"str","v":%b},'
        b'"ok":{"$":"bool","v":%b},"principal":{"$":"str","v":%b}}}'
        % (entry_id, _text(head), b"true" if ok else b"false", _text(principal))
    )


_text = msgspec.json.Encoder().encode


class EventNumbers(NamedTuple):
    """Given to a submission that ends: in `journal` of all and of the owner, and its transcript."""

    everybody: int
    owner: int
    transcript: int | None


class Sequences:
    """The next number of each (channel, space), as the open transaction sees it."""

    # What was read from the database, plus what was taken since. Forgotten when what took them came
    # to nothing.
    _next: dict[tuple[str, str], int]

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._next = {}

    def take(self, channel: str, space: str) -> int:
        key = (channel, space)
        number = self._next.get(key)
        if number is None:
            number = self._read(channel, space)
        self._next[key] = number + 1
        return number

    def of_ending(self, owner: str, *, transcript: bool) -> EventNumbers:
        """The numbers of the events of a submission that ends."""
        return EventNumbers(
            self.take("journal", ALL_SPACE),
            self.take("journal", owner),
            self.take("session.transcript", owner) if transcript else None,
        )

    def forget(self) -> None:
        self._next.clear()

    def _read(self, channel: str, space: str) -> int:
        (newest,) = self._connection.execute(
            "SELECT max(seq) FROM event WHERE channel = ? AND space = ?", (channel, space)
        ).fetchone()
        kept = self._connection.execute(
            "SELECT value FROM counter WHERE name = ?", (mark_name(channel, space),)
        ).fetchone()
        return max(-1 if newest is None else newest, -1 if kept is None else kept[0] - 1) + 1


def mark_name(channel: str, space: str) -> str:
    return f"event:{channel}:{space}"


def keep_marks(connection: sqlite3.Connection, spaces: Iterable[tuple[str, str]]) -> None:
    """Remember the next number of each (channel, space) before its rows are removed."""
    connection.executemany(
        """
        INSERT INTO counter (name, value)
        SELECT ?, 1 + ifnull(max(seq), -1) FROM event WHERE channel = ? AND space = ?
        ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)
        """,
        [(mark_name(channel, space), channel, space) for channel, space in spaces],
    )


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    seq: int
    ts: int
    session: str
    principal: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class LoggedEvents:
    """Events by ascending number. `more` says that older (or, reading forward, newer) ones match
    too.
    """

    events: tuple[LoggedEvent, ...]
    more: bool
    malformed: int


@dataclass(frozen=True, slots=True)
class LogEvents:
    """Events of one durable channel and space with `after < seq < before`.

    `newest` keeps the newest `limit` of them, else the oldest. `session` and `principal` are the
    filters of guests. The answer ends early when its payloads reach `bytes_max`.
    """

    channel: DurableChannel
    space: str
    after: int
    before: int | None
    limit: int
    newest: bool
    session: str | None = None
    principal: str | None = None
    bytes_max: int = 8 * 1024 * 1024

    def run(self, source: Source) -> LoggedEvents:
        columns = "t.payload" if self.channel == "session.transcript" else "NULL"
        join = (
            "JOIN transcript_event t ON t.entry_id = v.entry_id"
            if self.channel == "session.transcript"
            else ""
        )
        where, parameters = self._where()
        rows = source.connection.execute(
            f"""
            SELECT v.seq, v.ts, e.session, e.principal, e.id, e.head, e.ok, {columns}
            FROM event v CROSS JOIN entry e ON e.id = v.entry_id {join}
            WHERE {where} ORDER BY v.seq {"DESC" if self.newest else "ASC"} LIMIT ?
            """,
            (*parameters, self.limit + 1),
        )
        events: list[LoggedEvent] = []
        size = malformed = 0
        more = False
        for seq, ts, session, principal, entry_id, head, ok, stored in rows:
            if len(events) + malformed == self.limit or size >= self.bytes_max:
                more = True
                break
            if self.channel == "journal":
                payload: bytes | None = journal_payload(entry_id, head, ok, principal)
            else:
                payload = checked_json(stored)
            if payload is None:
                malformed += 1
                continue
            size += len(payload)
            events.append(LoggedEvent(seq, ts, session, principal, payload))
        if self.newest:
            events.reverse()
        return LoggedEvents(tuple(events), more, malformed)

    def _where(self) -> tuple[str, list[object]]:
        clauses = ["v.channel = ?", "v.space = ?", "v.seq > ?"]
        parameters: list[object] = [self.channel, self.space, self.after]
        for clause, value in (
            ("v.seq < ?", self.before),
            ("e.session = ?", self.session),
            ("e.principal = ?", self.principal),
        ):
            if value is not None:
                clauses.append(clause)
                parameters.append(value)
        return " AND ".join(clauses), parameters


@dataclass(frozen=True, slots=True)
class CountEvents:
    """How many events `LogEvents` would find without its limits."""

    events: LogEvents

    def run(self, source: Source) -> int:
        where, parameters = self.events._where()
        (number,) = source.connection.execute(
            f"SELECT count(*) FROM event v CROSS JOIN entry e ON e.id = v.entry_id WHERE {where}",
            parameters,
        ).fetchone()
        return int(number)


@dataclass(frozen=True, slots=True)
class LogSequences:
    """The newest number of each (channel, space) that ever had one."""

    def run(self, source: Source) -> dict[tuple[str, str], int]:
        spaces = source.connection.execute(
            """
            WITH RECURSIVE spaces(channel, space) AS (
                SELECT * FROM (SELECT channel, space FROM event ORDER BY channel, space LIMIT 1)
                UNION ALL
                SELECT (SELECT channel FROM event WHERE (channel, space) > (s.channel, s.space)
                        ORDER BY channel, space LIMIT 1),
                       (SELECT space FROM event WHERE (channel, space) > (s.channel, s.space)
                        ORDER BY channel, space LIMIT 1)
                FROM spaces s WHERE s.channel IS NOT NULL
            )
            SELECT channel, space FROM spaces WHERE channel IS NOT NULL
            """
        ).fetchall()
        found = {
            (channel, space): int(
                source.connection.execute(
                    "SELECT max(seq) FROM event WHERE channel = ? AND space = ?", (channel, space)
                ).fetchone()[0]
            )
            for channel, space in spaces
        }
        for name, value in source.connection.execute(
            "SELECT name, value FROM counter WHERE name LIKE 'event:%' AND value > 0"
        ):
            _, channel, space = name.split(":", 2)
            found[channel, space] = max(found.get((channel, space), -1), value - 1)
        return found
