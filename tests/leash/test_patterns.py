"""Patterns of policy files: one row per rule of the matching chapter."""

from __future__ import annotations

import pytest

from leash.patterns import BadPattern, compiled, concrete_root

MATCHES = [
    ("/etc/hosts", "/etc/hosts", True),
    ("/etc/hosts", "/etc/hosts2", False),
    ("/etc/HOSTS", "/etc/hosts", False),
    ("/a/?", "/a/b", True),
    ("/a/?", "/a/bc", False),
    ("/a?b", "/a/b", True),
    ("/a/*", "/a/b/c", True),
    ("/a/*.c", "/a/b/x.c", True),
    ("/a/*.c", "/a/b/x.h", False),
    ("/a/[abc]", "/a/b", True),
    ("/a/[a-c]", "/a/d", False),
    ("/a/[!a-c]", "/a/d", True),
    ("/a/[]]", "/a/]", True),
    ("/a/**", "/a/b/c", True),
    ("/a/**", "/a", False),
    ("/a/**", "/ab", False),
    ("/a/**/b", "/a/b", True),
    ("/a/**/b", "/a/x/y/b", True),
    ("/a/**/b", "/a/xb", False),
    ("/**", "/", True),
    ("/**", "/any/thing", True),
    ("/a/{b,c}", "/a/b", False),
    ("/a/{b,c}", "/a/{b,c}", True),
    ("/a/.*", "/a/.x", True),
    ("/a/.+", "/a/bb", False),
    ("/a/*", "/a/with\nnewline", True),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), MATCHES)
def test_a_pattern_matches_the_whole_text_or_not_at_all(
    pattern: str, text: str, expected: bool
) -> None:
    assert (compiled(pattern).fullmatch(text) is not None) is expected


@pytest.mark.parametrize("pattern", ["/a**", "/***", "/a/**b", "/a/[b", "/[!"])
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        compiled(pattern)


@pytest.mark.parametrize(
    ("pattern", "root"),
    [
        ("/srv/app/**", "/srv/app"),
        ("/etc/hosts", "/etc/hosts"),
        ("/data/v*/x", "/data"),
        ("/**", "/"),
        ("**/keys", None),
        ("/a/./b/../c", "/a/c"),
        ("/a/{b}", "/a"),
    ],
)
def test_the_root_of_a_pattern_is_its_concrete_leading_path(pattern: str, root: str | None) -> None:
    assert concrete_root(pattern) == root
