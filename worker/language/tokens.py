"""What the lexer recognises: token patterns of both modes, word lists and operator tables.

A token kind is a string: the operator's own text, or one of the class names below. Patterns never
fail to match (the last alternative takes any character), so lexing itself raises nothing: bad
characters and half-open literals are tokens whose trouble is told when the parser needs them
(chapter 10 §3, §11).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from worker.language.ast import AssignOp, BinaryOp, RedirectKind

Matcher = Callable[[str, int, int], "re.Match[str] | None"]


def _matcher(pattern: str) -> Matcher:
    return re.compile(pattern, re.ASCII).match


# Space, tab, CR, comments up to their LF, and escaped line ends. Possessive throughout: long runs
# cost no backtracking memory.
BLANK: Final = r"[ \t\r]*+(?:(?:\#[^\n]*+|\\\r?\n)[ \t\r]*+)*+"
BLANK_LINES: Final = r"(?:[ \t\r\n]++|\#[^\n]*+|\\\r?\n)*+"

BLANK_RUN: Final = _matcher(BLANK_LINES)
TERMINATOR_RUN: Final = _matcher(r"(?:[ \t\r\n;]++|\#[^\n]*+|\\\r?\n)*+")

# --- expression mode -----------------------------------------------------------------------------

IDENT: Final[str] = "Ident"
INT: Final[str] = "Int"  # plain decimal digits that nothing else is glued to
NUMBER: Final[str] = "Number"  # first digit of any other number or time
QUOTE: Final[str] = "Quote"  # first quote of a string
TAGGED: Final[str] = "Tagged"  # tag of re"…" or t"…"
EOF: Final[str] = "Eof"
BAD: Final[str] = "Bad"  # a character that starts no token

_OPERATORS = (
    r"[\n;()\[\]{},:%^]"
    r"|\.\.\.|\.\.=|\.\.|\."
    r"|==|=>|=|->|-=|-|\+=|\+|\*=|\*|/=|/"
    r"|!=|!|<=|<|>=|>|&&|\|\||\||\?\.|\?\?|\?"
)
TOKEN: Final = _matcher(
    BLANK
    + r'(?:((?!(?:re|t)")[A-Za-z_][A-Za-z0-9_]*+)'
    + f"|({_OPERATORS})"
    + r"|([0-9]++(?![0-9A-Za-z_.:]))|([0-9])"
    + r"""|(["'])|((?:re|t)(?="))|(\Z)|([\s\S]))"""
)
# Kind by number of the group that matched; groups 1 (identifier) and 2 (operator) carry text.
TOKEN_KINDS: Final = ("", IDENT, "", INT, NUMBER, QUOTE, TAGGED, EOF, BAD)

# What a line after this LF continues: group 1 a postfix chain, 2 a catch, 3 an if.
CONTINUATION: Final = _matcher(
    r"\n" + BLANK_LINES + r"(?:(\.(?![./])|\?\.)|(catch)(?![A-Za-z0-9_])|(else)(?![A-Za-z0-9_]))?"
)
CONTINUES_CHAIN: Final = 1
CONTINUES_CATCH: Final = 2
CONTINUES_IF: Final = 3

# Looks ahead from the end of an identifier.
ARROW_AHEAD: Final = _matcher(BLANK + "=>")
COLON_AHEAD: Final = _matcher(BLANK + ":")
ASSIGN_AHEAD: Final = _matcher(BLANK + r"(?:=(?![=>])|[-+*/]=)")
ENV_ASSIGN_AHEAD: Final = _matcher(
    BLANK + r"\.(?!\.)" + BLANK + r"[A-Za-z_][A-Za-z0-9_]*+" + BLANK + r"(?:=(?![=>])|[-+*/]=)"
)
ACCESS_GLUED: Final = _matcher(r"\.(?!\.)|\?\.|[(\[]")
INTERPRETER_AHEAD: Final = _matcher("'|" + BLANK + r"\{")
EMPTY_AHEAD: Final = _matcher(BLANK + r"\}")
GROUP_END_AHEAD: Final = _matcher(BLANK_LINES + r"\)")
# From `{`: a record when an identifier (group 1) and a colon follow; group 2 is a quote to pass.
ENTRY_AHEAD: Final = _matcher(
    BLANK_LINES + r"(?:([A-Za-z_][A-Za-z0-9_]*+" + BLANK + r""":)|(["']))"""
)
# From `(`: could these be lambda parameters? Decided by reading them.
PARAMS_AHEAD: Final = _matcher(r"\((?:[A-Za-z0-9_ \t\r,:<>?]++|\\\r?\n)*+\)" + BLANK + "=>")
PATH_HEAD: Final = _matcher(r"/|\.\.?/|~/|~(?=[ \t\r\n;]|\Z)")

# --- command mode --------------------------------------------------------------------------------

_WORD = r"""[^ \t\r\n(){}"';&<>|]++"""
COMMAND_TOKEN: Final = _matcher(
    BLANK + f"(?:({_WORD})" + r"""|(\|\||&&|&>>|&>|<<<|<<|>>|[\n;(){}&<>|"']|\Z))"""
)
COMMAND_ENDS: Final = frozenset(("\n", ";", "", "}", ")", "&&", "||"))
ENV_SHAPE: Final = _matcher(r"([A-Za-z_][A-Za-z0-9_]*+)=")
BRACKET_CLASS: Final = _matcher(r"""\[[^ \t\r\n(){}"';&<>|\]]*+\]""")
LONG_FLAG: Final = _matcher(r"--([A-Za-z0-9_-]++)(=?)")
SHORT_FLAG: Final = _matcher(r"-([A-Za-z0-9]++)\Z")
GLOB_CHARS: Final = re.compile(r"[*?\[\]]").search
SIGILS: Final = re.compile(r"[$`]").search

# --- strings and payloads ------------------------------------------------------------------------

PLAIN_STRING: Final = _matcher(r'"([^"\\{\n]*+)"')
RAW_STRING: Final = _matcher(r"'([^'\n]*+)'")
STRING_TEXT: Final = _matcher(r'[^"\\{\n]++')
TRIPLE_TEXT: Final = _matcher(r"[^\\{]++")
UNICODE_ESCAPE: Final = _matcher(r'\\u\{([^}"\n]*+)(\}?)')
# Everything between two braces that count: text and whole quoted strings.
BETWEEN_BRACES: Final = _matcher(r"""(?:[^{}"']++|"(?:[^"\\]++|\\[\s\S])*+"|'[^']*+')*+""")

# --- words ---------------------------------------------------------------------------------------

INTERPRETERS: Final = frozenset((
    "sh", "bash", "zsh", "fish", "python", "python3", "node", "deno", "ruby", "jq", "perl",
    "php", "lua", "Rscript", "osascript",
))  # fmt: skip
REPL_ONLY: Final = frozenset(("it", "out"))
EXPRESSION_WORDS: Final = frozenset((
    "true", "false", "null", "if", "match", "try", "with", "spawn",
))  # fmt: skip
# Identifiers that may be more than a variable where an expression starts.
SPECIAL_WORDS: Final = EXPRESSION_WORDS | INTERPRETERS | REPL_ONLY
NEVER_HEADS: Final = frozenset((
    "let", "var", "fn", "alias", "use", "export", "return", "break", "continue", "if", "else",
    "match", "for", "in", "while", "try", "catch", "true", "false", "null", "with", "spawn",
))  # fmt: skip
CONSTRUCTORS: Final = frozenset(("path", "glob", "regex"))
TYPE_PATTERNS: Final = frozenset((
    "null", "bool", "int", "float", "str", "path", "glob", "regex", "size", "duration",
    "datetime", "time", "bytes", "list", "record", "table", "range", "stream", "error",
    "outcome", "task", "closure", "command", "secret",
))  # fmt: skip
WITH_KEYS: Final = frozenset(("cwd", "env", "reef"))

# --- operators -----------------------------------------------------------------------------------

POWER_MIN: Final = 1
POWER_AND: Final = 3
POWER_COMPARISON: Final = 4
RANGE_OPS: Final = frozenset(("..", "..="))

# Binding power and node name; ranges have a node of their own and an empty name here.
BINARY: Final[dict[str, tuple[int, BinaryOp | None]]] = {
    "??": (POWER_MIN, "coalesce"),
    "||": (2, "or"),
    "&&": (POWER_AND, "and"),
    "==": (POWER_COMPARISON, "eq"),
    "!=": (POWER_COMPARISON, "ne"),
    "<": (POWER_COMPARISON, "lt"),
    "<=": (POWER_COMPARISON, "le"),
    ">": (POWER_COMPARISON, "gt"),
    ">=": (POWER_COMPARISON, "ge"),
    "..": (5, None),
    "..=": (5, None),
    "+": (6, "add"),
    "-": (6, "sub"),
    "*": (7, "mul"),
    "/": (7, "div"),
    "%": (7, "rem"),
}
IN_OPERATOR: Final[tuple[int, BinaryOp | None]] = (POWER_COMPARISON, "in")
COMPARISONS: Final = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "in"))
POSTFIX_STARTS: Final = frozenset((".", "?.", "(", "[", "\n"))
ASSIGN_OPS: Final[dict[str, AssignOp]] = {
    "=": "set",
    "+=": "add",
    "-=": "sub",
    "*=": "mul",
    "/=": "div",
}
REDIRECTS: Final[dict[str, RedirectKind]] = {">": "out", ">>": "append", "<": "in"}

