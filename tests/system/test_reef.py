"""Tool resolution through a real daemon: conflicts, drift, edited locks, broken manifests (chapter
41 part B)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from tests.system.daemon import Daemon, Wire


class Project:
    """A directory that is a session's own, beside tools of several versions that `mise` has."""

    def __init__(self, wire: Wire, root: Path, data: Path) -> None:
        self.wire, self.root, self.data = wire, root, data

    def install(self, tool: str, version: str, says: str | None = None) -> Path:
        path = self.data / "installs" / tool / version / "bin" / tool
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {says or f'{tool} {version}'}\n")
        path.chmod(0o755)
        return path

    def manifest(self, text: str, folder: str = "", name: str = ".reef.toml") -> Path:
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @property
    def lock(self) -> Path:
        return self.root / "reef.lock"

    def entry(self, tool: str) -> dict[str, str]:
        found: dict[str, str] = tomllib.loads(self.lock.read_text())["tool"][tool]
        return found

    def edit_lock(self, old: str, new: str) -> None:
        text = self.lock.read_text()
        assert old in text
        self.lock.write_text(text.replace(old, new))

    def run(self, src: str) -> str:
        return str(self.wire.result("exec", {"src": src})["render"])

    def fails(self, src: str) -> tuple[str, str, str | None]:
        """Code, message and hint of what a submission raises."""
        error = self.wire.error("exec", {"src": src})
        assert error["code"] == -32002, error
        return error["data"]["code"], error["message"], error["data"]["hint"]

    def value(self, src: str) -> Any:
        result = self.wire.result("exec", {"src": f"({src}).out"})
        return plain(result["value"])

    def in_folder(self, name: str) -> None:
        self.wire.result("exec", {"src": f'cd "{self.root / name}"'})


def plain(value: Any) -> Any:
    """A wire value without its tags; a table as its rows."""
    match value:
        case {"$": "table", "cols": cols, "n": n}:
            names = list(cols)
            return [{name: plain(cols[name][at]) for name in names} for at in range(n)]
        case {"$": "null"}:
            return None
        case {"$": "record" | "list", "v": dict() as fields}:
            return {name: plain(item) for name, item in fields.items()}
        case {"$": _, "v": list() as items}:
            return [plain(item) for item in items]
        case {"$": _, "v": inner}:
            return inner
    return value


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mise")


@pytest.fixture(scope="module")
def reef_daemon(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    runtime = tmp_path_factory.mktemp("run")
    environ = {"MISE_DATA_DIR": str(data), "XDG_RUNTIME_DIR": str(runtime)}
    with Daemon(environ=environ) as running:
        yield running


@pytest.fixture
def project(reef_daemon: Daemon, data: Path, tmp_path: Path) -> Iterator[Project]:
    with reef_daemon.wire() as wire:
        wire.result("session.attach", {"session": tmp_path.name})
        wire.result("exec", {"src": f'cd "{tmp_path}"'})
        yield Project(wire, tmp_path, data)


# --- locking and drift ---------------------------------------------------------------------------


def test_a_constrained_tool_runs_once_it_is_locked(project: Project) -> None:
    project.install("gadget", "1.2.0")
    newest = project.install("gadget", "1.2.9")
    project.install("gadget", "1.3.0")
    project.manifest('[tools]\ngadget = "v1.2"\n')

    code, message, hint = project.fails("gadget")
    assert (code, message) == ("reef_unlocked", "gadget is constrained (1.2) but not locked")
    assert hint is not None and "reef lock" in hint

    digest = blake3(newest.read_bytes()).hexdigest()
    assert project.value("reef lock") == [
        {"name": "gadget", "version": "1.2.9", "hash8": digest[:8], "locked": True}
    ]
    assert project.run("gadget") == "gadget 1.2.9"
    entry = project.entry("gadget")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry.pop("resolved_at"))
    assert entry == {
        "name": "gadget",
        "version": "1.2.9",
        "provider": "mise",
        "path": str(newest),
        "blake3": digest,
    }


def test_a_program_that_changed_since_is_drift_until_it_is_locked_again(project: Project) -> None:
    path = project.install("drifter", "2.0")
    project.manifest('[tools]\ndrifter = "2"\n')
    project.run("reef lock")
    before = blake3(path.read_bytes()).hexdigest()
    project.install("drifter", "2.0", "something else")
    after = blake3(path.read_bytes()).hexdigest()

    drift = (
        "reef_drift",
        f"drifter: on-disk hash {after[:12]} != locked {before[:12]}",
        "run `reef lock --refresh`",
    )
    assert project.fails("drifter") == drift
    assert project.fails('"x".feed(drifter)') == drift
    (row,) = project.value("reef doctor")
    assert (row["status"], row["locked_hash8"], row["current_hash8"]) == (
        "drift", before[:8], after[:8],
    )  # fmt: skip
    # A lock that is there stays; only refreshing looks again.
    (row,) = project.value("reef lock")
    assert (row["locked"], row["error"]) == (False, "reef_drift")
    project.run("reef lock --refresh")
    assert project.run("drifter") == "something else"
    assert project.entry("drifter")["blake3"] == after


