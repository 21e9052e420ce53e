"""`mkdir`, `touch`, `cp`, `mv`, `ln`, `save` (chapter 31 §3)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.builtins.support import Shell, raw_name


def tree(folder: Path) -> dict[str, str]:
    """Relative names of all files below a folder with their content."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- mkdir, touch ---------------------------------------------------------------------------------


def test_mkdir_gives_the_absolute_paths(shell: Shell) -> None:
    assert shell.inline("(mkdir a b).out") == f"[{shell.folder}/a, {shell.folder}/b]"
    assert (shell.folder / "b").is_dir()


def test_mkdir_with_parents_makes_what_is_missing_and_accepts_what_is_there(shell: Shell) -> None:
    shell.run("mkdir -p a/b/c")
    shell.run("mkdir --parents a/b/c a")
    assert (shell.folder / "a/b/c").is_dir()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mkdir there", "mkdir {}/there: File exists (os error 17)"),
        ("mkdir a/b", "mkdir {}/a/b: No such file or directory (os error 2)"),
        ("mkdir -p file", "mkdir {}/file: File exists (os error 17)"),
        ("touch a/b", "touch {}/a/b: No such file or directory (os error 2)"),
    ],
)
def test_a_refusal_of_the_system_is_custom(shell: Shell, source: str, message: str) -> None:
    (shell.folder / "there").mkdir()
    (shell.folder / "file").touch()
    error = shell.fails(source)
    assert (error.code, error.msg) == ("custom", message.format(shell.folder))


@pytest.mark.parametrize("head", ["mkdir", "touch"])
def test_a_path_is_needed(shell: Shell, head: str) -> None:
    error = shell.fails(head)
    assert (error.code, error.msg) == ("arg_error", f"{head} requires at least one path")


def test_what_was_done_before_a_failure_stays(shell: Shell) -> None:
    assert shell.code("mkdir first no/such last") == "custom"
    assert (shell.folder / "first").is_dir()
    assert not (shell.folder / "last").exists()


def test_touch_creates_empty_files_and_updates_the_times_of_others(shell: Shell) -> None:
    old = shell.folder / "old"
    old.write_text("content")
    os.utime(old, (1, 1))
    assert shell.inline("(touch old new).out.len()") == "2"
    assert (shell.folder / "new").read_bytes() == b""
    assert old.read_text() == "content"
    assert old.stat().st_mtime > 1


