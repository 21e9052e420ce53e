"""Any text has an answer, in time that grows with its length, however it nests."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given, settings

from tests.language.strategies import soups
from tests.language.trees import context, failure, outline
from worker.language import ParseError, Program, decode_ast, parse
from worker.language.complete import classify, complete
from worker.language.cursor import HEIGHT_MAX
from worker.language.format import format_program

T = TypeVar("T")
CONTEXTS = [context(), context("a", "n", "x1"), context(repl=True)]


@settings(max_examples=1_000, deadline=None)
@given(soups)
def test_any_text_parses_or_raises_a_parse_error(src: str) -> None:
    for where in CONTEXTS:
        try:
            program = parse(src, where)
        except ParseError as error:
            size = len(src.encode("utf-8", "surrogatepass"))
            assert 0 <= error.span.start <= error.span.end <= size
            assert error.message
        else:
            msgspec.json.encode(program)


@settings(max_examples=300, deadline=None)
@given(soups)
def test_every_prefix_can_be_classified_and_completed(src: str) -> None:
    for end in range(len(src) + 1):
        prefix = src[:end]
        complete(prefix)
        try:
            parse(prefix)
        except ParseError as error:
            assert classify(prefix, error) in ("incomplete", "error")


def in_default_thread(work: Callable[[], T]) -> T:
    """Run on a thread with the stack that threads get by default."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(work).result()


# Opening, middle and closing text of one level.
NESTED = [
    ("(", "1", ")"), ("[", "1", "]"), ("{ ", "1", " }"), ("{a: ", "1", "}"), ("f(", "1", ")"),
    ("a[", "1", "]"), ("if a { ", "1", " }"), ("if a.b { ", "1", " }"), ("a.b { ", "1", " }"),
    ("while a.b { ", "1", " }"), ("for x in a.b { ", "1", " }"), ("with cwd: a() { ", "1", " }"),
    ("match a { x => { ", "1", " } }"), ("match a.b { x => ", "1", " }"),
    ("match a.b { n if n > (c) => ", "1", " }"), ("() => { ", "1", " }"), ("f(x => ", "1", ")"),
    ("fn f() { ", "1", " }"), ("spawn { ", "1", " }"), ("try { ", "1", " } catch { }"),
    ("f() catch e ", "1", ""), ("(a ", "1", ")"), ("a (b ", "1", ")"), ("a b { ", "1", " }"),
    ("a.feed(b (", "c", "))"), ("a.map(.b(", "1", "))"), ("f(1) { ", "1", " }"),
    ("-", "1", ""), ("!", "x", ""), ("1 + (2 * ", "3", ")"), ("f(1)(", "2", ")"),
    ("let x: a<", "int", ">"), ("match x { [", "a", "]"),
]  # fmt: skip
LEVELS = 200


def nested(opening: str, middle: str, closing: str) -> str:
    if opening.startswith("let"):
        return f"let x: {'a<' * LEVELS}int{'>' * LEVELS} = 1"
    if opening.startswith("match x"):
        return f"match x {{ {'[' * LEVELS}a{']' * LEVELS} => 1 }}"
    return opening * LEVELS + middle + closing * LEVELS


@pytest.mark.parametrize(("opening", "middle", "closing"), NESTED)
def test_two_hundred_levels_parse_encode_decode_and_format(
    opening: str, middle: str, closing: str
) -> None:
    src = nested(opening, middle, closing)

    def work() -> None:
        program = parse(src)
        assert decode_ast(msgspec.json.encode(program)) == program
        parse(format_program(program))

    in_default_thread(work)


def test_two_hundred_levels_of_holes_are_bounded_by_quotes_not_by_the_parser() -> None:
    # Strings in holes pair their quotes naively, so nesting shows in braces.
    src = '"{' + "{a: " * LEVELS + "1" + "}" * LEVELS + '}"'
    assert in_default_thread(lambda: parse(src)).stmts


