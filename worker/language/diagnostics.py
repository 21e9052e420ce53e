"""Parse errors: what is wrong, where, and what to write instead.

A parse reports one error, the first it meets. The texts are part of the language's interface
(chapter 10 §11): clients and people match their phrases, so they live here and nowhere else.
"""

from __future__ import annotations

from worker.language.ast import Span


class ParseError(Exception):
    """The source does not parse. `span` counts UTF-8 bytes (inside a string hole: of its text)."""

    def __init__(self, message: str, span: Span, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hint = hint


class NestingError(ParseError):
    """Too deep to go on. Reading the text in another way would not help."""


# Message and hint of each habit from another shell or language.
Lesson = tuple[str, str | None]

PIPE: Lesson = (
    "shoal has no pipe operator",
    "chain methods on values: `ls.where(.size > 1mb)`; feed one command's output to another with "
    "`.feed(cmd)`; run a POSIX pipeline with `sh { … }`",
)
SIGIL: Lesson = (
    "shoal variables have no sigil",
    "write `name`, not `$name`; environment variables are `env.NAME`",
)
BACKTICK: Lesson = (
    "backtick is not shoal syntax",
    "command substitution is (cmd …); for POSIX source use `sh { … }`",
)
HEREDOC: Lesson = (
    "shoal has no heredocs",
    "give text to a command with `value.feed(cmd)`, or use a block such as `python { … }`",
)
HERE_STRING: Lesson = ("shoal has no here-strings", 'write `"text".feed(cmd)`')
FD_REDIRECT: Lesson = (
    "shoal has no fd-numbered redirects",
    "stderr is kept apart: read `(cmd).stderr`, or handle a failure with `catch e { e.stderr }`",
)
MERGE_REDIRECT: Lesson = (
    "shoal has no stream-merging redirect",
    "both streams are kept: read `(cmd).out` and `(cmd).stderr`",
)
AMPERSAND: Lesson = (
    "`&` is not an operator here",
    "logical and is &&; `&` runs a command in the background only after its last argument",
)
BRACKET_OPEN: Lesson = (
    "`[` cannot start a command argument",
    "quote it if it is text, or pass a list as an expression: `(expr)`",
)
BRACKET_CLOSE: Lesson = ("unexpected `]`", None)
CHAINED_COMPARISON: Lesson = (
    "comparison operators do not chain",
    "combine comparisons explicitly with `&&`",
)
LEADING_DOT: Lesson = (
    "a leading `.` has no receiver here",
    "`.name` alone is a shorthand only as a whole argument, as in `.map(.name)` or "
    "`.where(.size > 1mb)`; elsewhere write a lambda: `x => x.name`",
)
ARM_PIPE: Lesson = (
    "unexpected `|` at the start of a match arm",
    "alternation is `a | b => …`; drop the leading `|`",
)
INTERPRETER_BRACES: Lesson = (
    "unbalanced braces in interpreter block `{ … }`",
    "if braces or quotes of the payload do not balance, use the raw form: `sh'''…'''`",
)
RAW_NEWLINE: Lesson = ("unterminated string (newline)", "for several lines use `'''…'''`")
STRING_NEWLINE: Lesson = ("unterminated string (newline)", 'for several lines use `"""…"""`')
HOLE: Lesson = (
    "unterminated `{expr}` in string",
    r"for literal braces write `\{` and `\}`, or use a raw string ('…')",
)
EXPORT: Lesson = (
    "export must precede let, var, or fn",
    "environment variables are set with `env.NAME = value`",
)
WITH_KEY: Lesson = ("with accepts only cwd, env, and reef", None)
NESTING: Lesson = ("nesting too deep", None)

CHAIN_HINT = (
    "to chain methods on a command, wrap it in parentheses: `(git log).len()`, not `git log.len()`"
)
UNITS_HINT = "sizes: b kb mb gb tb kib mib gib tib; durations: ns us ms s m h d w"
ESCAPES_HINT = r"valid escapes: \n \t \r \0 \\ \" \{ \} \u{…}"
REPL_ONLY_HINT = "bind a variable to reuse a previous result"


def repl_only(name: str) -> Lesson:
    return f"`{name}` is REPL-only", REPL_ONLY_HINT


def force_command(name: str) -> str:
    return f"did you mean the command? force it with `^{name}`"
