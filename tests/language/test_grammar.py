"""Grammar: where lines go on, precedence, headers, patterns, arguments, quirks and extensions."""

from __future__ import annotations

import pytest

from tests.language.trees import failure, outline, tree

LINES = [
    ("(\n1\n)", "(int 1)"),
    ("f(\n1\n,\n2\n,\n)", "(fn_call f ([(int 1) (int 2)]))"),
    ("[\n1\n,\n2\n]", "(list [(int 1) (int 2)])"),
    ("{\na: 1\n,\nb: 2\n}", "(record [(a (int 1)) (b (int 2))])"),
    ("1 +\n\n # two\n 2", "(binary add (int 1) (int 2))"),
    ("a &&\nb", "(binary and (cmd a) (cmd b))"),
    ("1 in\n[1]", "(binary in (int 1) (list [(int 1)]))"),
    ("f()\n.a\n ?.b\n\n # c\n.c()",
     "(method_call (field (field (fn_call f ()) a) b optional) c ())"),
    ("1\n[2]", "(int 1); (list [(int 2)])"),
    ("f()\n(2)", "(fn_call f ()); (int 2)"),
    ("f()\n./x", "(fn_call f ()); (cmd ./x)"),
    ("(ls -a)\n.len()", "(method_call (cmd ls (flag_short a)) len ())"),
    ("if true { 1 }\n\n# c\nelse { 2 }", "(if (bool true) ([(int 1)]) (block ([(int 2)])))"),
    ("if true { 1 }\nelse if false { 2 }\nelse { 3 }",
     "(if (bool true) ([(int 1)]) (if (bool false) ([(int 2)]) (block ([(int 3)]))))"),
    ("f()\n# c\n\ncatch e 0", "(catch (fn_call f ()) (int 0) e)"),
    ("ls -a\ncatch e { 1 }", "(catch (cmd ls (flag_short a)) (block ([(int 1)])) e)"),
    ("let x = f()\ncatch 0", "(let (bind x) (catch (fn_call f ()) (int 0)))"),
    ("1; catch x", "(int 1); (cmd catch (word x))"),
    ("1 \\\n + 2", "(binary add (int 1) (int 2))"),
    ("1 \\\r\n + 2", "(binary add (int 1) (int 2))"),
    ("ls \\\n -a", "(cmd ls (flag_short a))"),
    ("ls a\\\n1", "(cmd ls (word a\\)); (int 1)"),
    ("#!/usr/bin/env shoal\n1", "(int 1)"),
    ("ls a#b # c\n1", "(cmd ls (word a#b)); (int 1)"),
    (";;1;;2;", "(int 1); (int 2)"),
    ("\r\n1\r\n2\r\n", "(int 1); (int 2)"),
    ("{ 1\n2 }", "(block ([(int 1) (int 2)]))"),
    ("match 1 {\n1\n=> 2 }", None),
    ("let x = \n1", None),
    ("x =>\n1", None),
    ("{a:\n1}", None),
    ("if true\n{ 1 }", None),
    ("if true { 1 } else\n{ 2 }", None),
    ("match 1 { 1 |\n2 => 3 }", None),
    ("fn f(a,\nb) {}", None),
    ("(a,\nb) => 1", None),
    ("ls -a\n.len()", None),
]  # fmt: skip


@pytest.mark.parametrize(("src", "expected"), LINES)
def test_a_statement_ends_at_its_line_or_goes_on(src: str, expected: str | None) -> None:
    if expected is None:
        failure(src)
    else:
        assert outline(src).replace("\\\\", "\\") == expected


