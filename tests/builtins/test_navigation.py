"""Directories: `cd pwd pushd popd dirs j jump` and the ranked store (chapter 31 §4.1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.builtins.support import Shell, shell_in
from worker.builtins.frecency import Frecency, NavigationStore, Visited

HOUR = 3600
DAY = 24 * HOUR
NOW = 1_800_000_000


@pytest.fixture
def places(shell: Shell) -> Shell:
    for name in ("a", "b", "deep/er"):
        (shell.folder / name).mkdir(parents=True)
    return shell


# --- the stack ------------------------------------------------------------------------------------


def test_cd_gives_and_enters_the_real_path(places: Shell) -> None:
    (places.folder / "link").symlink_to("deep/er")
    assert places.inline("cd link") == f"{places.folder}/deep/er"
    assert places.inline("pwd ignored arguments") == f"{places.folder}/deep/er"
    assert os.getcwd() != f"{places.folder}/deep/er"


def test_cd_alone_goes_home(places: Shell) -> None:
    places.evaluator.env[b"HOME"] = os.fsencode(places.folder / "b")
    places.run("cd a")
    assert places.inline("cd") == f"{places.folder}/b"


def test_cd_dash_goes_back_and_forth(places: Shell) -> None:
    assert places.inline("cd a\ncd -") == str(places.folder)
    assert places.inline("cd -") == f"{places.folder}/a"


def test_with_cwd_does_not_count_as_a_visit(places: Shell) -> None:
    places.run('cd a\nwith cwd: "../b" { pwd }')
    assert places.inline("cd -") == str(places.folder)


def test_only_the_first_argument_counts(places: Shell) -> None:
    assert places.inline("cd a nowhere") == f"{places.folder}/a"
    assert places.inline("pushd ../b nowhere") == f"[{places.folder}/b, {places.folder}/a]"


def test_the_stack_grows_swaps_and_shrinks(places: Shell) -> None:
    root = places.folder
    assert places.inline("dirs") == f"[{root}]"
    assert places.inline("pushd a") == f"[{root}/a, {root}]"
    assert places.inline("pushd ../b") == f"[{root}/b, {root}/a, {root}]"
    assert places.inline("pushd") == f"[{root}/a, {root}/b, {root}]"
    assert places.inline("popd") == f"[{root}/b, {root}]"
    assert places.inline("popd") == f"[{root}]"
    assert places.inline("cd -") == f"{root}/b"


def test_a_directory_that_is_gone_is_not_entered(places: Shell) -> None:
    places.run("pushd a\npushd ../b")
    os.rmdir(places.folder / "a")
    assert places.code("popd") == "arg_error"
    assert places.inline("dirs.len()") == "3"


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("cd nope", "arg_error", "cd {}/nope: No such file or directory (os error 2)"),
        ("cd file", "arg_error", "cd {}/file: Not a directory (os error 20)"),
        ("pushd nope", "arg_error", "pushd {}/nope: No such file or directory (os error 2)"),
        ("cd (5)", "arg_error", "cd expects path"),
        ("cd -", "custom", "cd: OLDPWD not set"),
        ("pushd", "custom", "pushd: no other directory on the stack to swap with"),
        ("popd", "custom", "popd: directory stack is empty"),
        ("jump a b", "arg_error", "jump takes at most one query"),
        ("j (5)", "arg_error", "jump expects a text query"),
        ("j nope", "not_found", 'jump: no matching directory for "nope"'),
        ("jump", "not_found", "jump: no directory history yet"),
    ],
)
def test_navigation_refuses(places: Shell, source: str, code: str, message: str) -> None:
    (places.folder / "file").touch()
    error = places.fails(source)
    assert (error.code, error.msg) == (code, message.format(places.folder))
    assert places.inline("pwd") == str(places.folder)


@pytest.mark.parametrize(
    ("source", "verb"),
    [
        ("cd a", "cd"),
        ("pushd a", "pushd"),
        ("popd", "popd"),
        ("j a", "jump"),
        ("jump a", "jump"),
    ],
)
def test_a_function_body_cannot_navigate(places: Shell, source: str, verb: str) -> None:
    error = places.fails(f"fn f() {{ {source} }}\nf()")
    assert error.code == "custom"
    assert error.msg == (
        f"{verb} is only allowed at session top level; use `with cwd:` inside a fn body"
    )


@pytest.mark.parametrize(
    "source",
    [
        "if true { cd a }",
        "for i in [1] { cd a }",
        "try { cd a } catch { null }",
    ],
)
def test_blocks_can_navigate(places: Shell, source: str) -> None:
    places.run(source)
    assert places.inline("pwd") == f"{places.folder}/a"


def test_a_with_block_can_navigate_for_itself(places: Shell) -> None:
    assert places.inline('with env: {X: "1"} { cd a; pwd }') == f"{places.folder}/a"
    assert places.inline("pwd") == str(places.folder)


def test_what_a_task_changes_stays_in_the_task(places: Shell) -> None:
    assert places.inline("spawn { cd a; pwd }.await()") == f"{places.folder}/a"
    assert places.inline("pwd") == str(places.folder)


def test_pwd_and_dirs_are_allowed_in_functions(places: Shell) -> None:
    assert places.inline("fn f() { [pwd, dirs.len()] }\nf()") == f"[{places.folder}, 1]"


# --- jumping --------------------------------------------------------------------------------------


def test_a_jump_goes_to_an_existing_directory_first(places: Shell) -> None:
    places.run("cd deep/er\ncd ../..")
    assert places.inline("j deep") == f"{places.folder}/deep"


def test_a_jump_finds_a_visited_directory_by_part_of_its_path(places: Shell) -> None:
    places.run("cd deep/er\ncd ../../b")
    assert places.inline("jump ER") == f"{places.folder}/deep/er"


def test_a_jump_skips_directories_that_are_gone(places: Shell) -> None:
    places.run("cd deep/er\ncd ../../a")
    os.rmdir(places.folder / "deep/er")
    assert places.code("j er") == "not_found"


def test_the_store_of_the_host_is_used(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("state") / "jump.frecency"
    (tmp_path / "xyzzy").mkdir()
    first = shell_in(tmp_path, navigation=NavigationStore.in_file(str(file)))
    first.run("cd xyzzy\ncd ..")
    second = shell_in(tmp_path / "xyzzy", navigation=NavigationStore.in_file(str(file)))
    second.run("cd ..")
    assert second.inline("j xyz") == f"{tmp_path}/xyzzy"
    ranks = {line.split("\t")[2]: line.split("\t")[0] for line in file.read_text().splitlines()}
    assert ranks[f"{tmp_path}/xyzzy"] == "2.000000"


def test_a_store_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    shell = shell_in(tmp_path, navigation=NavigationStore.in_file("/nonexistent/jump.frecency"))
    assert shell.inline("cd .") == str(tmp_path)


# --- ranking --------------------------------------------------------------------------------------


def test_the_text_form_is_rank_time_and_path() -> None:
    places = Frecency()
    places.visit("/a b", NOW)
    places.visit("/a b", NOW + 5)
    assert places.text() == f"2.000000\t{NOW + 5}\t/a b\n"
    assert Frecency(places.text()).places == {"/a b": Visited(2.0, NOW + 5)}


def test_bad_lines_are_skipped_and_duplicates_added_up() -> None:
    text = f"1.5\t{NOW}\t/a\nnonsense\n\nx\t1\t/b\n1\tx\t/c\n-1\t1\t/d\n2\t{NOW + 9}\t/a\n"
    assert Frecency(text).places == {"/a": Visited(3.5, NOW + 9)}


@pytest.mark.parametrize(
    ("age", "weight"),
    [
        (0, 4),
        (HOUR - 1, 4),
        (HOUR, 2),
        (DAY - 1, 2),
        (DAY, 0.5),
        (7 * DAY - 1, 0.5),
        (7 * DAY, 0.25),
        (400 * DAY, 0.25),
    ],
)
def test_the_weight_falls_with_the_age_of_the_last_visit(age: int, weight: float) -> None:
    # A recent directory whose score is just above and just below decides the order.
    for rank, first in ((weight / 4 * 1.01, "/recent"), (weight / 4 * 0.99, "/aged")):
        text = f"1\t{NOW - age}\t/aged\n{rank}\t{NOW}\t/recent\n"
        assert Frecency(text).ranked(None, NOW)[0] == first


def test_equal_scores_prefer_the_last_component_then_the_newest_then_the_path() -> None:
    text = "".join(
        f"1\t{NOW - age}\t{path}\n"
        for path, age in (("/q/x", 0), ("/a/Q", 9), ("/b/q", 9), ("/c/q", 3), ("/other", 0))
    )
    assert Frecency(text).ranked("q", NOW) == ["/c/q", "/a/Q", "/b/q", "/q/x"]


def test_ranks_fade_when_their_sum_is_too_high() -> None:
    places = Frecency(f"9999.5\t{NOW}\t/often\n1.05\t{NOW}\t/seldom\n")
    places.visit("/often", NOW)
    assert set(places.places) == {"/often"}
    assert places.places["/often"].rank == pytest.approx(10_000.5 * 0.9)


def test_a_sum_at_the_limit_does_not_fade() -> None:
    places = Frecency(f"9999\t{NOW}\t/often\n")
    places.visit("/often", NOW)
    assert places.places["/often"].rank == 10_000


def test_a_path_with_a_line_break_cannot_be_stored() -> None:
    places = Frecency()
    places.visit("/a\nb", NOW)
    assert places.text() == ""
