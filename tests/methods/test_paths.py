"""Methods of path and glob (chapter 21 §7, §8)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.methods.support import check_failure, evaluator, failure, run, value_of
from worker.errors import raised
from worker.evaluate.host import Host
from worker.values.methods import call_method
from worker.values.types import Path as PathValue
from worker.values.types import Size

NAMES = [
    ('path("srv/app.tar.gz").name', '"app.tar.gz"'),
    ('path("srv/app.tar.gz").stem()', '"app.tar"'),
    ('path("srv/app.tar.gz").ext', '"gz"'),
    ('path("srv/logs/").name(1)', '"logs"'),
    ('path("srv/logs/.").name', '"logs"'),
    ('path("/").name', "null"),
    ('path("").name', "null"),
    ('path("..").stem', "null"),
    ('path("a/..").ext', "null"),
    ('path(".env").stem', '".env"'),
    ('path(".env").ext', "null"),
    ('path("x.").ext', '""'),
    ('path("x.").stem', '"x"'),
    ('path("/srv/logs/").parent', "/srv"),
    ('path("/srv").parent()', "/"),
    ('path("/").parent', "null"),
    ('path("srv").parent', "null"),
    ('path("").parent', "null"),
    ('path("./srv").parent', "."),
    ('path("srv").join("a/../b")', "srv/a/../b"),
    ('path("srv").join(path("a"))', "srv/a"),
    ('path("srv").join("/etc")', "/etc"),
    ('path("srv").join("").display()', '"srv/"'),
    ('path("srv/").join("a")', "srv/a"),
    ('path("/x/./y").abs().display()', '"/x/./y"'),
    ('path("b c").str()', '"b c"'),
    ('path("b c").display()', '"b c"'),
]


@pytest.mark.parametrize(("source", "shown"), NAMES, ids=[row[0] for row in NAMES])
def test_name(source: str, shown: str) -> None:
    assert run(source) == shown


def test_abs_joins_the_session_directory(tmp_path: Path) -> None:
    assert run('path("a/../b").abs().display()', str(tmp_path)) == f'"{tmp_path}/a/../b"'


def test_a_name_that_is_not_utf8_has_only_a_lossy_text() -> None:
    ev = evaluator()
    name = PathValue(os.fsdecode(b"caf\xe9"))
    assert call_method(ev, name, "display", []) == "caf\ufffd"
    with pytest.raises(Exception, match="path is not valid UTF-8") as caught:
        call_method(ev, name, "str", [])
    assert caught.value.error.code == "utf8_error"  # type: ignore[attr-defined]


FAILURES = [
    ('path("a").join(1)', "type_error", "expected str or path, found int"),
    ('path("a").join()', "arg_error", "missing argument 1"),
    ('path("a").parent(1)', "arg_error", "method takes no arguments"),
    ('path("a").abs(1)', "arg_error", "method takes no arguments"),
    ('path("a").read(1)', "arg_error", ".read takes no arguments"),
    ('path("a").exists(x: 1)', "arg_error", ".exists takes no arguments"),
    ('glob("*").pattern(1)', "arg_error", ".pattern takes no arguments"),
    ('glob("*").expand(1)', "arg_error", ".expand takes no arguments"),
    ('path("a").len()', "type_error", ".len unsupported on path"),
    ('path("a").upper()', "type_error", "expected str, found path"),
    ('path("a").map(n => n)', "type_error", "expected collection, found path"),
]


@pytest.mark.parametrize(("source", "code", "phrase"), FAILURES, ids=[row[0] for row in FAILURES])
def test_failure(source: str, code: str, phrase: str) -> None:
    check_failure(source, code, phrase)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("uno\r\ndue\ntre")
    (tmp_path / "bad.bin").write_bytes(b"\xff\xfe")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("notes.txt")
    (tmp_path / "broken").symlink_to("nowhere")
    return tmp_path


FILES = [
    ('path("notes.txt").read', '"uno\\r\\ndue\\ntre"'),
    ('path("notes.txt").lines()', '["uno", "due", "tre"]'),
    ('path("link").lines.len()', "3"),
    ('path("notes.txt").read_bytes', "bytes(12b)"),
    ('path("bad.bin").read_bytes()', "bytes(2b)"),
    ('path("notes.txt").size', "12b"),
    ('path("notes.txt").exists', "true"),
    ('path("broken").exists', "false"),
    ('path("none").exists()', "false"),
    ('path("notes.txt/x").exists()', "false"),
    ('path("sub").is_dir', "true"),
    ('path("notes.txt").is_dir', "false"),
    ('path("link").is_file', "true"),
    ('path("sub").is_file', "false"),
    ('path("none").is_file', "false"),
    ('glob("*.txt").map(.name)', '["notes.txt"]'),
    ('glob("*.txt").pattern', '"*.txt"'),
    ('glob("*.zip").len()', "0"),
    ('glob("*.txt").len', "1"),
    ('glob("*").expand().map(.name)', '["bad.bin", "broken", "link", "notes.txt", "sub"]'),
    ('glob("*.txt").tap(xs => xs.len()).len()', "1"),
    ('glob("*.none").json()', '"[]"'),
    ('glob("*.none").save("out")', "[]"),
]


@pytest.mark.parametrize(("source", "shown"), FILES, ids=[row[0] for row in FILES])
def test_file(source: str, shown: str, folder: Path) -> None:
    assert run(source, str(folder)) == shown


def test_file_failures_name_the_absolute_path(folder: Path) -> None:
    cwd = str(folder)
    missing = f"{cwd}/none: No such file or directory (os error 2)"
    for member in ("read", "read_bytes", "lines", "size", "modified"):
        check_failure(f'path("none").{member}', "not_found", missing, cwd=cwd)
    check_failure('path("sub").read', "custom", f"{cwd}/sub: ", cwd=cwd)
    check_failure('path("notes.txt/x").size', "custom", f"{cwd}/notes.txt/x: ", cwd=cwd)
    check_failure('path("bad.bin").read', "utf8_error", f"{cwd}/bad.bin: not valid UTF-8", cwd=cwd)
    check_failure('path("bad.bin").lines', "utf8_error", "not valid UTF-8", cwd=cwd)


def test_modified_is_the_instant_of_the_file(folder: Path) -> None:
    os.utime(folder / "notes.txt", ns=(0, 1_893_456_000_000_000_000))
    assert run('path("notes.txt").modified', str(folder)) == "2030-01-01T00:00:00Z"


def test_a_name_with_a_nul_is_an_ordinary_failure() -> None:
    assert run('path("a\\0b").exists') == "false"
    assert failure('path("a\\0b").read').code == "custom"
    assert failure('"x".save("a\\0b")').code == "custom"


class _Denying:
    """An authority that refuses everything about one name."""

    restricted = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[Any] = []

    def check(self, effect: Any) -> None:
        self.seen.append((effect["kind"], effect.get("paths")))
        if any(self.name in str(path) for path in effect.get("paths", ())):
            raise raised("leash_denied", "leash: denied")


def test_every_file_access_is_checked(folder: Path) -> None:
    authority = _Denying("notes")
    ev = evaluator(str(folder), Host(authority=authority))
    assert failure('path("notes.txt").read', ev=ev).code == "leash_denied"
    assert failure('path("notes.txt").size', ev=ev).code == "leash_denied"
    assert failure('"x".save("notes.txt")', ev=ev).code == "leash_denied"
    assert run('path("notes.txt").exists', ev=ev) == "false"
    assert run('glob("*.*").map(.name)', ev=ev) == '["bad.bin"]'
    assert ("fs_read", [f"{folder}/notes.txt"]) in authority.seen
    assert ("fs_write", [f"{folder}/notes.txt"]) in authority.seen
    assert (folder / "notes.txt").read_bytes() == b"uno\r\ndue\ntre"


def test_the_sum_of_sizes_is_a_size(folder: Path) -> None:
    value = value_of('[path("notes.txt"), path("bad.bin")].map(.size).sum()', str(folder))
    assert value == Size(14)