EXPRESSIONS = [
    ("-2.abs()", "(unary neg (method_call (int 2) abs ()))"),
    ("!true == false", "(binary eq (unary not (bool true)) (bool false))"),
    ("1 - 2 - 3", "(binary sub (binary sub (int 1) (int 2)) (int 3))"),
    ("8 / 4 % 3 * 2", "(binary mul (binary rem (binary div (int 8) (int 4)) (int 3)) (int 2))"),
    ("1 + 2 * 3 - 4", "(binary sub (binary add (int 1) (binary mul (int 2) (int 3))) (int 4))"),
    ("1..2 + 3", "(range (int 1) (binary add (int 2) (int 3)))"),
    ("1..2..3", "(range (range (int 1) (int 2)) (int 3))"),
    ("1..=2 == 3", "(binary eq (range (int 1) (int 2) inclusive) (int 3))"),
    ("1 < 2 && 3 > 4",
     "(binary and (binary lt (int 1) (int 2)) (binary gt (int 3) (int 4)))"),
    ("1 || 2 && 3", "(binary or (int 1) (binary and (int 2) (int 3)))"),
    ("1 ?? 2 || 3", "(binary coalesce (int 1) (binary or (int 2) (int 3)))"),
    ("1 ?? 2 ?? 3", "(binary coalesce (binary coalesce (int 1) (int 2)) (int 3))"),
    ("1 <= 2", "(binary le (int 1) (int 2))"),
    ("1 >= 2", "(binary ge (int 1) (int 2))"),
    ("1 != 2", "(binary ne (int 1) (int 2))"),
    ("3 -1", "(binary sub (int 3) (int 1))"),
    ("--1", "(unary neg (unary neg (int 1)))"),
    ("true == (1 < 2)", "(binary eq (bool true) (binary lt (int 1) (int 2)))"),
    ("f(a => b => 1)", "(fn_call f ([(lambda [(a)] (lambda [(b)] (int 1)))]))"),
    ("f(1 + a => 2)", None),
    ("let f = () => 1 catch 0", "(let (bind f) (lambda (catch (int 1) (int 0))))"),
    ("let f = (a, b: list<int>?) => 1",
     "(let (bind f) (lambda [(a) (b (list [(int)] optional))] (int 1)))"),
    ("let f = (a,) => 1", None),
    ("let f = (a = 1) => 1", None),
    ("let f = null => 1", "(let (bind f) (lambda [(null)] (int 1)))"),
    ("f(1)(2) { 3 }",
     "(block ([(let (bind __iife) (fn_call f ([(int 1)]))) "
     "(fn_call __iife ([(int 2) (lambda (block ([(int 3)])))]))]))"),
    ("f.g()()",
     "(block ([(let (bind __iife) (method_call (var f) g ())) (fn_call __iife ())]))"),
    ("x.m { 1 }.n", "(field (method_call (var x) m ([(lambda (block ([(int 1)])))])) n)"),
    ("x?.m(1) { 2 }",
     "(method_call (var x) m ([(int 1) (lambda (block ([(int 2)])))]) optional)"),
    ("x?.m { 2 }", None),
    ("x.m() { 1 } { 2 }", None),
    ("f(a: 1, 2, b: 3, a: 4)", "(fn_call f ([(int 2)] [(a (int 1)) (b (int 3)) (a (int 4))]))"),
    ("f(if: 1, in: 2).match", "(field (fn_call f ([(if (int 1)) (in (int 2))])) match)"),
    ("f(.a, .b.c > 1, .d catch 0)",
     "(fn_call f ([(lambda [(__item)] (field (var __item) a)) "
     "(lambda [(__item)] (binary gt (field (field (var __item) b) c) (int 1))) "
     "(lambda [(__item)] (catch (field (var __item) d) (int 0)))]))"),
    ("a() catch 1 catch 2", "(catch (fn_call a ()) (catch (int 1) (int 2)))"),
    ("a() catch { 1 } catch 2",
     "(catch (catch (fn_call a ()) (block ([(int 1)]))) (int 2))"),
    ("1 + a() catch e 2", "(catch (binary add (int 1) (fn_call a ())) (int 2) e)"),
    ("a() catch null", None),
    ("a() catch { null }", "(catch (fn_call a ()) (block ([(null)])))"),
    ("ls catch x", "(cmd ls (word catch) (word x))"),
    ("{}", "(record)"),
    ("{ }", "(record)"),
    ("{\n}", "(block ())"),
    ("{ # c\n}", "(block ())"),
    ("{ ; }", "(block ())"),
    ("{a: 1, 'b c': 2,}", '(record [(a (int 1)) ("b c" (int 2))])'),
    ("{\n\n  a: 1}", "(record [(a (int 1))])"),
    ('{"a"}', "(block ([(str a)]))"),
    ("{ls -a}", "(block ([(cmd ls (flag_short a))]))"),
    ("with cwd: 1, env: {a: 1}, cwd: 2 { 3 }",
     "(with ([(int 3)]) (int 2) (record [(a (int 1))]))"),
    ("spawn { 1 }.await()", "(method_call (spawn ([(int 1)])) await ())"),
    ("[else, catch]", "(list [(var else) (var catch)])"),
    ("[else]", "(list [(var else)])"),
]  # fmt: skip


