"""`ls`, `stat`, `cat`, `head` (chapter 31 §2)."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from tests.builtins.support import Shell, raw_name
from worker.errors import Cancelled
from worker.values.types import DateTime, Size, Table
from worker.values.types import Path as PathValue


def names(table: Any) -> list[str]:
    assert type(table) is Table
    return [row["name"] for row in table.rows]


# --- ls -------------------------------------------------------------------------------------------


def test_a_row_has_exactly_the_five_columns(shell: Shell) -> None:
    (shell.folder / "a.txt").write_text("12345")
    (row,) = shell.out("ls").rows
    assert list(row) == ["path", "name", "type", "size", "modified"]
    assert row["path"] == PathValue(f"{shell.folder}/a.txt")
    assert row["type"] == "file"
    assert row["size"] == Size(5)
    assert type(row["modified"]) is DateTime
    assert row["modified"].ns == os.stat(shell.folder / "a.txt").st_mtime_ns


def test_rows_are_sorted_bytewise_and_hidden_names_are_skipped(shell: Shell) -> None:
    for name in ("b", "B", "a", "é", "_", ".h", "a.b"):
        (shell.folder / name).touch()
    assert names(shell.out("ls")) == ["B", "_", "a", "a.b", "b", "é"]
    assert names(shell.out("ls -a")) == [".h", "B", "_", "a", "a.b", "b", "é"]
    assert names(shell.out("ls --all")) == names(shell.out("ls -la"))


def test_rows_of_all_arguments_are_sorted_together_by_component(shell: Shell) -> None:
    for name in ("a/z", "a.txt", "b/y"):
        (shell.folder / name).parent.mkdir(exist_ok=True)
        (shell.folder / name).touch()
    paths = [row["path"].raw for row in shell.out("ls b a.txt a").rows]
    assert paths == [f"{shell.folder}/{name}" for name in ("a/z", "a.txt", "b/y")]


def test_a_symlink_to_a_directory_lists_the_directory(shell: Shell) -> None:
    (shell.folder / "real").mkdir()
    (shell.folder / "real/x").touch()
    (shell.folder / "link").symlink_to("real")
    assert shell.inline("(ls link).out.map(.path)") == f"[{shell.folder}/link/x]"
    assert shell.inline('(ls).out.find(r => r.name == "link").type') == '"symlink"'


def test_links_that_lead_nowhere_or_in_circles_are_rows_of_themselves(shell: Shell) -> None:
    (shell.folder / "gone").symlink_to("missing")
    (shell.folder / "loop").symlink_to("loop")
    assert [row["type"] for row in shell.out("ls").rows] == ["symlink", "symlink"]
    assert [row["type"] for row in shell.out("ls loop gone").rows] == ["symlink", "symlink"]


def test_special_files_are_other(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")
    assert shell.inline("ls.map(.type)") == '["other"]'
    assert shell.inline("(stat /dev/null).type") == '"other"'


def test_names_that_are_not_utf8_are_shown_lossily_and_kept_exactly(shell: Shell) -> None:
    name = raw_name(b"caf\xe9")
    (shell.folder / name).touch()
    (row,) = shell.out("ls").rows
    assert row["name"] == "caf�"
    assert row["path"].raw == f"{shell.folder}/{name}"
    assert shell.inline("(cat (ls.map(.path).first())).out.len()") == "0"


def test_an_empty_directory_is_an_empty_table(shell: Shell) -> None:
    assert shell.out("ls").rows == []


def test_a_missing_path_is_custom_with_the_words_of_the_system(shell: Shell) -> None:
    error = shell.fails("ls nope")
    assert error.code == "custom"
    assert error.msg == f"stat {shell.folder}/nope: No such file or directory (os error 2)"


def test_a_directory_that_cannot_be_read_fails_to_list(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("worker.builtins.listing.os.scandir", refuse)
    assert shell.fails("ls").msg == f"list {shell.folder}: Permission denied (os error 13)"


class VanishingEntry:
    """A directory entry whose file is removed right before it is looked at."""

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self._entry = entry
        self.name = entry.name

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        if self.name == "fleeting":
            os.unlink(self._entry.path)
            return os.lstat(self._entry.path)
        return self._entry.stat(follow_symlinks=follow_symlinks)


class VanishingScan:
    def __init__(self, path: str) -> None:
        self._scan = os_scandir(path)

    def __enter__(self) -> Any:
        return (VanishingEntry(entry) for entry in self._scan)

    def __exit__(self, *_: object) -> None:
        self._scan.close()


os_scandir = os.scandir


def test_a_file_that_disappears_during_the_listing_is_left_out(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fleeting", "lasting"):
        (shell.folder / name).touch()
    monkeypatch.setattr("worker.builtins.listing.os.scandir", VanishingScan)
    assert names(shell.out("ls")) == ["lasting"]
    assert not (shell.folder / "fleeting").exists()


def test_a_glob_without_a_match_lists_the_current_directory(shell: Shell) -> None:
    (shell.folder / "a.txt").touch()
    assert names(shell.out("ls *.none")) == ["a.txt"]
    assert shell.notes == ["no matches for *.none"]


def test_a_value_that_is_no_path_is_refused(shell: Shell) -> None:
    error = shell.fails("ls (5)")
    assert (error.code, error.msg) == ("type_error", "expected path, found int")


# --- stat -----------------------------------------------------------------------------------------


def test_stat_of_one_path_is_a_record_and_of_several_a_table(shell: Shell) -> None:
    (shell.folder / "b").write_text("xx")
    (shell.folder / "a").touch()
    assert shell.inline("(stat b).size") == "2b"
    assert shell.inline("(stat b a).out.map(.name)") == '["b", "a"]'


def test_stat_does_not_follow_a_symlink(shell: Shell) -> None:
    (shell.folder / "target").write_text("long content")
    (shell.folder / "l").symlink_to("target")
    assert shell.inline("(stat l).type") == '"symlink"'
    assert shell.inline("(stat l).size") == "6b"


def test_stat_needs_a_path(shell: Shell) -> None:
    error = shell.fails("stat")
    assert (error.code, error.msg) == ("arg_error", "stat requires at least one path")
    assert shell.code("stat nope") == "custom"


# --- cat ------------------------------------------------------------------------------------------


def test_cat_joins_the_bytes_of_all_files(shell: Shell) -> None:
    (shell.folder / "a").write_bytes(b"\xff\x00")
    (shell.folder / "b").write_bytes(b"end")
    assert shell.out("cat a b a") == b"\xff\x00end\xff\x00"


def test_cat_reads_devices_and_directories_are_an_error(shell: Shell) -> None:
    assert shell.out("cat /dev/null") == b""
    (shell.folder / "d").mkdir()
    assert shell.fails("cat d").msg == f"read {shell.folder}/d: Is a directory (os error 21)"


def test_an_endless_device_ends_with_the_limit(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.builtins.reading.FILE_BYTES_MAX", 4 << 20)
    assert shell.fails("cat /dev/zero").msg == "read /dev/zero: File too large (os error 27)"


def test_a_dash_is_a_file_of_that_name(shell: Shell) -> None:
    (shell.folder / "-").write_text("dash")
    assert shell.inline("(cat -).out.str()") == '"dash"'


def test_a_fifo_is_read_to_its_end(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")

    def write() -> None:
        with open(shell.folder / "pipe", "wb") as pipe:
            pipe.write(b"through")

    writer = threading.Thread(target=write)
    writer.start()
    assert shell.out("cat pipe") == b"through"
    writer.join()


def test_waiting_for_a_silent_fifo_ends_when_cancelled(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")
    canceller = threading.Timer(0.05, shell.evaluator.cancel.cancel)
    canceller.start()
    with pytest.raises(Cancelled):
        shell.run("cat pipe")
    canceller.join()


# --- head -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "source", "lines"),
    [
        (b"a\nb\nc\n", "head f 2", ["a", "b"]),
        (b"a\nb", "head f", ["a", "b"]),
        (b"a\r\nb\r", "head f", ["a", "b\r"]),
        (b"\n\nx", "head f 2", ["", ""]),
        (b"", "head f", []),
        (b"a\n", "head f 0", []),
        (b"caf\xe9\n", "head f", ["caf�"]),
        (b"a\nb\n", "head f -n 1", ["a"]),
        (b"a\nb\n", "head f (1) (9)", ["a"]),
        (b"%d\n" * 12, "head f", ["%d"] * 10),
    ],
)
def test_head_takes_the_first_lines(
    shell: Shell, content: bytes, source: str, lines: list[str]
) -> None:
    (shell.folder / "f").write_bytes(content)
    assert shell.out(source) == lines


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("head", "arg_error"),
        ("head f two", "arg_error"),
        ('head f "-1"', "arg_error"),
        ("head f (-1)", "type_error"),
        ("head f (1.0)", "type_error"),
        ("head (5)", "type_error"),
        ("head nope", "custom"),
    ],
)
def test_head_refuses(shell: Shell, source: str, code: str) -> None:
    (shell.folder / "f").touch()
    assert shell.code(source) == code


def test_head_of_an_endless_device_stops_at_its_lines(shell: Shell) -> None:
    assert len(shell.out("head /dev/urandom 3")) == 3


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "stdout"),
    [
        ("echo hi", b"hi\n"),
        ('echo "hi\\n"', b"hi\n"),
        ("echo", b"\n"),
        ("cat f", b"raw"),
        ("sleep 0s", b""),
        ("head f", b'["raw"]\n'),
        ("ls nothing", b"[]\n"),
    ],
)
def test_the_bytes_of_an_outcome_follow_its_value(shell: Shell, source: str, stdout: bytes) -> None:
    (shell.folder / "f").write_bytes(b"raw")
    (shell.folder / "nothing").mkdir()
    outcome = shell.run(source)
    assert outcome.stdout == stdout
    assert outcome.stderr == b""
    assert (outcome.status, outcome.ok, outcome.pid, outcome.dur_ns) == (0, True, 0, 0)
    assert outcome.cmd == source.split()[0]
