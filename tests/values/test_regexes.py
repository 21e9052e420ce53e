"""Chapter 20 §1.1: the regex dialect - what it takes, what it refuses, what it matches."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import Raised
from worker.values import regex_vm
from worker.values.operators import equal
from worker.values.regex_classes import (
    EVERYTHING,
    Ranges,
    complement,
    difference,
    intersection,
    members,
    symmetric_difference,
    union,
)
from worker.values.regex_syntax import parse
from worker.values.regexes import compile_regex


def found(pattern: str, text: str) -> list[str | None]:
    return [match.group() for match in compile_regex(pattern).engine.finditer(text)]


MATCHES: list[tuple[str, str, list[str]]] = [
    # Leftmost-first, not longest.
    ("a|ab", "ab", ["a"]),
    ("(a|ab)(c|bcd)(d*)", "abcd", ["abcd"]),
    ("a*?b", "aab", ["aab"]),
    ("a+?", "aaa", ["a", "a", "a"]),
    ("x*", "axb", ["", "x", ""]),
    ("a{2}", "aaaaa", ["aa", "aa"]),
    ("a{2,}", "aaa a", ["aaa"]),
    ("a{1,2}?", "aaa", ["a", "a", "a"]),
    ("a{0}b", "ab", ["b"]),
    ("(?:ab){2,3}", "abababab", ["ababab"]),
    ("a**", "aab", ["aa", ""]),
    ("a||b", "b", ["", ""]),
    ("", "ab", ["", "", ""]),
    # Flags.
    ("(?i)straße", "STRAßE", ["STRAßE"]),
    ("(?i)k", "kK\u212a", ["k", "K", "\u212a"]),
    ("(?i)ſ", "sS", ["s", "S"]),
    ("(?i)[^k]+", "akK\u212ab", ["a", "b"]),
    ("(?i-u)k+", "kK\u212a", ["kK"]),
    ("(?-iu:a)(?i:b)c", "aBc ABc", ["aBc"]),
    ("a(?i)b|c", "aB C", ["aB", "C"]),
    ("((?i)a)b", "Ab AB", ["Ab"]),
    ("^a", "a\na", ["a"]),
    ("(?m)^a", "a\na", ["a", "a"]),
    ("a$", "a\n", []),
    ("(?m)a$", "a\na", ["a", "a"]),
    (r"\Aa\z", "a", ["a"]),
    (".+", "a\r\nb", ["a\r", "b"]),
    ("(?s).+", "a\nb", ["a\nb"]),
    ("(?R).+", "a\r\nb", ["a", "b"]),
    ("(?mR)^.*$", "a\r\nb\rc\nd", ["a", "b", "c", "d"]),
    ("(?U)a+", "aa", ["a", "a"]),
    ("(?U)a+?", "aa", ["aa"]),
    ("(?x) a  b # comment\n c", "abc", ["abc"]),
    (r"(?x)a\ b[ c ]", "a bc", ["a bc"]),
    # Classes.
    (r"\d+", "4٣", ["4٣"]),
    (r"(?-u:\d)+", "4٣", ["4"]),
    (r"\w+", "é_ñ9 a\u0301 \u200d ⓐ", ["é_ñ9", "a\u0301", "\u200d", "ⓐ"]),
    (r"\W+", "é-ñ", ["-"]),
    (r"\s+", "a\u00a0\u2028 \x0bb\x1cc", ["\u00a0\u2028 \x0b"]),
    (r"\S+", "a b\u3000c", ["a", "b", "c"]),
    ("[a-c]+", "abcd", ["abc"]),
    ("[^a-c]+", "abxyc", ["xy"]),
    ("[]a]+", "a]b", ["a]"]),
    ("[^]a]+", "a]b", ["b"]),
    ("[-a]+", "a-b", ["a-"]),
    ("[a-]+", "a-b", ["a-"]),
    (r"[a\-z]+", "a-zb", ["a-z"]),
    (r"[\w.-]+", "a.b-c d", ["a.b-c", "d"]),
    (r"[\D]+", "a1", ["a"]),
    (r"[^\d\s]+", "a 1b", ["a", "b"]),
    ("[[:alpha:]]+", "abé1", ["ab"]),
    ("[[:^alpha:]]+", "ab12", ["12"]),
    ("[a[b-d]]+", "abcde", ["abcd"]),
    ("[a[^b]]+", "abc", ["a", "c"]),
    ("[a-z&&[^aeiou]]+", "abcde", ["bcd"]),
    ("[a-z--[aeiou]]+", "abcde", ["bcd"]),
    ("[a-c~~b-d]+", "abcd", ["a", "d"]),
    (r"[\w&&[^\d_]]+", "a1_é", ["a", "é"]),
    ("(?i)[A-Z--[AEIOU]]+", "abcde", ["bcd"]),
    ("[^a&&b]", "a", ["a"]),
    ("[a&b~c]+", "a&b~c", ["a&b~c"]),
    ("[a&&b]", "ab", []),
    (r"\p{Greek}+", "αβγ abc", ["αβγ"]),
    (r"\p{greek}\pL", "αb", ["αb"]),
    (r"\P{L}+", "ab12", ["12"]),
    (r"\p{gc=Lu}\p{Lowercase_Letter}", "Ab", ["Ab"]),
    (r"\p{gc!=L}+", "ab12", ["12"]),
    (r"\p{sc=Cyrillic}", "ж", ["ж"]),
    (r"[\p{Lu}\d]+", "AB1c", ["AB1"]),
    (r"\p{Alphabetic}+", "aⅧⓐ1", ["aⅧⓐ"]),
    (r"\p{Uppercase}+\p{Lowercase}+", "ⒶAaª", ["ⒶAaª"]),
    # Escapes.
    (r"\x41\x{1F600}\u00e9\u{e9}\U0001F600", "A😀éé😀", ["A😀éé😀"]),
    (r"\a\f\t\n\r\v", "\a\f\t\n\r\v", ["\a\f\t\n\r\v"]),
    (r"\.\*\/\-\ \#", ".*/- #", [".*/- #"]),
    ("]}", "]}", ["]}"]),
    # Word edges, in ASCII text and beyond it.
    (r"\bfoo\b", "foo foobar", ["foo"]),
    (r"\bfoo\b", "foo éfoo fooé foo\u0301 ñ foo", ["foo", "foo"]),
    (r"(?-u:\b)foo", "éfoo", ["foo"]),
    (r"\B.", "éa b", ["a"]),
    (r"\<\w+\>", "foo bär", ["foo", "bär"]),
    (r"\b{start}\w", "ab ñb", ["a", "ñ"]),
    (r"\w\b{end-half}", "ab ñb", ["b", "b"]),
    # Counts beyond the limits of the engine below.
    ("a{1200}", "a" * 1300, ["a" * 1200]),
    ("(?:a{0,30}){0,40}b", "a" * 1100 + "b", ["a" * 1100 + "b"]),
    ("(?:a{30}){40,}", "a" * 1210, ["a" * 1200]),
    ("(a{30}){40}", "a" * 1210, ["a" * 1200]),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), MATCHES)
def test_matches(pattern: str, text: str, expected: list[str]) -> None:
    assert found(pattern, text) == expected


@pytest.mark.parametrize(("pattern", "text", "expected"), MATCHES)
def test_the_machine_finds_the_same_matches(pattern: str, text: str, expected: list[str]) -> None:
    parsed = parse(pattern)
    try:
        program = regex_vm.Program(parsed)
    except regex_vm.ProgramTooLarge:
        pytest.fail("a pattern of the table must fit the machine")
    result, at, previous_end = [], 0, -1
    while at <= len(text):
        slots = program.search(text, at)
        if slots is None:
            break
        at = slots[1] + (slots[0] == slots[1] == previous_end)
        if not slots[0] == slots[1] == previous_end:
            result.append(text[slots[0] : slots[1]])
        previous_end = slots[1]
    assert result == expected


INVALID: list[str] = [
    "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?P=n)", r"(a)\1", r"\0", r"\k<n>",
    "a++", "a*+", "a?+", "a{2}+",
    "(", ")", "a)", "(a", "[", "[]", "[a", "[^]", "[[a]", "[[:alpha:]", "*", "+a", "?", "|*", "(*)",
    "(?i)*", "a{", "{", "a{}", "a{,3}", "a{2,1}", "a{x}", "a{99999999999}",
    "[z-a]", r"[a-\d]", r"[\d-a]", r"[a\b]", r"[a-\x{10}]",
    "(?)", "(?i-)", "(?i-i)a", "(?ii)a", "(?q)a", "(?i", "(?#c)",
    "(?<n>a)(?<n>b)", "(?<1a>b)", "(?<>b)", "(?<a-b>c)", "(?<n", "(?P<n",
    "\\", r"\Z", r"\Q", r"\cA", r"\e", r"\é", r"\x", r"\x4", r"\x{}", r"\x{110000}", r"\x{d800}",
    r"\x{41", r"\xGG", r"\u12", r"\p", r"\p{", r"\p{Nope}", r"\pQ", r"\p{sc=Nope}", r"\p{zz=L}",
    "(?-u).", r"(?-u)\W", "(?-u)[^a]", r"(?-u)[é]", r"(?-u)\x80", r"(?-u)\pL",
    "(?:a{1000}){1000000}", "(" * 300 + ")" * 300,
]  # fmt: skip


@pytest.mark.parametrize("pattern", INVALID)
def test_patterns_outside_the_dialect(pattern: str) -> None:
    with pytest.raises(Raised, match=r"^arg_error: invalid regex: .") as caught:
        compile_regex(pattern)
    assert caught.value.error.code == "arg_error"


def test_groups_by_number_and_name() -> None:
    engine = compile_regex(r"(?P<year>\d+)-(?<month>\d+)(-\d+)?").engine
    match = engine.search("é 2031-05 x")
    assert match is not None
    assert (match.start(), match.end()) == (2, 9)
    assert [match.group(key) for key in (0, 1, 2, 3, "year", "month")] == [
        "2031-05",
        "2031",
        "05",
        None,
        "2031",
        "05",
    ]
    for key in (4, -1, "day"):
        with pytest.raises(IndexError):
            match.group(key)


def test_offsets_are_characters_for_every_match() -> None:
    text = "é1日22😀333"
    spans = [(m.start(), m.end()) for m in compile_regex(r"\d+").engine.finditer(text)]
    assert spans == [(1, 2), (3, 5), (6, 9)]


def test_a_regex_is_pickled_as_its_source() -> None:
    again = pickle.loads(pickle.dumps(compile_regex(r"\bé+")))
    assert equal(again, compile_regex(r"\bé+"))
    assert again.engine.search("é").group() == "é"


def test_nested_repetition_takes_linear_time() -> None:
    assert found("(?:a*)*b", "a" * 50_000) == []
    assert found(r"\b(?:a*)*\bb", "é" + "a" * 2_000) == []


ATOMS = st.sampled_from(["a", "b", "é", ".", "[ab]", "[^a]", r"\w", r"\b", r"\B", "^", "$"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("({})".format, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*?", "?", "??", "{1,2}"])),
    ),
    max_leaves=6,
)


@given(PATTERNS, st.text(alphabet="abé -\n", min_size=1, max_size=10))
def test_the_first_match_agrees_with_a_backtracking_engine(pattern: str, text: str) -> None:
    """Python's `re` is Unicode-aware and leftmost-first too; only `$` differs."""
    expected = re.search(pattern.replace("$", r"\Z"), text)
    match = compile_regex(pattern).engine.search(text)
    assert (match is None) is (expected is None)
    if expected is not None:
        assert (match.start(), match.end()) == expected.span()