# --- names of tokens in messages -----------------------------------------------------------------

TOKEN_NAMES: Final = {
    EOF: "Eof", "": "Eof", "\n": "Newline", ";": "Semi", "(": "LParen", ")": "RParen",
    "[": "LBracket", "]": "RBracket", "{": "LBrace", "}": "RBrace", ",": "Comma", ":": "Colon",
    ".": "Dot", "..": "DotDot", "..=": "DotDotEq", "?.": "QuestionDot", "=>": "FatArrow",
    "->": "ThinArrow", "...": "Ellipsis", "+": "Plus", "-": "Minus", "*": "Star", "/": "Slash",
    "%": "Percent", "==": "EqEq", "!=": "NotEq", "<": "Lt", "<=": "Le", ">": "Gt", ">=": "Ge",
    "=": "Eq", "+=": "PlusEq", "-=": "MinusEq", "*=": "StarEq", "/=": "SlashEq", "!": "Bang",
    "&&": "AndAnd", "||": "OrOr", "??": "QQ", "|": "Pipe", "^": "Caret", "?": "Question",
}  # fmt: skip
COMMAND_TOKEN_NAMES: Final = TOKEN_NAMES | {
    ">": "RedirOut", ">>": "RedirAppend", "<": "RedirIn", "&": "Amp", "--": "DashDash",
    "-": "Dash",
}  # fmt: skip
