"""Completion candidates, and when unfinished input should go on."""

from __future__ import annotations

import pytest

from worker.language import ParseError, parse
from worker.language.complete import KNOWN_NAMES, classify, complete

CANDIDATES = [
    ("whi", None, ["while"]),
    ("e", None, ["echo", "else", "explain", "export"]),
    ("while", None, ["while"]),
    ("zzz", None, []),
    ("WHI", None, []),
    ("let total = 3; to", None, ["total"]),
    ("var a_1 = 3; fn a_2() {}; alias a_3 = x; a_", None, ["a_1", "a_2", "a_3"]),
    ("let tota", None, ["tota"]),
    ("# let hidden\n'fn quoted' hid", None, ["hidden"]),
    ("let x = 1; let x = 2; x", None, ["x"]),
    ("let zeta = 1; z", 5, ["zeta"[:1]]),
    ("x whi le", 5, ["while"]),
    ("whi", 99, ["while"]),
    ("é whi", 6, ["while"]),
    ("é whi", None, ["while"]),
    ("whié", 4, ["while"]),
    ("a.spa", None, ["spawn"]),
    ("let 9lives = 1; 9", None, ["9lives"]),
]


@pytest.mark.parametrize(("src", "cursor", "expected"), CANDIDATES)
def test_candidates_are(src: str, cursor: int | None, expected: list[str]) -> None:
    assert complete(src, cursor) == expected


@pytest.mark.parametrize(
    ("src", "cursor"), [("", None), ("while", 0), ("fn zip() {}\nz", 3), ("é", 1)]
)
def test_an_empty_partial_gives_every_known_name(src: str, cursor: int | None) -> None:
    assert complete(src, cursor) == sorted(KNOWN_NAMES)


def test_names_come_in_byte_order() -> None:
    found = complete("let Zed = 1; let _z = 2; ")
    assert found == sorted(found, key=lambda name: name.encode())
    assert {"Zed", "_z"} <= set(found)


INCOMPLETE = [
    "let x =", "f(1,", "[1,", "{a: 1", "{ ls", "if a {", "fn f(a", "match x {", '"abc', "'abc",
    '"""abc\n', '"a {b', "1 +", "sh { echo", "try { 1 }", "x.", "(ls -a", "ls >", "let s = 'a\nb",
    're"abc', "for x in", "f(\n  1", "a &&", "export let", "1 + # more", "with cwd:",
]  # fmt: skip
ERRORS = ["1 2; 3", "a | b", ") x", "let 5 = 1", "1KB", "ls ]", "1 < 2 < 3", "f(1) g h"]


def failed(src: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse(src)
    return caught.value


@pytest.mark.parametrize("src", INCOMPLETE)
def test_input_goes_on(src: str) -> None:
    assert classify(src, failed(src)) == "incomplete"


@pytest.mark.parametrize("src", ERRORS)
def test_input_is_wrong(src: str) -> None:
    assert classify(src, failed(src)) == "error"


def test_quotes_and_backslashes_are_scanned_roughly() -> None:
    error = failed("1 2")
    assert classify('f("a\\"b") 2', error) == "error"
    assert classify("f('a\\') 2", error) == "error"
    assert classify("f('a\" (') 2", error) == "error"
    assert classify("f(')' 2", error) == "incomplete"
    assert classify("1 2 =  \n", error) == "incomplete"