def test_touch_of_a_fifo_does_not_wait_for_its_other_end(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")
    os.utime(shell.folder / "pipe", (1, 1))
    shell.run("touch pipe")
    assert os.stat(shell.folder / "pipe").st_mtime > 1


def test_names_that_are_not_utf8_can_be_made_and_changed(shell: Shell) -> None:
    name = raw_name(b"n\xff")
    (shell.folder / name).write_text("x")
    shell.run("cp (ls.map(.path).first()) copy; mv (ls.map(.path).last()) moved")
    assert tree(shell.folder) == {"copy": "x", "moved": "x"}


# --- cp -------------------------------------------------------------------------------------------


def test_cp_copies_content_and_mode_over_an_existing_file(shell: Shell) -> None:
    (shell.folder / "a").write_text("new")
    (shell.folder / "a").chmod(0o750)
    (shell.folder / "b").write_text("something longer")
    assert shell.inline("(cp a b).out") == f"[{shell.folder}/b]"
    assert (shell.folder / "b").read_text() == "new"
    assert stat.S_IMODE((shell.folder / "b").stat().st_mode) == 0o750


def test_cp_into_a_directory_keeps_the_name(shell: Shell) -> None:
    (shell.folder / "d").mkdir()
    (shell.folder / "link").symlink_to("d")
    (shell.folder / "a").write_text("a")
    (shell.folder / "b").write_text("b")
    assert shell.inline("(cp a b link).out") == f"[{shell.folder}/link/a, {shell.folder}/link/b]"
    assert tree(shell.folder / "d") == {"a": "a", "b": "b"}


def test_cp_recursive_merges_into_what_is_there(shell: Shell) -> None:
    for name in ("src/x", "src/deep/y", "dst/src/keep"):
        (shell.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (shell.folder / name).write_text(name)
    for flag in ("-r", "-R", "--recursive"):
        shell.run(f"cp {flag} src dst")
    assert tree(shell.folder / "dst") == {
        "src/deep/y": "src/deep/y",
        "src/keep": "dst/src/keep",
        "src/x": "src/x",
    }


def test_cp_follows_symlinks(shell: Shell) -> None:
    (shell.folder / "src").mkdir()
    (shell.folder / "real").write_text("content")
    (shell.folder / "src/link").symlink_to("../real")
    shell.run("cp -r src dst; cp src/link plain")
    assert not (shell.folder / "dst/link").is_symlink()
    assert (shell.folder / "dst/link").read_text() == "content"
    assert not (shell.folder / "plain").is_symlink()


def test_cp_of_a_directory_that_contains_itself_through_a_link_ends(shell: Shell) -> None:
    (shell.folder / "src/a").mkdir(parents=True)
    (shell.folder / "src/a/up").symlink_to("..")
    error = shell.fails("cp -r src dst")
    assert error.code == "custom"
    assert error.msg.endswith("Too many levels of symbolic links (os error 40)")


def test_cp_of_a_read_only_directory_fills_the_copy_first(shell: Shell) -> None:
    (shell.folder / "src").mkdir()
    (shell.folder / "src/x").write_text("x")
    (shell.folder / "src").chmod(0o555)
    shell.run("cp -r src dst")
    assert (shell.folder / "dst/x").read_text() == "x"
    assert stat.S_IMODE((shell.folder / "dst").stat().st_mode) == 0o555


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("cp", "arg_error", "cp requires source and destination"),
        ("cp a", "arg_error", "cp requires source and destination"),
        ("cp *.none b", "arg_error", "cp requires source and destination"),
        ("cp a b c", "arg_error", "destination must be a directory for multiple sources"),
        ("cp d e", "arg_error", "cp: directory requires --recursive"),
        ("cp / d", "arg_error", "source has no name"),
        ("cp -r .. d", "arg_error", "source has no name"),
        ("cp (5) a", "type_error", "expected path, found int"),
        ("cp nope b", "custom", "copy {}/nope: No such file or directory (os error 2)"),
        ("cp a no/b", "custom", "copy {}/no/b: No such file or directory (os error 2)"),
        ("cp a ./a", "custom", "copy {}/a: Invalid argument (os error 22)"),
        ("cp a hard", "custom", "copy {}/a: Invalid argument (os error 22)"),
        ("cp -r d d/inner", "custom", "copy {}/d: Invalid argument (os error 22)"),
        ("cp -r d d", "custom", "copy {}/d: Invalid argument (os error 22)"),
    ],
)
def test_cp_refuses_and_touches_nothing(shell: Shell, source: str, code: str, message: str) -> None:
    (shell.folder / "a").write_text("a")
    (shell.folder / "d").mkdir()
    os.link(shell.folder / "a", shell.folder / "hard")
    error = shell.fails(source)
    assert (error.code, error.msg) == (code, message.format(shell.folder))
    assert tree(shell.folder) == {"a": "a", "hard": "a"}


def test_cp_reads_a_device_like_a_file(shell: Shell) -> None:
    (shell.folder / "b").write_text("before")
    shell.run("cp /dev/null b")
    assert (shell.folder / "b").read_bytes() == b""


def test_cp_of_an_unreadable_source_leaves_the_target_alone(shell: Shell) -> None:
    (shell.folder / "b").write_text("before")
    (shell.folder / "src").mkdir()
    assert shell.code("cp src b") == "arg_error"
    assert (shell.folder / "b").read_text() == "before"


# --- mv -------------------------------------------------------------------------------------------


def test_mv_renames_files_and_directories(shell: Shell) -> None:
    (shell.folder / "a").write_text("a")
    (shell.folder / "d").mkdir()
    assert shell.inline("(mv a b).out") == f"[{shell.folder}/b]"
    assert shell.inline("(mv b d).out") == f"[{shell.folder}/d/b]"
    shell.run("mv d e")
    assert tree(shell.folder) == {"e/b": "a"}


def test_mv_replaces_a_file(shell: Shell) -> None:
    (shell.folder / "a").write_text("a")
    (shell.folder / "b").write_text("b")
    shell.run("mv a b")
    assert tree(shell.folder) == {"b": "a"}


@pytest.mark.parametrize("source", ["mv a a", "mv a ./a", "mv a ."])
def test_a_move_onto_itself_does_nothing(shell: Shell, source: str) -> None:
    (shell.folder / "a").write_text("a")
    shell.run(source)
    assert tree(shell.folder) == {"a": "a"}