TOO_DEEP = [
    "(", "[", "{", "{\n", "-", "!", "f(", "a[", "a.", "a?.", "x.y(", "a.b{", "{a: ", '{"a": ',
    "if a.b { ", "if ", "match a.b { x => ", "match a.b { _ => ", "match a.b { n if n > (c) => ",
    "match ", "while a.b {", "with cwd: a.b {", "for x in a.b {", "fn f() { ", "spawn {", "try {",
    "(cmd ", "cmd (", "a b{", "1+", "1 ?? ", "1..", "a && ", "ls &&\n", "if a { } else ",
    "f(x => ", "(a) => ", "f(1)(", "(a)(", "a.feed(b (", "a.map(.b(", "cmd >> (", "({", "(-",
]  # fmt: skip


@pytest.mark.parametrize("unit", TOO_DEEP)
def test_deeper_is_an_ordinary_error(unit: str) -> None:
    src = unit * (40_000 // len(unit))

    def work() -> ParseError:
        return failure(src)

    assert "nesting too deep" in in_default_thread(work).message


def test_a_long_chain_is_a_tree_within_the_height_limit_or_an_error() -> None:
    longest = "+".join(["1"] * (HEIGHT_MAX - 10))

    def work() -> Program:
        program = parse(longest)
        msgspec.json.encode(program)
        parse(format_program(program))
        return program

    in_default_thread(work)


@pytest.mark.parametrize("unit", ["1+", "1 && ", "1 ?? ", "1..", "a.", "f().", "a()("])
def test_a_chain_of_a_hundred_thousand_is_an_error(unit: str) -> None:
    src = unit * 100_000 + "1"
    assert "nesting too deep" in in_default_thread(lambda: failure(src)).message


def test_long_flat_sources_are_no_nesting() -> None:
    assert len(parse("x = 1\n" * 10_000).stmts) == 10_000
    assert outline("[" + "1," * 10_000 + "]").count("(int 1)") == 10_000
    arms = "".join(f"{number} => {{ {number} }}\n" for number in range(5_000))
    assert parse(f"match 1 {{ {arms} }}").stmts


def seconds(src: str) -> float:
    """Best of three, without the collector's own schedule."""
    best = float("inf")
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            start = time.process_time()
            with suppress(ParseError):
                parse(src)
            best = min(best, time.process_time() - start)
    finally:
        gc.enable()
    return best


LINEAR = [
    "x\n", ";", "\n", "#\n", "\\\n", "ls -a ./b *.c\n", "let x = f(1, [2], {a: 3}) + 4\n",
    '"{', '"{a}"\n', '"{"{', "'", '"', '"""', "'''\n", "sh {", "sh { } ", "a catch ", "\ncatch ",
    "\nelse ", "if a.b { 1 }\n", "match a.b { _ => 1 }\n", "match a.b { n if n > (c) => 1 }\n",
    "x=1\n", "x=1 ", "cmd --a= ", "cmd > ", "x => ", "(a: b<", "é\n", "x é\n", "1_", "0x1", "9:",
    '"\\u{41}"\n', '"""\n a\n', "f()\n.a\n\n", "fn f(a: int = 1) { a }\n", "{ x }\n", "a.b(",
    "else if a {} ", "[a, ", "a && b\n", "(it", '{"{',
]  # fmt: skip
SIZE = 8_000
GROWTH = 4
# Four times the text may take four times as long, with generous room for noise, not sixteen times.
RATIO_MAX = 10
NOISE_S = 0.02


@pytest.mark.parametrize("unit", LINEAR)
def test_time_grows_with_the_length_of_the_text(unit: str) -> None:
    count = SIZE // len(unit)
    small = seconds(unit * count)
    large = seconds(unit * count * GROWTH)
    assert large <= small * RATIO_MAX + NOISE_S


HEADERS = [
    "if a.b {{ {} }}",
    "while f() {{ {} }}",
    "with cwd: a() {{ {} }}",
    "if x && b {{ {} }}",
    "match a.b {{ x => {{ {} }} }}",
    "match f() {{ n if n > (c) => {{ {} }} }}",
]


@pytest.mark.parametrize("template", HEADERS)
def test_time_does_not_multiply_with_nested_headers(template: str) -> None:
    def source(depth: int) -> str:
        src = "1\n" * 200
        for _ in range(depth):
            src = template.format(src)
        return src

    shallow = seconds(source(20))
    deep = seconds(source(80))
    assert deep <= shallow * RATIO_MAX + NOISE_S