@pytest.mark.parametrize(("src", "expected"), EXPRESSIONS)
def test_expression_is_read_as(src: str, expected: str | None) -> None:
    if expected is None:
        failure(src)
    else:
        assert outline(src) == expected


HEADERS = [
    ("if retry(2) { probe() } { 1 }",
     "(if (fn_call retry ([(int 2) (lambda (block ([(fn_call probe ())])))])) ([(int 1)]))"),
    ("if r.ok { 1 }", "(if (field (var r) ok) ([(int 1)]))"),
    ("if r.ok { 1 } else { 2 }", "(if (field (var r) ok) ([(int 1)]) (block ([(int 2)])))"),
    ("if f() { 1 } else if g.x { 2 }",
     "(if (fn_call f ()) ([(int 1)]) (if (field (var g) x) ([(int 2)])))"),
    ("if 1 > 0 && ready { 1 }",
     "(if (binary and (binary gt (int 1) (int 0)) (cmd ready)) ([(int 1)]))"),
    ("if (ready x) { 1 }", "(if (cmd ready (word x)) ([(int 1)]))"),
    ("if ready { 1 }", "(if (var ready) ([(int 1)]))"),
    ("while q.more() { 1 }", "(while (method_call (var q) more ()) ([(int 1)]))"),
    ('match p.ext { "a" => 1 }', "(match (field (var p) ext) [([(lit (str a))] (int 1))])"),
    ("match p.ext { v => 1 }", "(match (field (var p) ext) [([(bind v)] (int 1))])"),
    ("match f() { 1 } { v => 1 }",
     "(match (fn_call f ([(lambda (block ([(int 1)])))])) [([(bind v)] (int 1))])"),
    ("with cwd: f() { 1 }", "(with ([(int 1)]) (fn_call f ()))"),
    ("with cwd: f() { 1 } { 2 }",
     "(with ([(int 2)]) (fn_call f ([(lambda (block ([(int 1)])))])))"),
    ("with cwd: f() { 1 }, env: e { 2 }",
     "(with ([(int 2)]) (fn_call f ([(lambda (block ([(int 1)])))])) (var e))"),
    ("for x in f() { x }", "(for (bind x) (fn_call f ()) ([(var x)]))"),
    ("for x in a.b { x }", "(for (bind x) (field (var a) b) ([(var x)]))"),
    ("for x in (a.b { 1 }) { x }",
     "(for (bind x) (method_call (var a) b ([(lambda (block ([(int 1)])))])) ([(var x)]))"),
    ("for x in f(a.b { 1 }) { x }",
     "(for (bind x) (fn_call f ([(method_call (var a) b "
     "([(lambda (block ([(int 1)])))]))])) ([(var x)]))"),
    ("if a.b { if c.d { 1 } else { 2 } }",
     "(if (field (var a) b) ([(if (field (var c) d) ([(int 1)]) (block ([(int 2)])))]))"),
    ("if f(x => x.y { 1 }) { 2 }",
     "(if (fn_call f ([(lambda [(x)] (method_call (var x) y "
     "([(lambda (block ([(int 1)])))])))])) ([(int 2)]))"),
    ("while a.b { let n = 1; n }; (n)",
     "(while (field (var a) b) ([(let (bind n) (int 1)) (var n)])); (cmd n)"),
]  # fmt: skip


