"""Parse errors: message phrase, span in bytes, hint fragments."""

from __future__ import annotations

import pytest

from tests.language.trees import failure, outline

# Source, names bound to values, start, end, message phrase, hint fragments.
LESSONS = [
    ("a | b", "", 2, 3, "shoal has no pipe operator",
     ["ls.where(.size > 1mb)", ".feed(cmd)", "sh { … }"]),
    ("(1 | 2)", "", 3, 4, "shoal has no pipe operator", ["sh { … }"]),
    ("ls -a | wc", "", 6, 7, "shoal has no pipe operator", ["sh { … }"]),
    ("f(x) | g", "", 5, 6, "shoal has no pipe operator", ["sh { … }"]),
    ("A=1 | b", "", 4, 5, "shoal has no pipe operator", ["sh { … }"]),
    ("match 1 | 2 { }", "", 8, 9, "shoal has no pipe operator", ["sh { … }"]),
    ("$x", "", 0, 1, "shoal variables have no sigil", ["write `name`, not `$name`", "env.NAME"]),
    ("echo a$x", "", 6, 7, "shoal variables have no sigil", ["env.NAME"]),
    ("echo ${x}", "", 5, 6, "shoal variables have no sigil", ["env.NAME"]),
    ("echo $(c)", "", 5, 6, "shoal variables have no sigil", ["env.NAME"]),
    ("1 + $1", "", 4, 5, "shoal variables have no sigil", ["env.NAME"]),
    ("let x = `a`", "", 8, 9, "backtick is not shoal syntax",
     ["command substitution is (cmd …)", "sh { … }"]),
    ("echo b`a`", "", 6, 7, "backtick is not shoal syntax", ["(cmd …)"]),
    ("cat << EOF", "", 4, 6, "shoal has no heredocs", ["value.feed(cmd)", "python { … }"]),
    ("cat <<-EOF", "", 4, 6, "shoal has no heredocs", ["value.feed(cmd)"]),
    ("cat <<< text", "", 4, 7, "shoal has no here-strings", ['"text".feed(cmd)']),
    ("x 2> f", "", 2, 4, "shoal has no fd-numbered redirects",
     ["(cmd).stderr", "catch e { e.stderr }"]),
    ("x 11>> f", "", 2, 6, "shoal has no fd-numbered redirects", ["(cmd).stderr"]),
    ("x 2>&1", "", 2, 4, "shoal has no fd-numbered redirects", ["(cmd).stderr"]),
    ("x &> f", "", 2, 4, "shoal has no stream-merging redirect", ["(cmd).out", "(cmd).stderr"]),
    ("x &>> f", "", 2, 5, "shoal has no stream-merging redirect", ["(cmd).out"]),
    ("true & false", "", 5, 6, "`&` is not an operator here", ["logical and is &&"]),
    ("cmd [a, b]", "", 4, 5, "`[` cannot start a command argument", ["quote it", "(expr)"]),
    ("cmd [a", "", 4, 5, "`[` cannot start a command argument", ["quote it"]),
    ("cmd ]", "", 4, 5, "unexpected `]`", []),
    ("1 < 2 < 3", "", 6, 7, "comparison operators do not chain", ["explicitly with `&&`"]),
    ("1 in [2] == 3", "", 9, 11, "comparison operators do not chain", ["explicitly with `&&`"]),
    ("(1 < 2) == true", "", 8, 10, "comparison operators do not chain", ["with `&&`"]),
    (".f", "", 0, 1, "a leading `.` has no receiver here",
     [".map(.name)", ".where(.size > 1mb)", "x => x.name"]),
    ("xs.map(1 + .f)", "", 11, 12, "a leading `.` has no receiver here", ["x => x.name"]),
    ("xs.map(!.f)", "", 8, 9, "a leading `.` has no receiver here", ["x => x.name"]),
    ("xs.map((.f))", "", 8, 9, "a leading `.` has no receiver here", ["x => x.name"]),
    ("xs.map({x: .f})", "", 11, 12, "a leading `.` has no receiver here", ["x => x.name"]),
    ("xs.map([.f])", "", 8, 9, "a leading `.` has no receiver here", ["x => x.name"]),
    ("xs.map(by: .f)", "", 11, 12, "a leading `.` has no receiver here", ["x => x.name"]),
    (". ./setup", "", 0, 1, "a leading `.` has no receiver here", ["x => x.name"]),
    ("git log.len()", "", 12, 13, "expected expression, found RParen",
     ["to chain methods on a command, wrap it in parentheses", "(git log).len()"]),
    ("git log.where(.a)", "", 14, 15, "a leading `.` has no receiver here",
     ["to chain methods on a command, wrap it in parentheses", "(git log).len()"]),
    ("match 1 { | 1 => 2 }", "", 10, 11, "unexpected `|` at the start of a match arm",
     ["alternation is", "drop the leading"]),
    ("match 1 { 1 => 2 | 3 }", "", 17, 18, "unexpected `|` at the start of a match arm",
     ["drop the leading"]),
    ("a foo", "a", 2, 5, "expected newline or `;` between statements",
     ["did you mean the command? force it with `^a`"]),
    ('path "x"', "", 5, 8, "expected newline or `;` between statements",
     ["force it with `^path`"]),
    ("1KB", "", 0, 3, "unit `KB` must be lowercase",
     ["sizes: b kb mb gb tb kib mib gib tib", "durations: ns us ms s m h d w"]),
    ("1q", "", 0, 2, "unknown unit `q` on numeric literal", ["sizes: b kb", "durations: ns"]),
    ('"x \\q"', "", 3, 5, "unknown escape `\\q`", ['\\n \\t \\r \\0 \\\\ \\" \\{ \\} \\u{…}']),
    ('"\\\'"', "", 1, 3, "unknown escape `\\'`", []),
    ('"a {"', "", 3, 5, "unterminated `{expr}` in string", ["raw string ('…')", "\\{", "\\}"]),
    ('"a\nb"', "", 0, 2, "unterminated string (newline)", ['"""…"""']),
    ("'a\nb'", "", 0, 2, "unterminated string (newline)", ["'''…'''"]),
    ('"abc', "", 0, 4, "unterminated string", []),
    ('x "abc', "", 2, 6, "unterminated string", []),
    ('"""abc"', "", 0, 7, "unterminated string", []),
    ("'abc", "", 0, 4, "unterminated raw string", []),
    ("'''abc'", "", 0, 7, "unterminated raw string", []),
    ('re"abc', "", 0, 6, "unterminated tagged literal", []),
    ("sh { a", "", 3, 6, "unbalanced braces in interpreter block `{ … }`", ["'''"]),
    ('"\\u{41"', "", 1, 6, "unterminated \\u{…}", []),
    ('"\\u{4g}"', "", 1, 7, "invalid \\u{…} escape", []),
    ('"\\u41"', "", 1, 3, "invalid \\u{…} escape", []),
    ('"\\u{110000}"', "", 1, 11, "invalid unicode codepoint", []),
    ('"\\u{d800}"', "", 1, 9, "invalid unicode codepoint", []),
]  # fmt: skip