# --- ranges ---------------------------------------------------------------------------------------

CODES = st.integers(0, 0x10FFFF).filter(lambda code: not 0xD800 <= code <= 0xDFFF)
RANGES = st.lists(st.tuples(CODES, CODES), max_size=4).map(
    lambda pairs: union(tuple((min(p), max(p)) for p in pairs), ())
)


def holds(ranges: Ranges, code: int) -> bool:
    return any(low <= code <= high for low, high in ranges)


@given(RANGES, RANGES, CODES)
def test_set_operations_are_those_of_sets(a: Ranges, b: Ranges, code: int) -> None:
    in_a, in_b = holds(a, code), holds(b, code)
    assert holds(complement(a), code) is not in_a
    assert holds(union(a, b), code) is (in_a or in_b)
    assert holds(intersection(a, b), code) is (in_a and in_b)
    assert holds(difference(a, b), code) is (in_a and not in_b)
    assert holds(symmetric_difference(a, b), code) is (in_a != in_b)
    assert complement(complement(a)) == a


def test_members_of_a_class_are_read_off_the_engine() -> None:
    assert members("[a-c]") == ((0x61, 0x63),)
    assert members("(?s:.)") == EVERYTHING
    assert members("(?i:k)") == ((0x4B, 0x4B), (0x6B, 0x6B), (0x212A, 0x212A))
