"""Generated source: whole programs by the grammar, and soups of tokens that mostly do not parse."""

from __future__ import annotations

from hypothesis import strategies as st

names = st.sampled_from(["a", "b", "n", "xs", "count", "x1", "str", "else", "catch", "it", "if"])
plain_names = st.sampled_from(["a", "b", "n", "xs", "count", "x1", "str", "name"])
words = st.sampled_from(
    [
        "x",
        "./a",
        "~/b",
        "*.py",
        "--dry-run",
        "--n=4",
        "--",
        "-",
        "-la",
        "a=b",
        "1mb",
        "..",
        "\\",
        "é",
    ]
)
types = st.sampled_from(["int", "list<int>", "map<str, list<int>>?", "str?"])

atoms = st.one_of(
    plain_names,
    st.sampled_from(
        ["null", "true", "1", "0x1f", "2.5", "1e999", "3kb", "99999999999tb", "1.5ms", "7:05pm",
         't"2031-02-03"', 're"a\\d"', "'raw {'", '"a\\"\\\\{n}"', '"""\n  {a}\n  b\n"""', "{}",
         "[]", "{ ; }", "jq { .a }", "sh'''\n  {\n  '''", '"\\u{7f}é😀"', "(ls -a)", "(ls &)"]
    ),
)  # fmt: skip


def _expressions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def form(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.builds(template.format, *parts)

    operator = st.sampled_from(
        ["+", "-", "*", "/", "%", "==", "<", "in", "&&", "||", "??", "..", "..="]
    )
    patterns = st.sampled_from(
        ["_", "a", "1 | 2", "'s'", "1..=4", "str s", "{a, b: _}", "[h, ...t]", "null", "else"]
    )
    return st.one_of(
        form("({} {} {})", inner, operator, inner),
        form("{} {} {}", inner, operator, inner),
        form("({})", inner),
        form("-{}", inner),
        form("!({})", inner),
        form("{}.{}", inner, plain_names),
        form("({})?.{}({}, {}: {})", inner, plain_names, inner, plain_names, inner),
        form("{}.map(.{})", inner, plain_names),
        form("{}.each {{ {} }}", inner, inner),
        form("{}.feed(sort {})", inner, words),
        form("{}[{}]", inner, inner),
        form("{}({})", plain_names, inner),
        form("f(1)({})", inner),
        form("[{}, {}]", inner, inner),
        form('{{{}: {}, "a b": {}}}', names, inner, inner),
        form("{{ {}; {} }}", inner, inner),
        form("({}) => {}", plain_names, inner),
        form("({} => {})", plain_names, inner),
        form("(() => {{ {} }})", inner),
        form("if {} {{ {} }} else {{ {} }}", inner, inner, inner),
        form("match {} {{ {} => {}\n_ if {} => {{ {} }} }}", inner, patterns, inner, inner, inner),
        form("try {{ {} }} catch e {{ {} }}", inner, inner),
        form("({} catch e {})", inner, inner),
        form("({} catch {{ {} }})", inner, inner),
        form("with cwd: {}, env: ({}) {{ {} }}", inner, inner, inner),
        form("spawn {{ {} }}", inner),
        form('"v={{{}}}"', inner),
        form('"""\n  {{{}}}\n  {{{}}}\n"""', inner, inner),
        form("(cmd {} ({}) > {})", words, inner, words),
    )


expressions = st.recursive(atoms, _expressions, max_leaves=6)


def _statements(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def form(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.builds(template.format, *parts)

    return st.one_of(
        form("let {} = {}", names, inner),
        form("export var {}: {} = {}", names, types, inner),
        form("{} += {}", plain_names, inner),
        form("env.{} = {}", names, inner),
        form("fn {}({}, {}: {} = {}, ...{}) -> {} {{ {} }}",
             names, names, names, types, inner, names, types, inner),
        form("alias {} = A=1 ^{} {} &", names, plain_names, words),
        form("use {}/x", plain_names),
        form("return {}", inner),
        form("for {} in {} {{ {} }}", names, inner, inner),
        form("while {} {{ {}; break }}", inner, inner),
        form("{} {} {} > {}", plain_names, words, words, words),
        form("{} {} {{ {} }}", plain_names, words, inner),
        form("B={} {} ({})", plain_names, plain_names, inner),
        form("{} && ls {}", inner, words),
        form(";catch {}", words),
        inner,
    )  # fmt: skip


programs = st.lists(_statements(expressions), min_size=1, max_size=4).map("\n".join)

tokens = st.sampled_from(
    ["(", ")", "[", "]", "{", "}", ",", ":", ".", "..", "..=", "...", "?.", "=>", "->", "+", "-",
     "*", "/", "%", "==", "<", ">", ">>", "=", "+=", "!", "&&", "||", "&", "|", "??", "?", "^", "$",
     "`", "\\", "\\\n", "\n", ";", " ", "\t", "\r\n", "# c\n", '"', '"""', "'", "'''", "let", "var",
     "fn", "alias", "use", "export", "return", "if", "else", "match", "try", "catch", "with", "cwd",
     "spawn", "for", "in", "while", "it", "null", "sh", "re", "a", "n", "x1", "1", "2.5", "3kb",
     "7:05", "0x", "~", "./", "--x=", "--", "-l", "*.c", "é", "😀", "\ud800", "\u2028", "\x00"]
)  # fmt: skip
soups = st.one_of(
    st.lists(tokens, max_size=24).map("".join),
    st.lists(tokens, max_size=16).map(" ".join),
    st.text(max_size=24),
)