def test_a_locked_program_that_is_gone_is_not_replaced(project: Project) -> None:
    path = project.install("ls-like", "1.0")
    project.manifest('[tools]\nls-like = "1"\n')
    project.run("reef lock")
    path.unlink()

    code, message, hint = project.fails("^ls-like")
    assert code == "reef_not_found"
    assert "ls-like" in message
    assert hint == "run `reef lock --refresh`"
    (row,) = project.value("reef doctor")
    assert (row["status"], row["current_hash8"]) == ("drift", None)


# --- locks edited by hand ------------------------------------------------------------------------


@pytest.fixture
def locked(project: Project) -> Project:
    project.install("edited", "3.1")
    project.install("edited", "3.2")
    project.manifest('[tools]\nedited = "3.1"\n')
    project.run("reef lock")
    assert project.run("edited") == "edited 3.1"
    return project


def test_another_hash_in_the_lock_is_drift(locked: Project) -> None:
    digest = locked.entry("edited")["blake3"]
    locked.edit_lock(digest, "0" * 64)
    code, message, _ = locked.fails("edited")
    assert (code, message) == (
        "reef_drift",
        f"edited: on-disk hash {digest[:12]} != locked 000000000000",
    )


def test_another_path_in_the_lock_is_drift_too(locked: Project) -> None:
    locked.edit_lock("/3.1/bin", "/3.2/bin")
    assert locked.fails("edited")[0] == "reef_drift"


def test_an_entry_that_does_not_satisfy_the_manifest_is_none(locked: Project) -> None:
    locked.edit_lock('version = "3.1"', 'version = "9.9"')
    assert locked.fails("edited")[0] == "reef_unlocked"


@pytest.mark.parametrize(
    "text",
    ["this is = no [toml", "[tool]\nedited = 5\n", '[tool.edited]\nname = "edited"\n', ""],
    ids=["malformed", "no table", "keys missing", "empty"],
)
def test_a_lock_that_makes_no_sense_counts_as_empty(locked: Project, text: str) -> None:
    locked.lock.write_text(text)
    assert locked.fails("edited")[0] == "reef_unlocked"
    locked.run("reef lock")
    assert locked.run("edited") == "edited 3.1"


def test_the_lock_is_read_again_when_it_changed(locked: Project) -> None:
    kept = locked.lock.read_text()
    locked.lock.unlink()
    assert locked.fails("edited")[0] == "reef_unlocked"
    locked.lock.write_text(kept)
    assert locked.run("edited") == "edited 3.1"


def test_an_entry_that_nobody_mentions_is_an_orphan(locked: Project) -> None:
    with locked.lock.open("a") as file:
        file.write(
            '\n[tool.astray]\nname = "astray"\nversion = "1"\nprovider = "mise"\n'
            'path = "/nowhere/astray"\nblake3 = "00"\nresolved_at = "2026-01-01T00:00:00Z"\n'
        )
    rows = {row["name"]: row for row in locked.value("reef doctor")}
    assert (rows["astray"]["check"], rows["astray"]["status"]) == ("orphan", "orphan")
    assert rows["edited"]["status"] == "ok"


# --- conflicts -----------------------------------------------------------------------------------


def test_scopes_that_contradict_each_other_are_a_conflict(project: Project) -> None:
    project.install("rival", "1.0")
    outer = project.manifest('[tools]\nrival = "2"\n')
    inner = project.manifest('[tools]\nrival = "1"\n', "inner")
    project.in_folder("inner")

    conflict = (
        "reef_conflict",
        "rival: reef (1) is incompatible with reef (2)",
        f"reconcile {inner} and {outer}",
    )
    assert project.fails("rival") == conflict
    assert project.value("reef") == [
        {
            "name": "rival",
            "constraint": "1",
            "version": None,
            "hash8": None,
            "provider": None,
            "scope": "unresolved: reef_conflict",
        }
    ]
    record = project.value("which rival")
    assert (record["scope"], record["note"], record["hint"]) == (
        "unresolved: reef_conflict", conflict[1], conflict[2],
    )  # fmt: skip


