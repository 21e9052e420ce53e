"""Numbers, times and strings: what they are worth and what they are not."""

from __future__ import annotations

import pytest

from tests.language.trees import failure, outline, tree

NUMBERS = [
    ("0", "(int 0)"), ("007", "(int 7)"), ("1__2", "(int 12)"), ("7_", "(int 7)"),
    ("9223372036854775807", "(int 9223372036854775807)"),
    ("0x1F", "(int 31)"), ("0Xff_ff", "(int 65535)"), ("0o17", "(int 15)"), ("0b1_1", "(int 3)"),
    ("0x7fffffffffffffff", "(int 9223372036854775807)"),
    ("1.5", "(float 1.5)"), ("1_0.2_5", "(float 10.25)"), ("2e3", "(float 2000.0)"),
    ("2E-1", "(float 0.2)"), ("1.5e+2", "(float 150.0)"),
    ("2.len()", "(method_call (int 2) len ())"), ("1..3", "(range (int 1) (int 3))"),
    ("1.5.abs()", "(method_call (float 1.5) abs ())"),
    ("0b", "(size 0)"), ("1b", "(size 1)"), ("3kb", "(size 3000)"), ("1.5kib", "(size 1536)"),
    ("2mb", "(size 2000000)"), ("1mib", "(size 1048576)"), ("1gb", "(size 1000000000)"),
    ("1gib", "(size 1073741824)"), ("1tb", "(size 1000000000000)"),
    ("1tib", "(size 1099511627776)"), ("1.5b", "(size 2)"), ("2.5b", "(size 3)"),
    ("0.49999999999999994b", "(size 0)"), ("99999999999tb", "(size 18446744073709551615)"),
    ("1_0kb", "(size 10000)"),
    ("1ns", "(duration 1)"), ("2.5ns", "(duration 3)"), ("3us", "(duration 3000)"),
    ("1ms", "(duration 1000000)"), ("90s", "(duration 90000000000)"),
    ("1m", "(duration 60000000000)"), ("1h", "(duration 3600000000000)"),
    ("1d", "(duration 86400000000000)"), ("1w", "(duration 604800000000000)"),
    ("999999w", "(duration 9223372036854775807)"),
    ("7:05", "(time 7 5 0)"), ("07:05:09", "(time 7 5 9)"), ("7:05pm", "(time 19 5 0)"),
    ("12:00am", "(time 0 0 0)"), ("12:30PM", "(time 12 30 0)"), ("0:00", "(time 0 0 0)"),
    ("23:59:59", "(time 23 59 59)"), ("{at:6:45}", "(record [(at (time 6 45 0))])"),
    ("{at:12}", "(record [(at (int 12))])"),
]  # fmt: skip


@pytest.mark.parametrize(("src", "expected"), NUMBERS)
def test_number_is(src: str, expected: str) -> None:
    assert outline(src) == expected


@pytest.mark.parametrize(
    ("src", "message"),
    [
        ("0x", "unknown unit `x`"),
        ("0o8", "unknown unit `o`"),
        ("0b102", "invalid numeric literal"),
        ("0o19", "invalid numeric literal"),
        ("0x" + "f" * 100_000, "invalid numeric literal"),
        ("9" * 100_000, "integer literal out of range"),
        ("1Mb", "must be lowercase"),
        ("1e", "unknown unit `e`"),
        ("1xyz", "unknown unit `xyz`"),
        ("12am", "unknown unit `am`"),
        ("1e1_0", "between statements"),
        ("9:5", "between statements"),
        ("123:45", "between statements"),
        ("9:055", "between statements"),
        ("13:00pm", "between statements"),
        ("0:30am", "between statements"),
        ("0:60", "invalid time literal"),
        ("0:00:60", "invalid time literal"),
        ("12:75pm", "invalid time literal"),
    ],
)
def test_number_is_not(src: str, message: str) -> None:
    assert message in failure(src).message