@pytest.mark.parametrize(("src", "expected"), HEADERS)
def test_header_is_read_as(src: str, expected: str) -> None:
    assert outline(src) == expected


ARMS = [
    ("1 => 2", "([(lit (int 1))] (int 2))"),
    ("1 => 2 3 => 4", "([(lit (int 1))] (int 2)) ([(lit (int 3))] (int 4))"),
    ("1 => 2, 3 => 4", "([(lit (int 1))] (int 2)) ([(lit (int 3))] (int 4))"),
    ("1 => 2;\n\n3 => 4\n,", "([(lit (int 1))] (int 2)) ([(lit (int 3))] (int 4))"),
    ("1 => { 2 } [a] => 3",
     "([(lit (int 1))] (block ([(int 2)]))) ([(list [(bind a)])] (int 3))"),
    ("1 => ({k: 2})", "([(lit (int 1))] (record [(k (int 2))]))"),
    ("0x10 | 'a' | true => 2", "([(lit (int 16)) (lit (str a)) (lit (bool true))] (int 2))"),
    ("1..4 => 2", "([(range (int 1) (int 4))] (int 2))"),
    ("1..=4 => 2", "([(range (int 1) (int 4) inclusive)] (int 2))"),
    ("null => 1", "([(bind null)] (int 1))"),
    ("null v => 1", "([(type (null) v)] (int 1))"),
    ("str if a => 1", "([(bind str)] (int 1) (var a))"),
    ("int n if n > 1 => 2", "([(type (int) n)] (int 2) (binary gt (var n) (int 1)))"),
    ("if => 1", "([(bind if)] (int 1))"),
    ("{} => 1", "([(record)] (int 1))"),
    ("{\na\n,\nb: [_,\n...t\n],\n} => 1", "([(record [(a) (b (list [(wildcard)] t))])] (int 1))"),
    ("[] => 1", "([(list)] (int 1))"),
    ("[1, 'a',] => 1", "([(list [(lit (int 1)) (lit (str a))])] (int 1))"),
    ("n if n > cap => 1", "([(bind n)] (int 1) (binary gt (var n) (var cap)))"),
    ("n if true => 1", "([(bind n)] (int 1) (bool true))"),
    ("n if n > (cap) => 1", "([(bind n)] (int 1) (binary gt (var n) (cmd cap)))"),
    ("n if n > (n) => 1; m => 2",
     "([(bind n)] (int 1) (binary gt (var n) (var n))) ([(bind m)] (int 2))"),
    ("n if f((x) => x) => 1",
     "([(bind n)] (int 1) (fn_call f ([(lambda [(x)] (var x))])))"),
    ("n if (a) => b.c => 2",
     "([(bind n)] (int 2) (lambda [(a)] (field (var b) c)))"),
]  # fmt: skip


@pytest.mark.parametrize(("src", "expected"), ARMS)
def test_arms_are_read_as(src: str, expected: str) -> None:
    assert outline(f"match 1 {{ {src} }}") == f"(match (int 1) [{expected}])"