def test_two_providers_pinned_for_one_tool_are_a_conflict(project: Project) -> None:
    project.manifest('[tools]\ntwice = { version = "*", provider = "cargo" }\n')
    project.manifest('[tools]\ntwice = { version = "*", provider = "mise" }\n', "inner")
    project.in_folder("inner")
    assert project.fails("twice") == (
        "reef_conflict",
        "twice: provider pinned to both mise and cargo",
        None,
    )


def test_a_foreign_manifest_beside_a_native_one_takes_part(project: Project) -> None:
    project.install("mixed", "4.5")
    project.manifest('[tools]\nmixed = "4"\n')
    project.manifest("mixed 5.0 4.0 # comment\n", name=".tool-versions")
    assert project.fails("mixed")[:2] == (
        "reef_conflict",
        "mixed: reef (4) is incompatible with tool-versions (5.0)",
    )


def test_with_reef_may_contradict_a_manifest(project: Project) -> None:
    project.install("pinned", "1.0")
    project.manifest('[tools]\npinned = "1"\n')
    project.run("reef lock")
    assert project.run('with reef: {pinned: "1.0"} { pinned }') == "pinned 1.0"
    assert project.fails('with reef: {pinned: "2"} { pinned }')[0] == "reef_conflict"
    # The scope ends with its block, also when it failed.
    assert project.run("pinned") == "pinned 1.0"


# --- manifests that cannot be used -------------------------------------------------------------


def test_a_malformed_manifest_is_skipped_and_named(project: Project) -> None:
    broken = project.manifest("[tools\nx = ")
    project.install("orderly", "1.0")
    project.manifest('[tools]\norderly = "1"\n', "inner")
    project.in_folder("inner")
    project.run("reef lock")
    assert project.run("orderly") == "orderly 1.0"
    row = project.value("reef doctor")[-1]
    assert (row["name"], row["check"], row["status"], row["path"]) == (
        ".reef.toml", "manifest", "malformed", str(broken),
    )  # fmt: skip
    assert row["note"]


@pytest.mark.parametrize("kind", ["loop", "dangling", "directory", "binary"])
def test_a_manifest_that_cannot_be_read_takes_nothing_with_it(project: Project, kind: str) -> None:
    path = project.root / ".reef.toml"
    if kind == "loop":
        path.symlink_to(path)
    elif kind == "dangling":
        path.symlink_to(project.root / "nowhere")
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe\x00[tools]")
    assert project.run("printf there") == "there"
    assert project.wire.result("session.reef") == {"active_scope": None, "bindings": []}


def test_runners_that_name_each_other_run_nothing_twice(project: Project) -> None:
    # `aa` files are run by a tool `bb`, which is a script of its own, run by the shell.
    tool = project.install("bb-tool", "1.0", "ran by bb-tool $1")
    assert tool.exists()
    project.manifest('[tools]\nbb-tool = "*"\n[runners]\naa = "bb-tool"\nbb-tool = "aa"\n')
    (project.root / "script.aa").write_text("x")
    project.run("reef lock")
    assert project.run("run('script.aa')").startswith("ran by bb-tool")


def test_directories_that_form_a_cycle_end_the_walk(project: Project) -> None:
    project.install("circular", "1.0")
    project.manifest('[tools]\ncircular = "1"\n')
    (project.root / "round").symlink_to(project.root, target_is_directory=True)
    project.run("reef lock")
    project.wire.result("exec", {"src": f'cd "{project.root}/round/round/round"'})
    assert project.run("circular") == "circular 1.0"


# --- hermetic ------------------------------------------------------------------------------------


def test_hermetic_leaves_only_the_locked_tools_on_path(project: Project) -> None:
    project.install("first", "1.0")
    path = project.install("second", "1.0")
    path.write_text('#!/bin/sh\necho "$PATH"\n')
    project.manifest('[tools]\nfirst = "*"\nsecond = "*"\n')
    project.run("reef lock")
    assert ":" in project.run("second")

    project.manifest('[tools]\nfirst = "*"\nsecond = "*"\n[options]\nhermetic = true\n')
    view = Path(project.run("second"))
    assert ":" not in str(view)
    assert sorted(link.name for link in view.iterdir()) == ["first", "second"]
    assert (view / "second").readlink() == path
    # Nearer scopes cannot undo it; their manifest has a lock of its own.
    project.manifest("[options]\nhermetic = false\n", "inner")
    project.in_folder("inner")
    project.run("reef lock")
    assert project.run("second") == str(view)


def test_a_view_that_was_tampered_with_is_built_again(project: Project) -> None:
    path = project.install("viewed", "1.0")
    path.write_text('#!/bin/sh\necho "$PATH"\n')
    project.manifest('[tools]\nviewed = "*"\n[options]\nhermetic = true\n')
    project.run("reef lock")
    view = Path(project.run("viewed"))
    assert view.parent.parent.stat().st_mode & 0o777 == 0o700
    (view / "viewed").unlink()
    (view / "viewed").symlink_to("/bin/false")
    (view / "intruder").symlink_to("/bin/sh")
    project.run("viewed")
    assert sorted(link.name for link in view.iterdir()) == ["viewed"]
    assert (view / "viewed").readlink() == path