@pytest.mark.parametrize(("src", "values", "start", "end", "phrase", "fragments"), LESSONS)
def test_habit_is_taught(
    src: str, values: str, start: int, end: int, phrase: str, fragments: list[str]
) -> None:
    error = failure(src, *values.split())
    assert phrase in error.message
    assert (error.span.start, error.span.end) == (start, end)
    for fragment in fragments:
        assert fragment in (error.hint or "")


def test_a_word_and_a_good_group_are_two_arguments() -> None:
    assert outline("cmd a.b(1)") == "(cmd cmd (word a.b) (expr (int 1)))"


# Source, start, end, whole message.
PLAIN = [
    ("f(1) g", 5, 6, "expected newline or `;` between statements"),
    ("a & b", 4, 5, "expected newline or `;` between statements"),
    ("a.b = 1", 4, 5, "expected newline or `;` between statements"),
    ("a[0] = 1", 5, 6, "expected newline or `;` between statements"),
    ("a = b = 1", 6, 7, "expected newline or `;` between statements"),
    ("alias x = a && b", 12, 14, "expected newline or `;` between statements"),
    ("use a as b", 6, 8, "expected newline or `;` between statements"),
    ("break 1", 6, 7, "expected newline or `;` between statements"),
    ("1d6h", 2, 4, "expected newline or `;` between statements"),
    ("9:5", 1, 2, "expected newline or `;` between statements"),
    ("for f in xs.map { 1 } { 2 }", 22, 23, "expected newline or `;` between statements"),
    ("let x =", 7, 7, "expected expression, found Eof"),
    ("let x =\n1", 7, 8, "expected expression, found Newline"),
    ("1 + ;", 4, 5, "expected expression, found Semi"),
    ("1\n+ 2", 2, 3, "expected expression, found Plus"),
    ("()", 1, 2, "expected expression, found RParen"),
    ("(", 1, 1, "expected expression, found Eof"),
    ("x[]", 2, 3, "expected expression, found RBracket"),
    ("x[\n1]", 2, 3, "expected expression, found Newline"),
    ("f(,)", 2, 3, "expected expression, found Comma"),
    ("}", 0, 1, "expected expression, found RBrace"),
    ("1 ... 2", 2, 5, "expected newline or `;` between statements"),
    ("let x = ...", 8, 11, "expected expression, found Ellipsis"),
    ("let x = ^ls", 8, 9, "expected expression, found Caret"),
    ("let x = a => ->", 13, 15, "expected expression, found ThinArrow"),
    ("let x = ??", 8, 10, "expected expression, found QQ"),
    ("let x = ? 1", 8, 9, "expected expression, found Question"),
    ("go() catch null", 15, 15, "expected expression, found Eof"),
    ("cmd (\n1)", 5, 6, "expected expression, found Newline"),
    ("^", 1, 1, "expected command head, found Eof"),
    ("^ ^a", 2, 3, "expected command head, found Caret"),
    ('^"ls"', 1, 5, 'expected command head, found Str("ls")'),
    ("alias ll='ls -l'", 9, 16, 'expected command head, found Str("ls -l")'),
    ("alias x = *.c", 10, 13, 'expected command head, found GlobWord("*.c")'),
    ("alias x = --dry-run", 10, 19, 'expected command head, found FlagLong("dry_run")'),
    ("alias x = --a=b", 10, 15, 'expected command head, found FlagLongEq("a", "b")'),
    ("alias x = --a=", 10, 14, 'expected command head, found FlagLongPendingValue("a")'),
    ("alias x = -l", 10, 12, 'expected command head, found FlagShort("l")'),
    ("alias x = --", 10, 12, "expected command head, found DashDash"),
    ("alias x = -", 10, 11, "expected command head, found Dash"),
    ("alias x = > f", 10, 11, "expected command head, found RedirOut"),
    ("alias x = >> f", 10, 12, "expected command head, found RedirAppend"),
    ("alias x = < f", 10, 11, "expected command head, found RedirIn"),
    ("alias x = & f", 10, 11, "expected command head, found Amp"),
    ("alias x = { }", 10, 11, "expected command head, found LBrace"),
    ("^A=1", 1, 4, 'expected command head, found EnvAssign("A", "1")'),
    ("A=1 (x)", 4, 5, "expected command head, found LParen"),
    ("cmd >", 5, 5, "expected command argument"),
    ("cmd >& f", 5, 6, "expected command argument"),
    ("cmd <> f", 5, 6, "expected command argument"),
    ("cmd >| f", 5, 6, "expected command argument"),
    ("cmd > \n", 6, 7, "expected command argument"),
    ("cmd --x=", 8, 8, "expected command argument"),
    ("cmd ^", 4, 5, "expected command argument"),
    ("(1, 2)", 2, 3, "expected `)`"),
    ("f(a b)", 4, 5, "expected `)`"),
    ("cmd (1\n)", 6, 7, "expected `)`"),
    ("fn f(...r, a) {}", 9, 10, "expected `)`"),
    ("fn f {}", 5, 6, "expected `(`"),
    ("[1 2]", 3, 4, "expected `]`"),
    ("[1", 2, 2, "expected `]`"),
    ("x[1, 2]", 3, 4, "expected `]`"),
    ("if [ -f a ]; then", 8, 9, "expected `]`"),
    ("match n { [...a, b] => 1 }", 15, 16, "expected `]`"),
    ("if c; then x; fi", 4, 5, "expected `{`"),
    ("for i in 1 2 3; do", 11, 12, "expected `{`"),
    ("while read l; do", 11, 12, "expected `{`"),
    ("fn f()\n{}", 6, 7, "expected `{`"),
    ("if a { 1 } else 2", 16, 17, "expected `{`"),
    ("spawn ls", 6, 8, "expected `{`"),
    ("{ls", 3, 3, "expected `}`"),
    ("{a: 1 b: 2}", 6, 7, "expected `}`"),
    ("let mut x = 1", 8, 9, "expected `=`"),
    ("alias x", 7, 7, "expected `=`"),
    ("{a: 1, b}", 8, 9, "expected `:`"),
    ("with cwd { }", 9, 10, "expected `:`"),
    ("match n { 1 { 2 } }", 12, 13, "expected `=>`"),
    ("let x: list<int>= 1", 15, 17, "expected `>`"),
    ("for x y {}", 6, 7, "expected `in`"),
    ("let 5", 4, 5, "expected identifier"),
    ("let", 3, 3, "expected identifier"),
    ("x.", 2, 2, "expected identifier"),
    ("1.", 2, 2, "expected identifier"),
    ('x."a"', 2, 5, "expected identifier"),
    ("let x: = 1", 7, 8, "expected identifier"),
    ("fn f(\na) {}", 5, 6, "expected identifier"),
    ("for [a] in b {}", 4, 5, "expected identifier"),
    ("match n { [...] => 1 }", 14, 15, "expected identifier"),
    ("try { 1 }", 9, 9, "expected catch"),
    ("try { 1 }\ncatch { 2 }", 9, 10, "expected catch"),
    ("{a: 1, 5}", 7, 8, "expected record field"),
    ('{"a{b}": 1}', 1, 7, "expected record field"),
    ("match n { -1 => 1 }", 10, 11, "expected match pattern"),
    ("match n { 1.5 => 1 }", 10, 13, "expected match pattern"),
    ("match n { 1mb => 1 }", 10, 13, "expected match pattern"),
    ('match n { "a{b}" => 1 }', 10, 16, "expected match pattern"),
    ('match n { re"a" => 1 }', 10, 15, "expected match pattern"),
    ("match n { (a) => 1 }", 10, 11, "expected match pattern"),
    ("match n { 1 => 2,, 3 => 4 }", 17, 18, "expected match pattern"),
    ("match n { 1..n => 1 }", 13, 14, "expected an integer after `..` in a range pattern"),
    ('use "x"', 4, 7, "expected module path"),
    ("use *.x", 4, 7, "expected module path"),
    ("use --x", 4, 7, "expected module path"),
    ("use a=b", 4, 7, "expected module path"),
    ("use", 3, 3, "expected module path"),
    ("export A=1", 7, 8, "export must precede let, var, or fn"),
    ("with foo: 1 { }", 5, 8, "with accepts only cwd, env, and reef"),
    ('"a{}"', 2, 4, "interpolation must contain one expression"),
    ('"a{1; 2}"', 2, 8, "interpolation must contain one expression"),
    ('"a{let x = 1}"', 2, 13, "interpolation must be an expression"),
    ("1 ~ 2", 2, 3, "unexpected character `~`"),
    ("1 \\ 2", 2, 3, "unexpected character `\\`"),
    ("\u00a0", 0, 2, "unexpected character `\u00a0`"),
    ("\ufeff1", 0, 3, "unexpected character `\ufeff`"),
    ("\x0c", 0, 1, "unexpected character `\x0c`"),
    ("0x1g", 0, 4, "invalid numeric literal"),
    ("0xffffffffffffffff", 0, 18, "invalid numeric literal"),
    ("9223372036854775808", 0, 19, "integer literal out of range"),
    ("2e3kb", 0, 5, "invalid size literal"),
    ("2e3s", 0, 4, "invalid duration literal"),
    ("24:00", 0, 5, "invalid time literal"),
    ("8:75", 0, 4, "invalid time literal"),
]