STRINGS = [
    (r"'\n {x}'", r"\n {x}"),
    (r'"\n\t\r\0\\\"\{\}"', '\n\t\r\0\\"{}'),
    (r'"\u{41}\u{0001F600}\u{e9}"', "A😀é"),
    ('"}"', "}"),
    ('"$x"', "$x"),
    ('"a\tb"', "a\tb"),
    ('""', ""),
    ("''", ""),
    ('""""""', ""),
    ("''''''", ""),
    ('"""a "quoted" b"""', 'a "quoted" b'),
    ("'''it's'''", "it's"),
    # dedent of raw text
    ("'''\n  a\n    b\n  '''", "a\n  b"),
    ("'''\n  a\n\n  b'''", "a\n\nb"),
    ("'''a\n  b'''", "a\n  b"),
    ("'''  a\n  b'''", "a\nb"),
    ("'''\n\n  a\n'''", "\na"),
    ("'''\n  a\n \n'''", "a\n"),
    ("'''\r\n  a\n  '''", "\na"),
    ("'''\n  a\r\n  b\n'''", "a\nb"),
    ("'''\n\ta\n\tb\n'''", "a\nb"),
    # dedent of decoded text
    ('"""\n  a\n    b\n  """', "a\n  b"),
    ('"""\n  a\n\n  b\n"""', "a\n\nb"),
    (r'"""\n  a\n  b"""', "a\nb"),
    ('"""\n\\ta\n\\tb\n"""', "a\nb"),
    ('"""\r\n  a\n  """', "\r\na"),
]


@pytest.mark.parametrize(("src", "value"), STRINGS)
def test_string_is(src: str, value: str) -> None:
    assert tree(src)["stmts"][0]["expr"]["value"] == value


INTERPOLATIONS = [
    ('"a{b}c"', "(str_interp [(lit a) (expr (cmd b)) (lit c)])"),
    ('"{a}{b}"', "(str_interp [(expr (cmd a)) (expr (cmd b))])"),
    ('"{ 1 +\n # sum\n 2 }"', "(str_interp [(expr (binary add (int 1) (int 2)))])"),
    ('"{hostname -s}"', "(str_interp [(expr (cmd hostname (flag_short s)))])"),
    ('"{f("b {c} d")}"',
     '(str_interp [(expr (fn_call f ([(str_interp [(lit "b ") (expr (cmd c)) (lit " d")])])))])'),
    ('"{{a: 1}.a}"', "(str_interp [(expr (field (record [(a (int 1))]) a))])"),
    ("\"{'}'}\"", "(str_interp [(expr (str }))])"),
    ('"{"\\"}"}"', '(str_interp [(expr (str "}))])'),
    ('"""\n  {a}\n  {b}\n"""',
     '(str_interp [(lit "") (expr (cmd a)) (lit "") (expr (cmd b)) (lit "")])'),
    ('"""\n  x {a}\n    y\n"""', '(str_interp [(lit "x ") (expr (cmd a)) (lit \n  y)])'),
    ('"""{a}\n  b"""', "(str_interp [(expr (cmd a)) (lit \n  b)])"),
]  # fmt: skip


@pytest.mark.parametrize(("src", "expected"), INTERPOLATIONS)
def test_string_with_holes_is(src: str, expected: str) -> None:
    found = outline(src).replace("\\n", "\n").replace('\\"', '"')
    assert found.replace('"\n  y"', "\n  y").replace('"\n  b"', "\n  b") == expected


@pytest.mark.parametrize(
    ("src", "value"),
    [('re"a\\d{2}"', "a\\d{2}"), ('re"a\nb"', "a\nb"), ('re""', "")],
)
def test_tagged_content_is_raw(src: str, value: str) -> None:
    assert tree(src)["stmts"][0]["expr"]["src"] == value


def test_tags_are_words_in_commands() -> None:
    assert outline('x re"a" t"b"') == "(cmd x (word re) (str (str a)) (word t) (str (str b)))"


PAYLOADS = [
    ('sh { echo "}" \'{\' "\\"}" }', 'echo "}" \'{\' "\\"}"'),
    ("sh {}", ""),
    ("sh {\n  a { b }\n}", "a { b }"),
    ("node'x => {'", "x => {"),
    ("lua'''\n  if {\n  '''", "if {"),
]


@pytest.mark.parametrize(("src", "payload"), PAYLOADS)
def test_payload_of_an_interpreter_block(src: str, payload: str) -> None:
    assert tree(src)["stmts"][0]["expr"]["src"] == payload


def test_a_brace_in_a_foreign_comment_ends_the_block() -> None:
    assert failure("sh { echo $x | wc # } }").message == "expected expression, found RBrace"


def test_an_interpreter_block_is_an_expression() -> None:
    assert outline("jq { . }.out") == "(field (lang_block jq .) out)"
    assert outline("jq { . } && x") == "(binary and (lang_block jq .) (cmd x))"
    assert "not an operator" in failure("jq { . } &").message