# --- commands ------------------------------------------------------------------------------------


def test_add_writes_the_manifest_and_locks(project: Project) -> None:
    path = project.install("added", "7.1")
    assert project.value("reef add added@7") == {
        "added": "added@7",
        "manifest": str(project.root / ".reef.toml"),
        "version": "7.1",
        "path": str(path),
        "locked": True,
    }
    assert tomllib.loads((project.root / ".reef.toml").read_text()) == {"tools": {"added": "7"}}
    assert project.run("added") == "added 7.1"


def test_add_of_what_is_not_there_keeps_the_edit_and_says_why(project: Project) -> None:
    record = project.value("reef add absent-tool@1")
    assert (record["locked"], record["added"]) == (False, "absent-tool@1")
    assert record["note"].startswith("reef_not_found: no candidate for absent-tool satisfying 1")
    assert "absent-tool" in (project.root / ".reef.toml").read_text()


@pytest.mark.parametrize("spec", ["", "tool", "@1", "tool@"])
def test_add_refuses_what_is_no_spec(project: Project, spec: str) -> None:
    assert project.fails(f"reef add {spec}")[0] == "arg_error"
    assert list(project.root.iterdir()) == []


def test_add_leaves_a_broken_manifest_alone(project: Project) -> None:
    broken = project.manifest("[tools\n")
    code, message, hint = project.fails("reef add some@1")
    assert (code, hint) == ("reef_provider", None)
    assert message.startswith(f"parsing manifest {broken}: ")
    assert broken.read_text() == "[tools\n"
    broken.write_text("tools = 5\n")
    assert project.fails("reef add some@1")[:2] == (
        "reef_provider",
        "manifest [tools] is not a table",
    )


def test_lock_without_a_manifest_and_unknown_words_are_refused(project: Project) -> None:
    assert project.fails("reef lock")[:2] == (
        "reef_not_found",
        "reef lock: no manifest in scope",
    )
    assert project.fails("reef status")[:2] == (
        "arg_error",
        "reef: unknown subcommand `status` (expected add, lock, fetch, or doctor)",
    )
    assert project.value("reef") == []
    assert project.value("reef doctor") == []


def test_fetch_of_a_tool_that_nobody_installs_says_so(project: Project) -> None:
    project.manifest('[tools]\nunfetched = { version = "1", provider = "system" }\n')
    assert project.value("reef fetch unfetched") == {
        "tool": "unfetched",
        "fetched": False,
        "note": "no provider can fetch this tool",
    }
    assert project.fails("reef fetch")[0] == "arg_error"


def test_a_missing_tool_says_how_to_get_it_and_what_it_hides(project: Project) -> None:
    project.manifest('[tools]\nnever-there = "1"\ncat = { version = "9", provider = "mise" }\n')
    # Not locked, and so refused before anything is looked for.
    assert project.fails("never-there")[0] == "reef_unlocked"
    rows = {row["name"]: row for row in project.value("reef lock")}
    assert rows["never-there"]["error"] == "reef_not_found"
    assert rows["cat"]["locked"] is False
    minimal = project.value("which cat")
    assert (minimal["scope"], minimal["constraint"], minimal["version"]) == (
        "ambient", "*", "unknown",
    )  # fmt: skip
    assert project.value("which never-there") is None


def test_the_snapshot_shows_what_is_locked_and_only_that(project: Project) -> None:
    project.install("shown", "1.5")
    project.manifest('[tools]\nshown = "1"\n')
    project.manifest("[tools]\nother = '2'\n", name="mise.toml")
    project.run("reef lock")
    binding = {"scope": "reef", "constrained": True}
    assert project.wire.result("session.reef") == {
        "active_scope": str(project.root / ".reef.toml"),
        "bindings": [
            {"tool": "other", "version": None, "provider": None, "scope": "mise",
             "constrained": True},
            {"tool": "shown", "version": "1.5", "provider": "mise", **binding},
        ],
    }  # fmt: skip


def test_the_lock_of_an_inner_directory_is_beside_the_nearest_native_manifest(
    project: Project,
) -> None:
    project.install("placed", "1.0")
    project.manifest('[tools]\nplaced = "1"\n')
    project.manifest("[tools]\nunrelated = '*'\n", "inner", "mise.toml")
    project.in_folder("inner")
    project.run("reef lock")
    assert project.lock.exists()
    assert not (project.root / "inner" / "reef.lock").exists()
