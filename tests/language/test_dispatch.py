"""What begins a statement, a group or an operand decides between command and expression."""

from __future__ import annotations

import pytest

from tests.language.trees import failure, outline, tree

# Source, names bound to values, outline.
STATEMENTS = [
    # path heads
    ("/bin/ls -a", "", "(cmd /bin/ls (flag_short a))"),
    ("./build.sh x", "", "(cmd ./build.sh (word x))"),
    ("../up", "", "(cmd ../up)"),
    ("~/bin/x", "", "(cmd ~/bin/x)"),
    ("~", "", "(cmd ~)"),
    ("~ ; 1", "", "(cmd ~); (int 1)"),
    # interpreter blocks
    ("jq { .a | .b }", "", '(lang_block jq ".a | .b")'),
    ("jq{.a}", "", "(lang_block jq .a)"),
    ("sh'a b'", "", '(lang_block sh "a b")'),
    ("sh 'a'", "", "(cmd sh (str (str a)))"),
    ('sh "a"', "", "(cmd sh (str (str a)))"),
    ("python3 x.py", "", "(cmd python3 (word x.py))"),
    ("^sh { ls }", "", "(cmd sh forced trailing:([(cmd ls)]))"),
    ("A=1 sh { ls }", "", "(cmd sh env:A=(word 1) trailing:([(cmd ls)]))"),
    ("sh { x }", "sh", "(lang_block sh x)"),
    # prefixes and assignments
    ("mode=fast run", "", "(cmd run env:mode=(word fast))"),
    ("mode= run", "", '(cmd run env:mode=(word ""))'),
    ("mode=fast ^run", "", "(cmd run env:mode=(word fast) forced)"),
    ("n=1 + 2", "", "(cmd + (word 2) env:n=(word 1))"),
    ("n=1 + 2", "n", "(cmd + (word 2) env:n=(word 1))"),
    ("mode=fast", "", "(assign (var mode) set (var fast))"),
    ("mode=1 # why", "", "(assign (var mode) set (int 1))"),
    ("{ mode=1 }", "", "(block ([(assign (var mode) set (int 1))]))"),
    ("xs=[1, 2]", "", "(assign (var xs) set (list [(int 1) (int 2)]))"),
    ("LC_ALL=C\nsort", "", "(assign (var LC_ALL) set (var C)); (cmd sort)"),
    ("echo = hi", "", "(assign (var echo) set (var hi))"),
    ("n -= 1", "", "(assign (var n) sub (int 1))"),
    ("n *= 1; n /= 2", "", "(assign (var n) mul (int 1)); (assign (var n) div (int 2))"),
    ("sh = 1", "", "(assign (var sh) set (int 1))"),
    ("env.A += 1", "", "(assign (field (var env) A) add (int 1))"),
    ("env . A = 1", "", "(assign (field (var env) A) set (int 1))"),
    ("env.A == 1", "", "(binary eq (field (var env) A) (int 1))"),
    # glued access
    ("ls.len()", "", "(method_call (var ls) len ())"),
    ("ls?.len", "", "(field (var ls) len optional)"),
    ("ls(1)", "", "(fn_call ls ([(int 1)]))"),
    ("ls[0]", "", "(index (var ls) (int 0))"),
    ("ls .len", "", "(cmd ls (word .len))"),
    ("ls (1)", "", "(cmd ls (expr (int 1)))"),
    ("cd..", "", "(cmd cd..)"),
    # bound names
    ("count -1", "", "(cmd count (flag_short 1))"),
    ("count -1", "count", "(binary sub (var count) (int 1))"),
    ("count", "", "(cmd count)"),
    ("count", "count", "(var count)"),
    ("f (1)", "f", "(fn_call f ([(int 1)]))"),
    ("x..3", "x", "(range (var x) (int 3))"),
    # other identifiers
    ("apt-get -y install g++", "", "(cmd apt-get (flag_short y) (word install) (word g++))"),
    ("x:y", "", "(cmd x:y)"),
    ("x := 1", "", "(cmd x (word :=) (word 1))"),
    ("k => 1", "", "(cmd k (word =) out:(word 1))"),
    ("fi", "", "(cmd fi)"),
    ("else", "", "(cmd else)"),
    ("catch x", "", "(cmd catch (word x))"),
    ("in", "", "(cmd in)"),
    ("elif x", "", "(cmd elif (word x))"),
    ("set -e", "", "(cmd set (flag_short e))"),
    ("local a=1", "", "(cmd local (word a=1))"),
    ("re 'a'", "", "(cmd re (str (str a)))"),
    # forced
    ("^ls -a", "ls", "(cmd ls (flag_short a) forced)"),
    ("^ ls", "", "(cmd ls forced)"),
    ("^it", "", "(cmd it forced)"),
    # expressions
    ('"prog" -v', "", "(binary sub (str prog) (var v))"),
    ('re"a"', "", "(regex a)"),
    ('t"2020-01-01"', "", "(date_time 2020-01-01)"),
    ("(a) => 1", "", "(lambda [(a)] (int 1))"),
    ("-3", "", "(unary neg (int 3))"),
    ("null", "", "(null)"),
    ("{ k: 1 }", "", "(record [(k (int 1))])"),
    ("name() { ls }", "", "(fn_call name ([(lambda (block ([(cmd ls)])))]))"),
    ("plan { 1 }", "", "(cmd plan trailing:([(int 1)]))"),
]