def test_mv_moves_a_symlink_itself(shell: Shell) -> None:
    (shell.folder / "link").symlink_to("nowhere")
    shell.run("mv link other")
    assert os.readlink(shell.folder / "other") == "nowhere"


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("mv a", "arg_error", "mv requires source and destination"),
        ("mv a b c", "arg_error", "destination must be a directory for multiple sources"),
        ("mv nope b", "custom", "move {}/nope: No such file or directory (os error 2)"),
        ("mv d d/inner", "custom", "move {}/d: Invalid argument (os error 22)"),
        ("mv / d", "arg_error", "source has no name"),
    ],
)
def test_mv_refuses(shell: Shell, source: str, code: str, message: str) -> None:
    (shell.folder / "a").write_text("a")
    (shell.folder / "d").mkdir()
    error = shell.fails(source)
    assert (error.code, error.msg) == (code, message.format(shell.folder))


# --- ln -------------------------------------------------------------------------------------------


def test_ln_makes_a_hard_link_by_default(shell: Shell) -> None:
    (shell.folder / "a").write_text("a")
    assert shell.inline("(ln a b).out") == (
        f"{{target: {shell.folder}/a, link: {shell.folder}/b, symbolic: false}}"
    )
    assert os.path.samefile(shell.folder / "a", shell.folder / "b")


def test_ln_symbolic_stores_the_target_as_given(shell: Shell) -> None:
    (shell.folder / "d").mkdir()
    assert shell.inline("(ln -s ../x d/link).out") == (
        f"{{target: ../x, link: {shell.folder}/d/link, symbolic: true}}"
    )
    assert os.readlink(shell.folder / "d/link") == "../x"


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("ln a", "arg_error", "ln requires a target and a link name"),
        ("ln a b c", "arg_error", "ln requires a target and a link name"),
        ("ln (5) b", "type_error", "expected path, found int"),
        ("ln nope b", "custom", "link {}/b: No such file or directory (os error 2)"),
        ("ln -s x a", "custom", "symlink {}/a: File exists (os error 17)"),
    ],
)
def test_ln_refuses(shell: Shell, source: str, code: str, message: str) -> None:
    (shell.folder / "a").touch()
    error = shell.fails(source)
    assert (error.code, error.msg) == (code, message.format(shell.folder))


# --- save -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "value", "content"),
    [
        ('save f "text"', '"text"', b"text"),
        ("save f ({b: 1, a: [null]})", "{b: 1, a: [null]}", b'{"a":[null],"b":1}'),
        ("save f (echo hi)", '"hi"', b"hi"),
        ('save("f", 5)', "5", b"5"),
        ('save(path("f"), [1, "x"])', '[1, "x"]', b'[1,"x"]'),
    ],
)
def test_save_writes_the_value_and_gives_it_back(
    shell: Shell, source: str, value: str, content: bytes
) -> None:
    (shell.folder / "f").write_text("something much longer than before")
    assert shell.inline(source) == value
    assert (shell.folder / "f").read_bytes() == content


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("save f", "arg_error", "save expects (path, value)"),
        ("save f 1 2", "arg_error", "save expects (path, value)"),
        ('save("f")', "arg_error", "save expects (path, value)"),
        ("save (5) x", "type_error", "expected path, found int"),
        ("save no/f x", "custom", "{}/no/f: No such file or directory (os error 2)"),
    ],
)
def test_save_refuses(shell: Shell, source: str, code: str, message: str) -> None:
    error = shell.fails(source)
    assert (error.code, error.msg) == (code, message.format(shell.folder))


# --- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("echo hi > f", b"hi\n"),
        ("ls empty > f", b"[]\n"),
        ("sleep 0s > f", b""),
        ("cat raw > f", b"\xff"),
        ("pwd > f", b"{}\n"),
        ("dirs > f", b"[{}]\n"),
    ],
)
def test_a_redirect_writes_the_value_and_the_statement_is_null(
    shell: Shell, source: str, content: bytes
) -> None:
    (shell.folder / "empty").mkdir()
    (shell.folder / "raw").write_bytes(b"\xff")
    assert shell.run(source) is None
    expected = content.replace(b"{}", os.fsencode(shell.folder))
    assert (shell.folder / "f").read_bytes() == expected


def test_a_redirect_can_append(shell: Shell) -> None:
    shell.run("echo a > f; echo b >> f")
    assert (shell.folder / "f").read_text() == "a\nb\n"