WORDS = [
    ("--", "(dash_dash)"), ("-", "(dash)"),
    ("*.py", "(glob *.py)"), ("a?", "(glob a?)"), ("./*.c", "(glob ./*.c)"), ("/x*", "(glob /x*)"),
    ("--x=*", "(glob --x=*)"), ("[ab]", "(glob [ab])"), ("a[0]", "(glob a[0])"),
    ("a]", "(glob a])"),
    ("~/x", "(path ~/x)"), ("./x", "(path ./x)"), ("../x", "(path ../x)"), ("/x", "(path /x)"),
    ("~", "(path ~)"), ("/", "(path /)"),
    ("--dry-run", "(flag_long dry_run)"), ("--no-x", "(flag_long no_x)"), ("---", "(flag_long _)"),
    ("--a=b=c", "(flag_long a (word b=c))"), ("--a=~/x", "(flag_long a (word ~/x))"),
    ('--a="b"', "(flag_long a (str (str b)))"), ("--a=(1)", "(flag_long a (expr (int 1)))"),
    ("--a= b", "(flag_long a (word b))"), ("--a= ./b", "(flag_long a (path ./b))"),
    ("-la", "(flag_short la)"), ("-9", "(flag_short 9)"),
    ("a=b", "(word a=b)"), ("a=", "(word a=)"),
    ("..", "(word ..)"), (".", "(word .)"), (".git", "(word .git)"), ("a/b", "(word a/b)"),
    ("~user", "(word ~user)"), ("--a.b", "(word --a.b)"), ("-x=1", "(word -x=1)"),
    ("+x", "(word +x)"), ("12", "(word 12)"), ("1mb", "(word 1mb)"), ("true", "(word true)"),
    ("a^b", "(word a^b)"), ("a!b@c%d", "(word a!b@c%d)"),
    ("été", "(word été)"), ("--é", "(word --é)"),
    ("²", "(word ²)"), ("a =", "(word a) (word =)"), (",", "(word ,)"), ("!x", "(word !x)"),
    ('a"b"c', "(word a) (str (str b)) (word c)"), ("v(1)", "(word v) (expr (int 1))"),
    ('""', '(str (str ""))'), ("'a b'", '(str (str "a b"))'),
    ("(ls -a)", "(expr (cmd ls (flag_short a)))"),
    ("(1 + 2)", "(expr (binary add (int 1) (int 2)))"),
    ("> f", "out:(word f)"), (">> ./f", "append:(path ./f)"), ("< (f)", "in:(expr (cmd f))"),
    ('> "a b"', 'out:(str (str "a b"))'), ("2 > f", "(word 2) out:(word f)"),
    ("a > b c < d > e", "(word a) (word c) out:(word b) in:(word d) out:(word e)"),
    ("*.{a,b}", "(glob *.) trailing:([(cmd a,b)])"), ("f{a}", "(word f) trailing:([(cmd a)])"),
    ("a &", "(word a) background"), ("({k: 1})", "(expr (record [(k (int 1))]))"),
]  # fmt: skip


@pytest.mark.parametrize(("src", "expected"), WORDS)
def test_command_argument_is(src: str, expected: str) -> None:
    assert outline(f"x {src}") == f"(cmd x {expected})"


def test_a_command_goes_back_to_expressions_after_its_block() -> None:
    assert outline("x { 1 } > f") == "(binary gt (cmd x trailing:([(int 1)])) (var f))"
    assert outline("x { 1 } && y") == "(binary and (cmd x trailing:([(int 1)])) (cmd y))"


def test_form_feed_is_a_word_character_in_commands() -> None:
    assert tree("x a\x0cb")["stmts"][0]["expr"]["call"]["args"][0]["text"] == "a\x0cb"


QUIRKS = [
    ('"""\n  {a}\n  {b}\n"""',
     '(str_interp [(lit "") (expr (cmd a)) (lit "") (expr (cmd b)) (lit "")])'),
    ("match 1 { null => 2 }", "(match (int 1) [([(bind null)] (int 2))])"),
    ("(a) => {k: 1}", "(lambda [(a)] (block ([(cmd k: (word 1))])))"),
    ("let f = a => {k: 1}", "(let (bind f) (lambda [(a)] (record [(k (int 1))])))"),
    ("f() catch e { e == 1 }",
     "(catch (fn_call f ()) (block ([(cmd e (word ==) (word 1))])) e)"),
    ("echo (it)", "(cmd echo (expr (cmd it)))"),
    ("ls && it", "(binary and (cmd ls) (cmd it))"),
]  # fmt: skip


@pytest.mark.parametrize(("src", "expected"), QUIRKS)
def test_quirk_is_kept(src: str, expected: str) -> None:
    assert outline(src) == expected