@pytest.mark.parametrize(("src", "values", "expected"), STATEMENTS)
def test_statement_is_read_as(src: str, values: str, expected: str) -> None:
    assert outline(src, *values.split()) == expected


OPERANDS = [
    ("(ls -a)", "", "(cmd ls (flag_short a))"),
    ("(^ls)", "", "(cmd ls forced)"),
    ("(./x y)", "", "(cmd ./x (word y))"),
    ("(~/x y)", "", "(cmd ~/x (word y))"),
    ("(LANG=C sort)", "", "(cmd sort env:LANG=(word C))"),
    ("(v = 1)", "", "(cmd v (word =) (word 1))"),
    ("(v)", "", "(cmd v)"),
    ("(v)", "v", "(var v)"),
    ("(v - 1)", "", "(cmd v (dash) (word 1))"),
    ("(v - 1)", "v", "(binary sub (var v) (int 1))"),
    ("(v.x)", "", "(field (var v) x)"),
    ("(v(1))", "", "(fn_call v ([(int 1)]))"),
    ("(v => 1)", "", "(lambda [(v)] (int 1))"),
    ('(re"a")', "", "(regex a)"),
    ("(sh { x })", "", "(lang_block sh x)"),
    ("(let)", "", "(var let)"),
    ("(if true { 1 })", "", "(if (bool true) ([(int 1)]))"),
    ("(date -u).out", "", "(field (cmd date (flag_short u)) out)"),
    ("(ls &)", "", "(cmd ls background)"),
    ("(\n ls -a\n)", "", "(cmd ls (flag_short a))"),
    ("a && b", "", "(binary and (cmd a) (cmd b))"),
    ("a && b c || d", "", "(binary or (binary and (cmd a) (cmd b (word c))) (cmd d))"),
    ("a || b == c", "", "(binary or (cmd a) (cmd b (word ==) (word c)))"),
    ("a || b == c", "b", "(binary or (cmd a) (binary eq (var b) (var c)))"),
    ("a && ./x", "", "(binary and (cmd a) (cmd ./x))"),
    ("a && !b", "", "(binary and (cmd a) (unary not (var b)))"),
    ("a && if true { 1 }", "", "(binary and (cmd a) (if (bool true) ([(int 1)])))"),
    ("n + 1 && ls", "n", "(binary and (binary add (var n) (int 1)) (cmd ls))"),
    ("let a = ls -a", "", "(let (bind a) (binary sub (var ls) (var a)))"),
    ("let a = (ls -a)", "", "(let (bind a) (cmd ls (flag_short a)))"),
    (
        '"x".feed(sort -u > o)',
        "",
        "(method_call (str x) feed ([(cmd sort (flag_short u) out:(word o))]))",
    ),
    ('"x".feed(./tool a)', "", "(method_call (str x) feed ([(cmd ./tool (word a))]))"),
    ('"x".feed(c)', "c", "(method_call (str x) feed ([(var c)]))"),
    ('"x".feed(\n c)', "", "(method_call (str x) feed ([(var c)]))"),
    ('"x".feed(y => 1)', "", "(method_call (str x) feed ([(lambda [(y)] (int 1))]))"),
    ('"x".fed(c)', "", "(method_call (str x) fed ([(var c)]))"),
]


@pytest.mark.parametrize(("src", "values", "expected"), OPERANDS)
def test_group_or_operand_is_read_as(src: str, values: str, expected: str) -> None:
    assert outline(src, *values.split()) == expected


