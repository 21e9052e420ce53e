"""Canonical source: it reads back as the same tree, it is stable, and it looks like this."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings

from tests.language import test_dispatch, test_grammar, test_literals
from tests.language.strategies import programs, soups
from tests.language.trees import context, spanless
from worker.language import ParseContext, ParseError, decode_ast, parse
from worker.language.format import format_program

STYLE = [
    ("", ""),
    ("# nothing", ""),
    ("let   n:int=1", "let n: int = 1\n"),
    ("export var n = 1;n=2;n += 3", "export var n = 1\nn = 2\nn += 3\n"),
    ("let n = 1\nlet m = n+2*3", "let n = 1\nlet m = (n + (2 * 3))\n"),
    ("let m = n + 1", "let m = n + 1\n"),
    ("fn f( a:int=1, ...r:str )->int{ a }",
     "fn f(a: int = 1, ...r: str) -> int {\n  a\n}\n"),
    ("fn f() {}", "fn f() {}\n"),
    ("for x in f() { x\n ls }", "for x in (f()) {\n  x\n  ls\n}\n"),
    ("-1 + -(2 + 3)", "(-1 + -(2 + 3))\n"),
    ("let f = x => {k: 1}", "let f = (x) => ({k: 1})\n"),
    ("xs.map(.a, by: 1, 2)", "xs.map((__item) => __item.a, 2, by: 1)\n"),
    ("retry(3) { go() }", "retry(3, () => {\n  go()\n})\n"),
    ("{a: 1, 'b c': 2,}", '{a: 1, "b c": 2}\n'),
    ("{ ; }", "{;}\n"),
    ("let r = 1 ..= (2+3)", "let r = 1..=(2 + 3)\n"),
    ("'a\"{\\\t'", '"a\\"\\{\\\\\\t"\n'),
    ('re"a\\d" ; t"2020-01-01"', 're"a\\d"\nt"2020-01-01"\n'),
    ("1kb;1.5s;0x10;2e3;7:05pm;7:05:09", "1000b\n1500000000ns\n16\n2000.0\n19:05\n07:05:09\n"),
    ("match 1 { 1|2 if true => 3, _ => {4} }",
     "match 1 {\n  1 | 2 if true => 3\n  _ => {\n    4\n  }\n}\n"),
    ("A=1 ^x  --dry_run -l >f &", "A=1 ^x --dry-run -l > f &\n"),
    ("x --a=1 --b=(2) --c= ./d", "x --a=1 --b= (2) --c= ./d\n"),
    ("plan {1}", "plan {\n  1\n}\n"),
    ("sh {  echo $x | wc  }", "sh { echo $x | wc }\n"),
    ("sh'''\n  if {\n  '''", "sh'''if {'''\n"),
    ("if a.b {1} else if c {2} else {3}",
     "if (a.b) {\n  1\n} else if c {\n  2\n} else {\n  3\n}\n"),
    ("try {1} catch e {2}", "try {\n  1\n} catch e {\n  2\n}\n"),
    ("with cwd:d, env:{A: 1} {ls}", "with cwd: d, env: {A: 1} {\n  ls\n}\n"),
    ("f() catch 0", "f() catch 0\n"),
    ("ls && wc -l", "(ls && wc -l)\n"),
    ('"a {f("b {1}")} c"', '"a {f("b {1}")} c"\n'),
]  # fmt: skip


@pytest.mark.parametrize(("src", "text"), STYLE)
def test_canonical_source_looks_like(src: str, text: str) -> None:
    assert format_program(parse(src)) == text


def check(src: str, where: ParseContext) -> None:
    """The contract of canonical source, for a source that parses."""
    program = parse(src, where)
    text = format_program(program, where)
    again = parse(text, where)
    assert spanless(again) == spanless(program), text
    assert format_program(again, where) == text


TABLES = [
    *((row[0], tuple(row[1].split())) for row in test_dispatch.STATEMENTS),
    *((row[0], tuple(row[1].split())) for row in test_dispatch.OPERANDS),
    *((row[0], ()) for row in test_dispatch.SCOPES),
    *((row[0], ()) for row in test_grammar.LINES if row[1] is not None),
    *((row[0], ()) for row in test_grammar.EXPRESSIONS if row[1] is not None),
    *((row[0], ()) for row in test_grammar.HEADERS),
    *((f"match 1 {{ {row[0]} }}", ()) for row in test_grammar.ARMS),
    *((f"x {row[0]}", ()) for row in test_grammar.WORDS),
    *((row[0], ()) for row in test_grammar.QUIRKS),
    *((row[0], ()) for row in test_literals.NUMBERS),
    *((row[0], ()) for row in test_literals.STRINGS),
    *((row[0], ()) for row in test_literals.INTERPOLATIONS),
    *((row[0], ()) for row in test_literals.PAYLOADS),
]


@pytest.mark.parametrize(("src", "values"), TABLES)
def test_canonical_source_of_every_form_reads_back(src: str, values: tuple[str, ...]) -> None:
    check(src, context(*values))


@pytest.mark.parametrize("row", test_dispatch.REPL)
def test_canonical_source_reads_back_in_an_interactive_context(row: tuple[str, str]) -> None:
    check(row[0], context(repl=True))


DELICATE = [
    "(let)", "(else)", "(in)", "(v = 1)", "(it x)", "else && x", "1; catch x", "1; else x",
    "x\ncatch 0", "else\ncatch 0", "in => 1", "k => 1 a >> b c", "x \\ ", "^\\ ", "use \\ ",
    "a && ~", "match 1 { q if 1 && ls => 2 }", "match 1 { 1 => 2, catch => 3; else => 4 }",
    "{; k: 1 }", "let f = (a) => {k: 1}", "x.feed(\n a: 1)", "x.feed(\n a)",
    "sh'''\n  a\n \n'''", "sh' a'", "f(\"{g(\"{h('x{}y')}\")}\")", '"{\'\\\'}"',
    '"""\n{a}\n  x {b}\n"""', '"""\n{a}{b}\n"""', "let y = n + 1 < 3", "let y = n..3 == z",
    "let z = x > 0 && ls", "(1).x", "(-1).x", "({}).x", "({;}).x", "(x => x).y", "((x) => x)(1)",
    "go() catch (n.x)", "go() catch ({a: 1})", "go() catch e {a: 1}", "if ({}) {}", "-(-1)",
]  # fmt: skip


@pytest.mark.parametrize("src", DELICATE)
def test_canonical_source_of_delicate_text_reads_back(src: str) -> None:
    check(src, context())


@settings(max_examples=300, deadline=None)
@given(programs)
def test_canonical_source_of_any_program_reads_back(src: str) -> None:
    read = 0
    for where in (context(), context("a", "b", "n", "xs")):
        try:
            parse(src, where)
        except ParseError:
            continue
        check(src, where)
        read += 1
    assume(read)


@settings(max_examples=300, deadline=None)
@given(soups)
def test_canonical_source_of_any_text_that_parses_reads_back(src: str) -> None:
    try:
        parse(src)
    except ParseError:
        return
    check(src, context())


SPAN = '"span":{"start":0,"end":0}'
FOREIGN = {
    "negative literal": f'{{"kind":"int","value":-5,{SPAN}}}',
    "empty name": f'{{"kind":"catch","expr":{{"kind":"null",{SPAN}}},'
    f'"handler":{{"kind":"var","name":"",{SPAN}}},{SPAN}}}',
    "name with a quote": f'{{"kind":"var","name":"a\\"{{",{SPAN}}}',
    "nothing in scope": f'{{"kind":"with","body":{{"stmts":[],{SPAN}}},{SPAN}}}',
    "block in a block": f'{{"kind":"block","block":{{"stmts":[],{SPAN}}},{SPAN}}}',
}


@pytest.mark.parametrize("expr", FOREIGN.values(), ids=FOREIGN.keys())
def test_trees_that_no_source_gives_are_written_somehow(expr: str) -> None:
    program = decode_ast(f'{{"stmts":[{{"kind":"expr","expr":{expr},{SPAN}}}]}}')
    assert format_program(program).endswith("\n")
