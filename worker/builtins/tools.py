"""`which` and `reef`: what a tool name means here, and the lock that says so (chapter 41 §B8).

Failure: `arg_error` and `type_error` for the arguments, `reef_provider` for a manifest or lock that
cannot be written, `reef_not_found` for `reef lock` without a manifest. A name that cannot be
resolved is a value, not an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from worker.builtins.authority import check_env_read, check_write
from worker.builtins.effects import OPAQUE, Rule
from worker.builtins.registry import Call, builtin
from worker.commands.lookup import find_program
from worker.errors import Raised, arg_error, type_error
from worker.values.types import Path, Record, Table, Value, type_name

if TYPE_CHECKING:
    from worker.commands.reef.lock import LockEntry
    from worker.commands.reef.resolver import Found, Reef, View
    from worker.evaluate.evaluator import Evaluator


def reef_of(ev: Evaluator) -> Reef:
    """The resolver of the host; a host without one gets one that knows no user file."""
    if ev.host.reef is None:
        from worker.commands.reef import Reef

        ev.host.reef = Reef()
    reef: Reef = ev.host.reef
    return reef


def _tool_name(value: Value) -> str:
    if type(value) is str:
        return value
    if type(value) is Path:
        return value.display
    raise type_error(f"expected a tool name, found {type_name(value)}")


def _ambient(ev: Evaluator, name: str) -> str | None:
    return find_program(name, ev.env, ev.cwd) if "/" not in name else None


# --- which ----------------------------------------------------------------------------------------


@builtin(
    "which",
    usage="which NAME -> outcome of record|null\n"
    "which -a|--all NAME -> outcome of table {tool, version, path, provider, scope}",
    structured=True,
    effects=(Rule("env_read", names=("PATH",)),),
)
def which(call: Call) -> Value:
    """The file a tool name resolves to and why, or with the flag every candidate."""
    values = call.args.values()
    if len(values) != 1:
        raise arg_error("which requires exactly one command")
    name = _tool_name(values[0])
    check_env_read(call.ev, "PATH")
    if call.args.flag("a", "all"):
        return _all_candidates(call.ev, name)
    return _which(call.ev, reef_of(call.ev), name)


def _all_candidates(ev: Evaluator, name: str) -> Table:
    from worker.commands.reef.providers import Surroundings, offers

    return Table(
        [
            {
                "tool": name,
                "version": str(candidate.version),
                "path": Path(candidate.path),
                "provider": candidate.provider,
                "scope": "ambient" if candidate.ambient else "system",
            }
            for candidate in offers(name, Surroundings(ev.cwd, ev.env))
        ]
    )


def _which(ev: Evaluator, reef: Reef, name: str) -> Record | None:
    view = reef.look(ev)
    try:
        found = reef.find(ev, view, name)
    except Raised as error:
        if error.error.code != "reef_not_found":
            return _unresolved(view, name, error)
        ambient = _ambient(ev, name)
        return None if ambient is None else _minimal(name, ambient)
    if found.fresh and found.entry is not None:
        reef.save(view, [found.entry])
    constraint = "*" if not view.mentions(name) else str(reef.demand(view, name).constraint)
    return {
        "name": name,
        "scope": _scope_of(view, name, found),
        "constraint": constraint,
        "version": str(found.candidate.version),
        "path": Path(found.candidate.path),
        "hash8": found.content_hash[:8],
        "provider": found.candidate.provider,
        "chain": _chain(view, name, found),
    }


def _scope_of(view: View, name: str, found: Found) -> str:
    if view.mentions(name):
        return view.nearest(name).kind
    return "ambient" if found.candidate.ambient else "system"


def _chain(view: View, name: str, found: Found) -> Table:
    rows: list[Record] = []
    selected = False
    for scope in view.scopes:
        mention = scope.tools.get(name)
        outcome = "absent" if mention is None else "shadowed" if selected else "selected"
        selected = selected or mention is not None
        rows.append(
            {
                "scope": scope.kind,
                "source": Path(scope.source),
                "constraint": None if mention is None else str(mention.constraint),
                "outcome": outcome,
            }
        )
    if not selected:
        rows.append(
            {
                "scope": _scope_of(view, name, found),
                "source": Path(""),
                "constraint": None,
                "outcome": "selected",
            }
        )
    return Table(rows)


def _minimal(name: str, path: str) -> Record:
    return {
        "name": name,
        "scope": "ambient",
        "constraint": "*",
        "version": "unknown",
        "path": Path(path),
        "hash8": None,
        "provider": "ambient",
        "chain": Table([]),
    }


def _unresolved(view: View, name: str, error: Raised) -> Record:
    constraint = str(view.nearest(name).tools[name].constraint) if view.mentions(name) else "*"
    record: Record = {
        "name": name,
        "scope": f"unresolved: {error.error.code}",
        "constraint": constraint,
        "version": None,
        "path": None,
        "hash8": None,
        "provider": None,
        "chain": Table([]),
        "note": error.error.msg,
    }
    if error.error.hint is not None:
        record["hint"] = error.error.hint
    return record


# --- reef -----------------------------------------------------------------------------------------


@builtin(
    "reef",
    usage="reef -> outcome of table {name, constraint, version, hash8, provider, scope}\n"
    "reef add TOOL@VERSION -> outcome of record\n"
    "reef lock [--refresh] -> outcome of table\n"
    "reef fetch TOOL -> outcome of record\n"
    "reef doctor -> outcome of table",
    structured=True,
    effects=OPAQUE,
)
def reef(call: Call) -> Value:
    """The constrained tools of this place, and the commands that lock and fetch them."""
    values = call.args.values()
    if not values:
        return _overview(call, reef_of(call.ev))
    word = _tool_name(values[0])
    action = _SUBCOMMANDS.get(word)
    if action is None:
        raise arg_error(f"reef: unknown subcommand `{word}` (expected add, lock, fetch, or doctor)")
    return action(call, reef_of(call.ev))


def _overview(call: Call, reef: Reef) -> Table:
    view = reef.look(call.ev)
    rows: list[Record] = []
    fresh: list[LockEntry] = []
    for name in view.names():
        row: Record = {"name": name}
        try:
            row["constraint"] = str(reef.demand(view, name).constraint)
            found = reef.find(call.ev, view, name)
        except Raised as error:
            row["constraint"] = str(view.nearest(name).tools[name].constraint)
            row.update(version=None, hash8=None, provider=None)
            row["scope"] = f"unresolved: {error.error.code}"
        else:
            if found.fresh and found.entry is not None:
                fresh.append(found.entry)
            row.update(
                version=str(found.candidate.version),
                hash8=found.content_hash[:8],
                provider=found.candidate.provider,
                scope=view.nearest(name).kind,
            )
        rows.append(row)
    if fresh:
        reef.remember(view, fresh)
    return Table(rows)


def _lock(call: Call, reef: Reef) -> Table:
    from worker.commands.reef.failures import reef_error

    view = reef.look(call.ev)
    if not view.scopes:
        raise reef_error("reef_not_found", "reef lock: no manifest in scope")
    names = view.names()
    if call.args.flag("refresh"):
        reef.drop(view, names)
    rows: list[Record] = []
    entries: list[LockEntry] = []
    for name in names:
        try:
            found = reef.find(call.ev, view, name)
        except Raised as error:
            rows.append({"name": name, "locked": False, "error": error.error.code})
            continue
        if found.entry is not None:
            entries.append(found.entry)
        rows.append(
            {
                "name": name,
                "version": str(found.candidate.version),
                "hash8": found.content_hash[:8],
                "locked": True,
            }
        )
    reef.save(view, entries)
    return Table(rows)


def _add(call: Call, reef: Reef) -> Record:
    from worker.commands.reef.failures import as_note

    words = [_tool_name(value) for value in call.args.values()[1:]]
    name, at, constraint = (words[0] if words else "").partition("@")
    if not words or not at or not name or not constraint:
        raise arg_error("reef add expects <tool>@<version>")
    manifest = _manifest_to_edit(call.ev, reef)
    _edit_manifest(call.ev, manifest, name, constraint)
    reef.forget()
    record: Record = {"added": f"{name}@{constraint}", "manifest": Path(manifest)}
    view = reef.look(call.ev)
    reef.drop(view, [name])
    try:
        found = reef.find(call.ev, view, name)
        if found.entry is not None:
            reef.save(view, [found.entry])
    except Raised as error:
        if error.error.code == "reef_provider" and error.error.msg.startswith("writing lock"):
            raise
        record.update(locked=False, note=as_note(error))
    else:
        record.update(
            version=str(found.candidate.version), path=Path(found.candidate.path), locked=True
        )
    return record


def _manifest_to_edit(ev: Evaluator, reef: Reef) -> str:
    from worker.commands.reef.manifests import NATIVE, candidates

    here = os.path.join(ev.cwd, NATIVE)
    for path, kind in candidates(ev.cwd, None):
        if kind == "reef" and os.path.isfile(path):
            return path
    return here


def _edit_manifest(ev: Evaluator, path: str, name: str, constraint: str) -> None:
    """Set one constraint and keep everything else as it was written."""
    from worker.commands.reef.failures import provider_failure

    try:
        with open(path, encoding="utf-8") as file:
            document = tomlkit.parse(file.read())
    except FileNotFoundError:
        document = tomlkit.document()
    except (OSError, UnicodeDecodeError, TOMLKitError, ValueError) as error:
        raise provider_failure(f"parsing manifest {path}: {error}") from None
    tools = document.get("tools")
    if tools is None:
        tools = document["tools"] = tomlkit.table()
    if not isinstance(tools, dict):
        raise provider_failure("manifest [tools] is not a table")
    tools[name] = constraint
    check_write(ev, path)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(tomlkit.dumps(document))
    except OSError as error:
        raise provider_failure(f"writing manifest: {error}") from None


def _fetch(call: Call, reef: Reef) -> Record:
    from worker.commands.reef.providers import FETCHING

    words = [_tool_name(value) for value in call.args.values()[1:]]
    if not words:
        raise arg_error("reef fetch expects a tool name")
    name, ev = words[0], call.ev
    view = reef.look(ev)
    record: Record = {"tool": name}
    try:
        demand = reef.demand(view, name) if view.mentions(name) else None
    except Raised as error:
        return {**record, "fetched": False, "error": error.error.msg}
    pin = None if demand is None else demand.pin
    if pin not in (None, FETCHING) or find_program(FETCHING, ev.env, ev.cwd) is None:
        return {**record, "fetched": False, "note": "no provider can fetch this tool"}
    return {**record, **_fetch_with_mise(call, reef, name, "" if demand is None else demand)}


def _fetch_with_mise(call: Call, reef: Reef, name: str, demand: object) -> Record:
    from worker.commands.reef.constraints import Constraint
    from worker.commands.reef.providers import FETCHING, Surroundings, best, offers
    from worker.commands.reef.resolver import Demand
    from worker.commands.spawn import spawn

    constraint = demand.constraint if isinstance(demand, Demand) else Constraint("any")
    wanted = str(constraint) if constraint.needs_version else "latest"
    argv = [os.fsencode(word) for word in (FETCHING, "install", f"{name}@{wanted}")]
    try:
        outcome = spawn(call.ev, argv, span=call.span)
    except Raised as error:
        return {"fetched": False, "error": error.error.msg}
    if not outcome.ok:
        text = outcome.stderr.decode("utf-8", "replace").strip()
        return {"fetched": False, "error": text or f"{FETCHING} install failed"}
    around = Surroundings(call.ev.cwd, call.ev.env)
    installed = [c for c in offers(name, around, FETCHING) if constraint.accepts(c.version)]
    chosen = best(installed)
    if chosen is None:
        return {"fetched": False, "error": f"{FETCHING} installed nothing that satisfies {wanted}"}
    return {
        "fetched": True,
        "provider": chosen.provider,
        "version": str(chosen.version),
        "path": Path(chosen.path),
    }


def _doctor(call: Call, reef: Reef) -> Table:
    view = reef.look(call.ev)
    rows: list[Record] = []
    mentioned = view.names()
    for name in mentioned:
        entry = view.entries.get(name)
        rows.append(_drift_row(reef, name, entry))
        ambient = _ambient(call.ev, name)
        if entry is not None and ambient is not None and ambient != entry.path:
            rows.append(
                {
                    "name": name,
                    "check": "shadowed_ambient",
                    "status": "shadowed",
                    "path": Path(entry.path),
                    "ambient_path": Path(ambient),
                }
            )
    for name in sorted(set(view.entries) - set(mentioned)):
        path = Path(view.entries[name].path)
        rows.append({"name": name, "check": "orphan", "status": "orphan", "path": path})
    for file, note in view.chain.malformed:
        rows.append(
            {
                "name": os.path.basename(file),
                "check": "manifest",
                "status": "malformed",
                "path": Path(file),
                "note": note,
            }
        )
    return Table(rows)


def _drift_row(reef: Reef, name: str, entry: LockEntry | None) -> Record:
    row: Record = {"name": name, "check": "drift"}
    if entry is None:
        row.update(status="unlocked", path=None, locked_hash8=None, current_hash8=None)
        return row
    try:
        current: str | None = reef.hashes.content_hash(entry.path)
    except OSError:
        current = None
    row.update(
        status="ok" if current == entry.blake3 else "drift",
        path=Path(entry.path),
        locked_hash8=entry.hash8,
        current_hash8=None if current is None else current[:8],
    )
    return row


_SUBCOMMANDS: Final[dict[str, Callable[[Call, Reef], Value]]] = {
    "add": _add,
    "lock": _lock,
    "fetch": _fetch,
    "doctor": _doctor,
}