SCOPES = [
    ("let n = 4\nn - 1", "(let (bind n) (int 4)); (binary sub (var n) (int 1))"),
    ("let _ = 4\n_ - 1", "(let (wildcard) (int 4)); (cmd _ (dash) (word 1))"),
    ("let n = (n)", "(let (bind n) (cmd n))"),
    ("{ let n = 1 }\nn", "(block ([(let (bind n) (int 1))])); (cmd n)"),
    ("n = 1\nn", "(assign (var n) set (int 1)); (cmd n)"),
    ("fn f(a) { a }\nf a", "(fn (f [(a)] ([(var a)]))); (cmd f (word a))"),
    ("fn f(a, b = (a)) { b }", "(fn (f [(a) (b (cmd a))] ([(var b)])))"),
    ("fn f(...r) { r }", "(fn (f ([(var r)]) (r)))"),
    ("let f = x => (x)\n(x)", "(let (bind f) (lambda [(x)] (var x))); (cmd x)"),
    ("let f = 1\nfn f() {}\nf", "(let (bind f) (int 1)); (fn (f ())); (var f)"),
    ("for i in [1] { i }\ni", "(for (bind i) (list [(int 1)]) ([(var i)])); (cmd i)"),
    ("match 1 { a | b if (a) => (b) }", "(match (int 1) [([(bind a) (bind b)] (var b) (var a))])"),
    ("match 1 { {k, x: [h, ...t]} => [(k), (h), (t), (x)] }",
     "(match (int 1) [([(record [(k) (x (list [(bind h)] t))])] "
     "(list [(var k) (var h) (var t) (cmd x)]))])"),
    ("go() catch e { e }", "(catch (fn_call go ()) (block ([(cmd e)])) e)"),
    ("try { 1 } catch e { e.code }",
     "(try ([(int 1)]) ([(field (var e) code)]) (bind e))"),
    ("alias a = b\na c", "(alias a b); (cmd a (word c))"),
    ("path", "(var path)"),
    ("glob; regex", "(var glob); (var regex)"),
    ('let n = 1\n"{n} {m}"',
     '(let (bind n) (int 1)); (str_interp [(expr (var n)) (lit " ") (expr (cmd m))])'),
]  # fmt: skip


@pytest.mark.parametrize(("src", "expected"), SCOPES)
def test_names_are_value_bound_where(src: str, expected: str) -> None:
    assert outline(src) == expected


@pytest.mark.parametrize(
    ("src", "message"),
    [
        ('A="x" run', 'expected command head, found Str("x")'),
        ("A=(x) run", "expected command head, found LParen"),
        ("tool.sh a", "between statements"),
        ("7z l a", "unknown unit `z`"),
        ("n$ 1", "no sigil"),
        ("f?x", 'expected command head, found GlobWord("f?x")'),
        ("n =>", "expected command argument"),
        ("(a b", "expected `)`"),
        ("(v=1)", "expected command head, found RParen"),
        ('"x".feed(a && b)', "expected `)`"),
        ("let x = ^ls", "expected expression, found Caret"),
    ],
)
def test_these_heads_fail(src: str, message: str) -> None:
    assert message in failure(src).message


REPL = [
    (".len()", "(method_call (var it) len ())"),
    (". len + 1", "(binary add (field (var it) len) (int 1))"),
    (".a catch 0", "(catch (field (var it) a) (int 0))"),
    ("./x", "(cmd ./x)"),
    ("../x", "(cmd ../x)"),
    ("it + 1", "(binary add (var it) (int 1))"),
    ("out[2]", "(index (var out) (int 2))"),
    ("(it)", "(var it)"),
    ('"{it}"', "(str_interp [(expr (var it))])"),
    ("it = 1", "(assign (var it) set (int 1))"),
]


@pytest.mark.parametrize(("src", "expected"), REPL)
def test_interactive_source_may_use_results(src: str, expected: str) -> None:
    assert outline(src, repl=True) == expected


def test_a_leading_dot_line_has_an_empty_receiver_span() -> None:
    expr = tree(" .a", repl=True)["stmts"][0]["expr"]
    assert expr["recv"] == {"kind": "var", "name": "it", "span": {"start": 1, "end": 1}}


LEGAL_RESULT_NAMES = [
    "let it = 1", "fn f(it, ...out) {}", "let f = (it) => 1", "{it: 1}.it", "f(out: 1)",
    "match 1 { it => 2 }", "for out in [] {}", "^it", "echo (it)", "ls && it", "1.feed(it)",
    "(it x)",
]  # fmt: skip


@pytest.mark.parametrize("src", LEGAL_RESULT_NAMES)
def test_result_names_are_ordinary_where_they_are_not_read(src: str) -> None:
    outline(src)


ILLEGAL_RESULT_NAMES = [
    ("it", 0, 2), ("out", 0, 3), ("it x", 0, 2), ("it-x", 0, 2), ("it.x", 0, 2), ("(it)", 1, 3),
    ("( it\n)", 2, 4), ("[it]", 1, 3), ("f(out)", 2, 5), ("let x = it", 8, 10), ("it = 3", 0, 2),
    ("1 + it", 4, 6), ('"{it}"', 0, 2), ("let it = 1\nit", 11, 13), ("let f = (it) => it", 16, 18),
    ("for it in [] { it }", 15, 17), ("match 1 { it => it }", 16, 18),
]  # fmt: skip


@pytest.mark.parametrize(("src", "start", "end"), ILLEGAL_RESULT_NAMES)
def test_result_names_are_refused_in_scripts(src: str, start: int, end: int) -> None:
    error = failure(src)
    name = "out" if "out" in src else "it"
    assert f"`{name}` is REPL-only" in error.message
    assert "bind a variable to reuse a previous result" in (error.hint or "")
    assert (error.span.start, error.span.end) == (start, end)
