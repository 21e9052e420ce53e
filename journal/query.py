"""Questions about entries: filters, visibility, paging (chapter 61 §7, chapter 60 §5.16).

Every filter and the visibility rule are SQL and come before the limit; pages are cut by id. What an
entry query costs must not depend on how much else is stored, and no one index serves every mix of
filters, so the choice is made by looking: each index that could drive the query is asked for at
most PROBE_ROWS candidates, and the one with the fewest drives. An owner's view is the union of rows
it sent and rows of its sessions; both halves are walked by their own index and merged by id.

Failure: none of its own; sqlite3 errors become `StoreUnavailable`.
"""

from __future__ import annotations

import base64
import heapq
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Generic, Literal, TypeVar

from journal.jsontext import checked_array, checked_json, compact
from journal.source import Source

R = TypeVar("R")

LIMIT_DEFAULT: Final = 100
PROBE_ROWS: Final = 1000
AST_BYTES_MAX: Final = 1024 * 1024
OUTPUTS_PER_STATEMENT: Final = 400

KindFilter = Literal["submission", "statement", "all"]


@dataclass(frozen=True, slots=True)
class Visibility:
    """Whose entries a caller sees: all of them, or its own and those of sessions of `owners`.

    `owners` holds the caller itself and every owner it has approver authority over.
    """

    everything: bool
    principal: str = ""
    owners: tuple[str, ...] = ()