@pytest.mark.parametrize(("src", "start", "end", "message"), PLAIN)
def test_error_says(src: str, start: int, end: int, message: str) -> None:
    error = failure(src)
    assert error.message == message
    assert (error.span.start, error.span.end) == (start, end)


def test_spans_count_utf8_bytes() -> None:
    error = failure('let s = "é😀" x')
    assert (error.span.start, error.span.end) == (17, 18)


def test_spans_count_utf8_bytes_far_into_a_long_text() -> None:
    filler = "# é€😀\n" * 200
    error = failure(f"{filler}$")
    size = len(filler.encode())
    assert (error.span.start, error.span.end) == (size, size + 1)


def test_spans_of_an_error_in_a_hole_start_at_the_hole() -> None:
    error = failure('"é {é}"')
    assert error.message == "unexpected character `é`"
    assert (error.span.start, error.span.end) == (0, 2)


def test_an_error_in_a_nested_hole_starts_at_the_inner_hole() -> None:
    error = failure('"aa {f("bb { $x }")}"')
    assert (error.span.start, error.span.end) == (1, 2)


def test_a_lone_surrogate_is_an_unexpected_character() -> None:
    error = failure('let x = "\ud800"')
    assert error.message.startswith("unexpected character")
    assert (error.span.start, error.span.end) == (9, 12)
