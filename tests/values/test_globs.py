"""Chapter 20 §1.1: expansion of globs in a real directory, and matching without one."""

from __future__ import annotations

import os
from pathlib import Path as FilePath

import pytest

from worker.errors import Raised
from worker.values.globs import expand, matches
from worker.values.types import Glob

FILES = [
    "r.c",
    ".dot.c",
    "[x].c",
    "{a,b}.c",
    "a/1.c",
    "a/b/2.c",
    "a/b/c/3.c",
    "a/.hid/5.c",
    ".h/x/4.c",
    "UP.C",
    "a/z-1.c",
    "caf\udce9.c",
    "s p/7.c",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> FilePath:
    root = tmp_path_factory.mktemp("globs")
    for name in FILES:
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w"):
            pass
    os.symlink(root / "a", root / "link")
    os.symlink(root / "missing", root / "broken.c")
    return root


EXPANSIONS: list[tuple[str, str]] = [
    ("*.c", "[x].c broken.c caf\udce9.c r.c {a,b}.c"),
    ("?.c", "r.c"),
    ("[q-s].c", "r.c"),
    ("[!a-q].c", "r.c"),
    ("[[]x].c", "[x].c"),
    ("[]x[]*", "[x].c"),
    ("*.C", "UP.C"),
    ("{a,b}.c", "{a,b}.c"),
    (".*", ".dot.c .h"),
    (".d*", ".dot.c"),
    ("*/*.c", "a/1.c a/z-1.c link/1.c link/z-1.c"),
    ("a/*.c", "a/1.c a/z-1.c"),
    ("a/**/*.c", "a/1.c a/b/2.c a/b/c/3.c a/z-1.c"),
    ("a/**/**/*.c", "a/1.c a/b/2.c a/b/c/3.c a/z-1.c"),
    ("**/3.c", "a/b/c/3.c"),
    ("a/**", "a/b a/b/c"),
    ("a/**/.h*", "a/.hid"),
    ("a/.hid/*", "a/.hid/5.c"),
    (".h/*/*", ".h/x/4.c"),
    ("*/", "a link"),
    ("a/b/", "a/b"),
    ("./r.*", "r.c"),
    ("a/../r.*", "a/../r.c"),
    ("r.c", "r.c"),
    ("broken.c", "broken.c"),
    ("caf?.c", "caf\udce9.c"),
    ("nothing*", ""),
    ("r.c/*", ""),
    ("", ""),
]


@pytest.mark.parametrize(("pattern", "expected"), EXPANSIONS)
def test_expansion(tree: FilePath, pattern: str, expected: str) -> None:
    found = [path.raw for path in expand(Glob(pattern, str(tree)))]
    wanted = [f"{tree}/{name}" for name in expected.split()]
    assert [path for path in found if "s p" not in path] == wanted


def test_hidden_names_are_matched_when_asked_for(tree: FilePath) -> None:
    found = {path.raw.removeprefix(f"{tree}/") for path in expand(Glob("**/*.c", str(tree), True))}
    assert {".dot.c", ".h/x/4.c", "a/.hid/5.c", "r.c"} <= found
    shown = {path.raw.removeprefix(f"{tree}/") for path in expand(Glob("**/*.c", str(tree)))}
    assert shown.isdisjoint({".dot.c", ".h/x/4.c", "a/.hid/5.c"})


def test_matches_are_sorted_by_their_inline_rendering(tree: FilePath) -> None:
    # A name with a blank is quoted, and the quote sorts before letters.
    found = [path.raw for path in expand(Glob("*/?.c", str(tree)))]
    assert found == [f"{tree}/{name}" for name in ("s p/7.c", "a/1.c", "link/1.c")]


def test_an_absolute_pattern_ignores_the_origin(tree: FilePath) -> None:
    assert [p.raw for p in expand(Glob(f"{tree}/r.*", "/nowhere"))] == [f"{tree}/r.c"]


def test_the_origin_is_taken_literally(tmp_path: FilePath) -> None:
    origin = tmp_path / "[o]*"
    origin.mkdir()
    (origin / "f").touch()
    assert [p.raw for p in expand(Glob("*", str(origin)))] == [f"{origin}/f"]


def test_links_are_not_followed_by_double_stars(tmp_path: FilePath) -> None:
    (tmp_path / "d").mkdir()
    os.symlink(tmp_path, tmp_path / "d" / "loop")
    found = [p.raw for p in expand(Glob("**/*", str(tmp_path)))]
    assert found == [f"{tmp_path}/d", f"{tmp_path}/d/loop"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_directories_are_skipped(tmp_path: FilePath) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "f").touch()
    assert [p.raw for p in expand(Glob("**/f", str(tmp_path)))] == [f"{tmp_path}/f"]


def test_a_missing_origin_has_no_matches() -> None:
    assert expand(Glob("*", "/no/such/directory")) == []


@pytest.mark.parametrize("pattern", ["a**", "**b", "***", "x/a**/y", "[ab", "[", "[!", "a[]"])
def test_malformed_patterns(pattern: str) -> None:
    for use in (lambda glob: expand(glob), lambda glob: matches(glob, "/x")):
        with pytest.raises(Raised, match="invalid glob") as caught:
            use(Glob(pattern, "/"))
        assert caught.value.error.code == "arg_error"


@pytest.mark.parametrize(
    ("pattern", "raw", "expected"),
    [
        ("*.c", "/src/a.c", True),
        ("*.c", "/src/d/a.c", False),
        ("*.c", "/other/a.c", False),
        ("**/*.c", "/src/a.c", True),
        ("**/*.c", "/src/x/y/a.c", True),
        ("**/*.c", "/src/.x/a.c", False),
        ("d/**", "/src/d/e/f", True),
        ("/abs/*", "/abs/f", True),
        ("./a.*", "/src/a.c", True),
    ],
)
def test_matching_a_path_without_the_file_system(pattern: str, raw: str, expected: bool) -> None:
    assert matches(Glob(pattern, "/src"), raw) is expected


def test_many_stars_stay_fast() -> None:
    assert not matches(Glob("*a" * 40 + "b", "/"), "/" + "a" * 250)