EVERYTHING: Final = Visibility(True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """The filters of `journal.query`, combined with AND; None and empty mean no filter."""

    since: int | None = None
    until: int | None = None
    principal: str | None = None
    session: str | None = None
    head: str | None = None
    ok: bool | None = None
    effects: tuple[str, ...] = ()
    kind: KindFilter = "submission"
    before_id: int | None = None
    limit: int = 0


@dataclass(frozen=True, slots=True)
class OutputRow:
    kind: str
    hash: bytes
    length: int
    meta_json: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    """One entry with its outputs in recording order."""

    id: int
    kind: str
    parent_id: int | None
    ordinal: int | None
    session: str
    owner: str
    principal: str
    task: str | None
    ts: int
    dur_ns: int | None
    cwd: bytes
    src: str
    head: str
    # None when what is stored is no JSON, or more of it than an answer should carry.
    ast_json: bytes | None
    effects_json: bytes | None
    status: int | None
    ok: bool | None
    opaque: bool
    state: str
    outputs: tuple[OutputRow, ...] = field(default=())


COLUMNS: Final = (
    "e.id, e.kind, e.parent_id, e.ordinal, e.session, e.owner, e.principal, e.task, e.ts,"
    " e.dur_ns, e.cwd, e.src, e.head,"
    f" iif(length(e.ast) > {AST_BYTES_MAX}, NULL, e.ast), e.effects, e.status, e.ok, e.opaque,"
    " e.state"
)
MEMBERS: Final = tuple(EntryRow.__dataclass_fields__)[:-1]


@dataclass(frozen=True, slots=True)
class QueryEntries:
    """The newest matching entries, highest id first."""

    filter: EntryFilter
    visibility: Visibility

    def run(self, source: Source) -> list[EntryRow]:
        limit = self.filter.limit or LIMIT_DEFAULT
        rows = islice(_matching(source.connection, self.filter, self.visibility, limit), limit)
        return _with_outputs(source.connection, [_entry(row) for row in rows])


@dataclass(frozen=True, slots=True)
class QueryEntriesJson:
    """The same as the JSON array of the answer; it ends early rather than pass `bytes_max`."""

    filter: EntryFilter
    visibility: Visibility
    bytes_max: int

    def run(self, source: Source) -> bytes:
        limit = self.filter.limit or LIMIT_DEFAULT
        rows = islice(_matching(source.connection, self.filter, self.visibility, limit), limit)
        parts: list[bytes] = []
        size = 2
        while chunk := list(islice(rows, OUTPUTS_PER_STATEMENT)):
            for entry in _with_outputs(source.connection, [_entry(row) for row in chunk]):
                part = entry_json(entry)
                size += len(part) + 1
                if size > self.bytes_max + 1:
                    return b"[" + b",".join(parts) + b"]"
                parts.append(part)
        return b"[" + b",".join(parts) + b"]"


@dataclass(frozen=True, slots=True)
class EntryById:
    entry_id: int
    visibility: Visibility

    def run(self, source: Source) -> EntryRow | None:
        clause, parameters = visible_clause(self.visibility)
        row = source.connection.execute(
            f"SELECT {COLUMNS} FROM entry e WHERE e.id = ? AND {clause}",
            (self.entry_id, *parameters),
        ).fetchone()
        return None if row is None else _with_outputs(source.connection, [_entry(row)])[0]


@dataclass(frozen=True, slots=True)
class CustomRead(Generic[R]):
    """Any other read; `run_on` must not keep the connection."""

    run_on: Callable[[sqlite3.Connection], R]

    def run(self, source: Source) -> R:
        return self.run_on(source.connection)


# --- SQL -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Driver:
    """An index that can find candidates: FROM clause, its condition, and how rows come by id."""

    source: str
    condition: str
    parameters: tuple[Any, ...]
    # Column that bounds and orders by id, or None when the index is in another order.
    id_column: str | None


def _matching(
    connection: sqlite3.Connection, wanted: EntryFilter, visibility: Visibility, limit: int
) -> Iterator[tuple[Any, ...]]:
    filters, parameters = _filters(wanted, visibility)
    streams = [
        connection.execute(*_statement(driver, filters, parameters, wanted.before_id, limit))
        for driver in _choose(connection, wanted, visibility)
    ]
    if len(streams) == 1:
        yield from streams[0]
        return
    last = None
    for row in heapq.merge(*streams, key=lambda row: -int(row[0])):
        if row[0] != last:
            last = row[0]
            yield row


def _statement(
    driver: Driver,
    filters: list[str],
    parameters: list[Any],
    before_id: int | None,
    limit: int,
) -> tuple[str, tuple[Any, ...]]:
    where = [driver.condition, *filters]
    values = [*driver.parameters, *parameters]
    if before_id is not None:
        where.append(f"{driver.id_column or '+e.id'} < ?")
        values.append(before_id)
    order = driver.id_column or "+e.id"
    sql = (
        f"SELECT {COLUMNS} FROM {driver.source} WHERE {' AND '.join(where)}"
        f" ORDER BY {order} DESC LIMIT ?"
    )
    return sql, (*values, limit)


def _filters(wanted: EntryFilter, visibility: Visibility) -> tuple[list[str], list[Any]]:
    """Every condition, kept away from indexes by a unary plus: the driver alone picks the index."""
    clauses: list[str] = []
    values: list[Any] = []
    for clause, value in (
        ("+e.kind = ?", None if wanted.kind == "all" else wanted.kind),
        ("+e.ts >= ?", wanted.since),
        ("+e.ts <= ?", wanted.until),
        ("+e.principal = ?", wanted.principal),
        ("+e.session = ?", wanted.session),
        ("+e.head = ?", wanted.head),
        ("e.ok = ?", wanted.ok),
    ):
        if value is not None:
            clauses.append(clause)
            values.append(value)
    for kind in wanted.effects:
        clauses.append(
            "EXISTS (SELECT 1 FROM entry_effect x WHERE x.entry_id = e.id AND x.kind = ?)"
        )
        values.append(effect_kind(kind))
    clause, parameters = visible_clause(visibility)
    clauses.append(clause)
    values.extend(parameters)
    return clauses, values


def effect_kind(name: str) -> str:
    """The stored spelling of an effect kind: dots are underscores."""
    return name.replace(".", "_")


def visible_clause(visibility: Visibility) -> tuple[str, tuple[Any, ...]]:
    """The visibility rule as a condition on `entry e`, with its parameters."""
    if visibility.everything:
        return "1", ()
    marks = ", ".join("?" * len(visibility.owners))
    clause = f"(+e.principal = ? OR +e.owner IN ({marks}))"
    return clause, (visibility.principal, *visibility.owners)


def _choose(
    connection: sqlite3.Connection, wanted: EntryFilter, visibility: Visibility
) -> list[Driver]:
    """The drivers whose union holds every match, at the lowest cost that looking can tell."""
    candidates = _candidates(connection, wanted, visibility)
    if not candidates:
        return [Driver("entry e", "1", (), "e.id")]
    if len(candidates) == 1 and candidates[0][0].id_column is not None:
        return candidates[0]
    sizes = [
        sum(_probe(connection, driver, wanted.before_id) for driver in union)
        for union in candidates
    ]
    smallest = min(range(len(candidates)), key=sizes.__getitem__)
    chosen = candidates[smallest]
    if chosen[0].id_column is None and sizes[smallest] >= PROBE_ROWS:
        # A wide time range: nearly everything matches, so walking down from the newest id ends
        # soon.
        ordered = [union for union in candidates if union[0].id_column is not None]
        return ordered[0] if ordered else [Driver("entry e", "1", (), "e.id")]
    return chosen


def _candidates(
    connection: sqlite3.Connection, wanted: EntryFilter, visibility: Visibility
) -> list[list[Driver]]:
    """Unions of drivers, each complete by itself, the usually narrower ones first."""
    found: list[list[Driver]] = []
    for kind in wanted.effects:
        found.append(
            [
                Driver(
                    "entry_effect d INDEXED BY idx_effect_kind"
                    " CROSS JOIN entry e ON e.id = d.entry_id",
                    "d.kind = ?",
                    (effect_kind(kind),),
                    "d.entry_id",
                )
            ]
        )
    if wanted.head is not None:
        found.append([_by("idx_entry_head", "e.head = ?", wanted.head)])
    if wanted.session is not None:
        owners = _owners(connection) if visibility.everything else visibility.owners
        found.append(
            [
                _by("idx_entry_session", "e.owner = ? AND e.session = ?", owner, wanted.session)
                for owner in owners
            ]
            + _sent_by(visibility)
        )
    if wanted.principal is not None:
        found.append([_by("idx_entry_principal", "e.principal = ?", wanted.principal)])
    if not visibility.everything:
        found.append(
            [_by("idx_entry_owner", "e.owner = ?", owner) for owner in visibility.owners]
            + _sent_by(visibility)
        )
    if wanted.since is not None or wanted.until is not None:
        low = -(1 << 63) if wanted.since is None else wanted.since
        high = (1 << 63) - 1 if wanted.until is None else wanted.until
        found.append(
            [
                Driver(
                    "entry e INDEXED BY idx_entry_ts",
                    "e.ts >= ? AND e.ts <= ?",
                    (low, high),
                    None,
                )
            ]
        )
    return [union for union in found if union]


def _sent_by(visibility: Visibility) -> list[Driver]:
    if visibility.everything:
        return []
    return [_by("idx_entry_principal", "e.principal = ?", visibility.principal)]


def _by(index: str, condition: str, *parameters: Any) -> Driver:
    return Driver(f"entry e INDEXED BY {index}", condition, parameters, "e.id")


def _owners(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Every owner that has entries: one index step each, however many entries there are."""
    rows = connection.execute(
        """
        WITH RECURSIVE owners(owner) AS (
            SELECT min(owner) FROM entry
            UNION ALL
            SELECT (SELECT min(owner) FROM entry WHERE owner > o.owner) FROM owners o
            WHERE o.owner IS NOT NULL
        )
        SELECT owner FROM owners WHERE owner IS NOT NULL
        """
    )
    return tuple(owner for (owner,) in rows)


def _probe(connection: sqlite3.Connection, driver: Driver, before_id: int | None) -> int:
    source = driver.source.partition(" CROSS JOIN ")[0]
    where, values = driver.condition, list(driver.parameters)
    if before_id is not None and driver.id_column is not None:
        where += f" AND {driver.id_column} < ?"
        values.append(before_id)
    (size,) = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT {PROBE_ROWS})", values
    ).fetchone()
    return int(size)


# --- rows ----------------------------------------------------------------------------------------


def _entry(row: tuple[Any, ...]) -> EntryRow:
    values = dict(zip(MEMBERS, row, strict=True))
    values["cwd"] = bytes(values["cwd"])
    values["ast_json"] = checked_json(values["ast_json"])
    values["effects_json"] = checked_array(values["effects_json"])
    values["ok"] = None if values["ok"] is None else bool(values["ok"])
    values["opaque"] = bool(values["opaque"])
    return EntryRow(**values)


def _with_outputs(connection: sqlite3.Connection, entries: Sequence[EntryRow]) -> list[EntryRow]:
    outputs: dict[int, list[OutputRow]] = {}
    for start in range(0, len(entries), OUTPUTS_PER_STATEMENT):
        ids = list(map(attrgetter("id"), entries[start : start + OUTPUTS_PER_STATEMENT]))
        rows = connection.execute(
            "SELECT entry_id, kind, hash, len, meta FROM output INDEXED BY idx_output_entry"
            f" WHERE entry_id IN ({', '.join('?' * len(ids))}) ORDER BY entry_id, rowid",
            ids,
        )
        for entry_id, kind, digest, length, meta in rows:
            outputs.setdefault(entry_id, []).append(
                OutputRow(kind, bytes(digest), length, checked_json(meta))
            )
    return [_replaced(entry, tuple(outputs.get(entry.id, ()))) for entry in entries]


def _replaced(entry: EntryRow, outputs: tuple[OutputRow, ...]) -> EntryRow:
    if outputs:
        object.__setattr__(entry, "outputs", outputs)
    return entry


def path_object(path: bytes) -> dict[str, str]:
    """A path for JSON: text to show, and the exact bytes when the text is not all there is."""
    try:
        return {"display": path.decode()}
    except UnicodeDecodeError:
        raw = base64.b64encode(path).decode()
        return {"display": path.decode(errors="replace"), "raw": raw}


def entry_json(entry: EntryRow) -> bytes:
    """An entry as `journal.query` answers it."""
    simple = compact(
        {
            "id": entry.id,
            "kind": entry.kind,
            "parent_id": entry.parent_id,
            "ordinal": entry.ordinal,
            "session": entry.session,
            "owner": entry.owner,
            "principal": entry.principal,
            "ts": entry.ts,
            "dur_ns": entry.dur_ns,
            "cwd": path_object(entry.cwd),
            "src": entry.src,
            "status": entry.status,
            "ok": entry.ok,
            "opaque": entry.opaque,
            "state": entry.state,
            "task": entry.task,
        }
    )
    outputs = b",".join(map(_output_json, entry.outputs))
    return b'%b,"ast":%b,"effects":%b,"outputs":[%b]}' % (
        simple[:-1],
        entry.ast_json or b"null",
        entry.effects_json or b"null",
        outputs,
    )


def _output_json(output: OutputRow) -> bytes:
    meta = b"" if output.meta_json is None else b',"meta":' + output.meta_json
    kind = json.dumps(output.kind, ensure_ascii=False).encode()
    return b'{"kind":%b,"hash":"%b","len":%d%b}' % (
        kind,
        output.hash.hex().encode(),
        output.length,
        meta,
    )
