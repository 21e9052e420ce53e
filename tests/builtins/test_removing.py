"""`rm`, the trash, and `undo` (chapter 31 §3.5, chapter 50 §13)."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.builtins.support import Shell, journaled_shell

Records = list[dict[str, Any]]


def trash_place(shell: Shell, source: str) -> str:
    (record,) = shell.out(source)
    place: str = record["trash"].raw
    return place


# --- rm -------------------------------------------------------------------------------------------


def test_rm_moves_a_path_into_the_private_trash(shell: Shell) -> None:
    (shell.folder / "a").write_text("a")
    place = trash_place(shell, "rm a")
    assert not (shell.folder / "a").exists()
    assert Path(place).read_text() == "a"
    base = f"{os.environ['TMPDIR']}/shoal-trash/{os.getpid()}"
    number, _, name = os.path.basename(place).partition("-")
    assert os.path.dirname(place) == base
    assert number.isdigit()
    assert name == "a"
    assert stat.S_IMODE(os.stat(base).st_mode) == 0o700


def test_rm_gives_records_of_path_and_trash(shell: Shell) -> None:
    (shell.folder / "a").touch()
    (shell.folder / "d").mkdir()
    (shell.folder / "d/inner").touch()
    records: Records = shell.out("rm a d")
    assert [list(record) for record in records] == [["path", "trash"]] * 2
    assert [record["path"].raw for record in records] == [
        f"{shell.folder}/a",
        f"{shell.folder}/d",
    ]
    assert os.path.exists(f"{records[1]['trash'].raw}/inner")


def test_numbers_in_the_trash_are_never_used_twice(shell: Shell) -> None:
    places = set()
    for _ in range(3):
        (shell.folder / "a").touch()
        places.add(trash_place(shell, "rm a"))
    assert len(places) == 3


def test_a_name_of_the_greatest_length_can_be_trashed(shell: Shell) -> None:
    name = "x" * 255
    (shell.folder / name).touch()
    assert len(os.path.basename(trash_place(shell, f"rm {name}"))) == 255


def test_rm_never_follows_a_symlink(shell: Shell) -> None:
    (shell.folder / "real").mkdir()
    (shell.folder / "real/x").touch()
    for source in ("rm l", "rm l/", "rm --permanent l", "rm --permanent -r l/"):
        (shell.folder / "l").symlink_to("real")
        shell.run(source)
        assert not (shell.folder / "l").is_symlink()
        assert (shell.folder / "real/x").exists()


def test_permanent_removal_gives_the_paths(shell: Shell) -> None:
    (shell.folder / "a").touch()
    (shell.folder / "d/e").mkdir(parents=True)
    assert shell.inline("(rm --permanent a).out") == f"[{shell.folder}/a]"
    assert shell.code("rm --permanent d") == "arg_error"
    assert shell.inline("(rm --permanent -R d).out") == f"[{shell.folder}/d]"
    assert os.listdir(shell.folder) == []


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("rm", "no_matches", "rm requires at least one path; an empty glob deletes nothing"),
        ("rm *.none", "no_matches", "rm requires at least one path; an empty glob deletes nothing"),
        ("rm nope", "custom", "remove {}/nope: No such file or directory (os error 2)"),
        ("rm -f nope", "custom", "remove {}/nope: No such file or directory (os error 2)"),
        ("rm (5)", "type_error", "expected path, found int"),
        ("rm --permanent d", "arg_error", "rm: directory requires --recursive"),
        ("rm /", "custom", "trash /: Device or resource busy (os error 16)"),
        ("rm ..", "custom", "trash {}/..: Device or resource busy (os error 16)"),
    ],
)
def test_rm_refuses(shell: Shell, source: str, code: str, message: str) -> None:
    (shell.folder / "d").mkdir()
    error = shell.fails(source)
    assert (error.code, error.msg) == (code, message.format(shell.folder))
    assert (shell.folder / "d").is_dir()


def test_a_quoted_name_may_start_with_a_dash(shell: Shell) -> None:
    (shell.folder / "-rf").touch()
    shell.run('rm "-rf"')
    assert os.listdir(shell.folder) == []


def test_a_trash_that_belongs_to_somebody_else_is_not_used(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    temporary, elsewhere = tmp_path_factory.mktemp("t"), tmp_path_factory.mktemp("e")
    (temporary / "shoal-trash").mkdir()
    (temporary / "shoal-trash" / str(os.getpid())).symlink_to(elsewhere)
    monkeypatch.setenv("TMPDIR", str(temporary))
    (shell.folder / "a").touch()
    assert shell.fails("rm a").msg.startswith(f"trash {shell.folder}/a: ")
    assert (shell.folder / "a").exists()
    assert os.listdir(elsewhere) == []


def test_a_trash_on_another_filesystem_gets_a_copy_first(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell.folder / "d").mkdir()
    (shell.folder / "d/x").write_text("x")
    (shell.folder / "d/link").symlink_to("x")

    def across(source: str, target: str) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr("worker.builtins.removing.os.rename", across)
    place = trash_place(shell, "rm d")
    assert os.listdir(shell.folder) == []
    assert Path(place, "x").read_text() == "x"
    assert os.readlink(f"{place}/link") == "x"


# --- what is recorded -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("rm a", ["trash_move"]),
        ("rm a b", ["trash_move", "trash_move"]),
        ("rm --permanent a", []),
        ("rm d", ["trash_move"]),
        ("rm link", []),
        ("cp a b", ["restore_bytes"]),
        ("cp a new", []),
        ("cp a b d", []),
        ("mv a b", ["restore_bytes"]),
        ("mv a new", ["move_back"]),
        ("mv a a", []),
        ("mv d e", ["move_back"]),
        ("save a x", ["restore_bytes"]),
        ("save new x", []),
        ('"x".append("a")', ["restore_bytes"]),
        ("echo x > a", ["restore_bytes"]),
        ("echo x >> a", ["restore_bytes"]),
        ("echo x > new", []),
        ("mkdir new", []),
        ("touch a", []),
        ("ln a new", []),
    ],
)
def test_which_operations_record_which_inverse(
    tmp_path: Path, source: str, kinds: list[str]
) -> None:
    shell, journal = journaled_shell(tmp_path)
    (tmp_path / "a").write_text("content of a")
    (tmp_path / "b").write_text("content of b")
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("a")
    shell.run(source)
    assert [record["kind"] for record in journal.records.get(1, [])] == kinds


def test_inverses_have_the_stored_shapes(tmp_path: Path) -> None:
    shell, journal = journaled_shell(tmp_path)
    for name in ("gone", "over", "old"):
        (tmp_path / name).write_text(name)
    shell.run("rm gone")
    shell.run("save over new")
    shell.run("mv old fresh")
    trash, restore, back = journal.records[1]
    assert list(trash) == ["kind", "original", "trash", "trash_fingerprint"]
    assert trash["original"] == f"{tmp_path}/gone"
    assert list(restore) == ["kind", "path", "prior_hash", "expected_current"]
    assert journal.contents[restore["prior_hash"]] == b"over"
    assert list(back) == ["kind", "from", "to", "expected_from"]
    assert (back["from"], back["to"]) == (f"{tmp_path}/fresh", f"{tmp_path}/old")
    info = os.stat(tmp_path / "fresh")
    assert list(back["expected_from"]) == ["size", "modified_ns", "hash"]
    assert back["expected_from"]["size"] == 3
    assert back["expected_from"]["modified_ns"] == info.st_mtime_ns


def test_a_path_with_dots_is_recorded_as_the_file_it_means(tmp_path: Path) -> None:
    (tmp_path / "real/sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/sub")
    (tmp_path / "real/f").write_text("before")
    shell, journal = journaled_shell(tmp_path)
    shell.run("save link/../f after")
    assert [record["path"] for record in journal.records[1]] == [f"{tmp_path}/real/f"]


def test_a_journal_that_cannot_write_does_not_stop_the_work(tmp_path: Path) -> None:
    shell, journal = journaled_shell(tmp_path)
    journal.full = True
    (tmp_path / "a").write_text("a")
    shell.run("save a new; rm a")
    assert journal.records == {}
    assert not (tmp_path / "a").exists()


def test_nothing_is_recorded_without_a_journal(shell: Shell) -> None:
    (shell.folder / "a").write_text("a")
    shell.run("save a new")
    assert (shell.folder / "a").read_text() == "new"


def test_prior_content_above_the_cap_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.builtins.undo_records.SNAPSHOT_BYTES_MAX", 4)
    shell, journal = journaled_shell(tmp_path)
    (tmp_path / "small").write_text("1234")
    (tmp_path / "large").write_text("12345")
    shell.run("save small x; save large x")
    assert [record["path"] for record in journal.records[1]] == [f"{tmp_path}/small"]


# --- undo -----------------------------------------------------------------------------------------


def test_undo_takes_back_removal_overwriting_and_moving(tmp_path: Path) -> None:
    shell, _journal = journaled_shell(tmp_path)
    for name in ("gone", "over", "old"):
        (tmp_path / name).write_text(name)
    (tmp_path / "over").chmod(0o640)
    shell.run("rm gone")
    shell.run("cp old over")
    shell.run("mv old fresh")
    assert shell.inline("undo") == (
        "{entry: 1, undone: 3, actions: ["
        f'"undid: moved back to {tmp_path}/old", '
        f'"undid: restored prior contents of {tmp_path}/over", '
        f'"undid: restored {tmp_path}/gone"]}}'
    )
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "gone": "gone",
        "over": "over",
        "old": "old",
    }


def test_undo_may_be_repeated(tmp_path: Path) -> None:
    shell, _ = journaled_shell(tmp_path)
    (tmp_path / "a").write_text("a")
    shell.run("rm a; undo")
    assert shell.inline("undo 1") == (
        f'{{entry: 1, undone: 1, actions: ["already-undone: restored {tmp_path}/a"]}}'
    )


def test_undo_makes_missing_parent_directories(tmp_path: Path) -> None:
    shell, _ = journaled_shell(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_text("a")
    shell.run("rm d/a; rm --permanent -r d; undo")
    assert (tmp_path / "d/a").read_text() == "a"


@pytest.mark.parametrize("change", ["save over other", "rm over", "rm over; mkdir over"])
def test_undo_refuses_a_file_that_changed_since(tmp_path: Path, change: str) -> None:
    shell, journal = journaled_shell(tmp_path)
    (tmp_path / "over").write_text("before")
    shell.run("save over after")
    journal.current = 2
    shell.run(change)
    error = shell.fails("undo 1")
    assert error.code == "stale_undo"
    assert error.msg == (
        f"undo of out:1 refused: undo target was modified since recording: {tmp_path}/over"
    )


def test_the_first_refusal_stops_and_what_was_undone_stays(tmp_path: Path) -> None:
    shell, journal = journaled_shell(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    shell.run("rm a; rm b")
    os.unlink(journal.records[1][0]["trash"])
    assert shell.code("undo") == "stale_undo"
    assert (tmp_path / "b").read_text() == "b"


def test_undo_stays_below_the_current_directory(tmp_path: Path) -> None:
    shell, _ = journaled_shell(tmp_path)
    (tmp_path / "a").write_text("a")
    (tmp_path / "sub").mkdir()
    shell.run("rm a; cd sub")
    error = shell.fails("undo")
    assert error.code == "custom"
    assert error.msg == f"undo of out:1 refused: undo target escapes scope: {tmp_path}/a"


def test_undo_does_not_write_through_a_symlinked_directory(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shell, _ = journaled_shell(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_text("a")
    shell.run("rm d/a; rm --permanent -r d")
    (tmp_path / "d").symlink_to(elsewhere)
    assert shell.fails("undo").msg.endswith(f"undo target escapes scope: {tmp_path}/d/a")
    assert os.listdir(elsewhere) == []


def test_a_missing_snapshot_is_named(tmp_path: Path) -> None:
    shell, journal = journaled_shell(tmp_path)
    (tmp_path / "a").write_text("before")
    shell.run("save a after")
    digest = journal.records[1][0]["prior_hash"]
    journal.contents.clear()
    error = shell.fails("undo")
    assert error.code == "custom"
    assert error.msg == (f"undo of out:1 refused: invalid undo inverse: missing CAS blob {digest}")


@pytest.mark.parametrize(
    "inverse",
    [
        {"kind": "explode"},
        {"kind": "trash_move"},
        {"kind": "move_back", "from": 5, "to": "x"},
        {"kind": "restore_bytes", "path": "/a", "prior_hash": "short", "expected_current": {}},
        {},
    ],
)
def test_a_broken_record_is_never_replayed(tmp_path: Path, inverse: dict[str, Any]) -> None:
    shell, journal = journaled_shell(tmp_path)
    journal.records[1] = [inverse]
    error = shell.fails("undo")
    assert error.code == "custom"
    assert error.msg.startswith("undo of out:1 refused: ")


def test_content_with_another_hash_is_never_written(tmp_path: Path) -> None:
    shell, journal = journaled_shell(tmp_path)
    (tmp_path / "a").write_text("before")
    shell.run("save a after")
    journal.contents[journal.records[1][0]["prior_hash"]] = b"forged"
    assert shell.code("undo") == "custom"
    assert (tmp_path / "a").read_text() == "after"


def test_undo_of_an_entry_without_records_does_nothing(tmp_path: Path) -> None:
    shell, _ = journaled_shell(tmp_path)
    assert shell.inline("undo 77") == "{entry: 77, undone: 0, actions: []}"
    assert shell.fails("undo").msg == "nothing to undo: no reversible entry in the journal"


@pytest.mark.parametrize("source", ["undo x", "undo (1.5)", 'undo "-1"', "undo (true)"])
def test_undo_wants_an_entry_id(tmp_path: Path, source: str) -> None:
    shell, _ = journaled_shell(tmp_path)
    error = shell.fails(source)
    assert (error.code, error.msg) == ("arg_error", "undo target must be a journal entry id")


def test_undo_without_a_journal_is_custom(shell: Shell) -> None:
    error = shell.fails("undo")
    assert (error.code, error.msg) == (
        "custom",
        "undo requires a journaled session; none is active",
    )
