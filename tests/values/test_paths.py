"""Chapter 20 §2.3, chapter 21 §7.1: components and parts of paths."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.values import paths


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("", []),
        ("a", ["a"]),
        ("a//b/", ["a", "b"]),
        ("a/./b/.", ["a", "b"]),
        ("./a", [".", "a"]),
        (".", ["."]),
        ("././.", ["."]),
        ("/", ["/"]),
        ("//", ["/"]),
        ("/./a", ["/", "a"]),
        ("../a/..", ["..", "a", ".."]),
        (".hidden", [".hidden"]),
    ],
)
def test_components(raw: str, expected: list[str]) -> None:
    assert paths.components(raw) == expected


# raw: name, stem, ext, parent
PARTS: list[tuple[str, str | None, str | None, str | None, str | None]] = [
    ("", None, None, None, None),
    ("/", None, None, None, None),
    (".", None, None, None, None),
    ("..", None, None, None, None),
    ("a/..", None, None, None, "a"),
    ("a", "a", "a", None, None),
    ("/a", "a", "a", None, "/"),
    ("./a", "a", "a", None, "."),
    ("a/b/", "b", "b", None, "a"),
    ("a/b/.", "b", "b", None, "a"),
    ("a//b", "b", "b", None, "a"),
    ("a/./b", "b", "b", None, "a"),
    ("/srv/data/", "data", "data", None, "/srv"),
    ("//srv", "srv", "srv", None, "/"),
    ("logs/app.tar.gz", "app.tar.gz", "app.tar", "gz", "logs"),
    (".env", ".env", ".env", None, None),
    (".env.bak", ".env.bak", ".env", "bak", None),
    ("x.", "x.", "x", "", None),
    ("..x", "..x", ".", "x", None),
    ("caf\udce9.t\udcff", "caf\ufffd.t\ufffd", "caf\ufffd", "t\ufffd", None),
]


@pytest.mark.parametrize(("raw", "name", "stem", "ext", "parent"), PARTS)
def test_parts(
    raw: str, name: str | None, stem: str | None, ext: str | None, parent: str | None
) -> None:
    assert (paths.name(raw), paths.stem(raw), paths.ext(raw), paths.parent(raw)) == (
        name,
        stem,
        ext,
        parent,
    )


@pytest.mark.parametrize(
    ("raw", "segment", "expected"),
    [
        ("srv", "a/../b", "srv/a/../b"),
        ("srv", "/etc", "/etc"),
        ("srv/", "a", "srv/a"),
        ("srv", "", "srv/"),
        ("srv/", "", "srv/"),
        ("", "a", "a"),
        ("/", "a", "/a"),
    ],
)
def test_joining(raw: str, segment: str, expected: str) -> None:
    assert paths.join(raw, segment) == expected


PATHS = st.text(alphabet="ab./", max_size=12)


@given(PATHS)
def test_a_parent_plus_the_last_component_is_the_same_path(raw: str) -> None:
    parent = paths.parent(raw)
    if parent is not None:
        assert paths.same(paths.join(parent, paths.components(raw)[-1]), raw)


@given(PATHS, PATHS)
def test_equal_paths_have_equal_keys_and_only_those(a: str, b: str) -> None:
    assert paths.same(a, b) is (paths.sort_key(a) == paths.sort_key(b))


@given(st.lists(st.sampled_from(["a", "b.c", "..", "x y"]), min_size=1))
def test_plain_paths_agree_with_pathlib(parts: list[str]) -> None:
    raw = "/".join(parts)
    assert paths.components(raw) == list(PurePosixPath(raw).parts)
