"""The reference pages of the language, made from its registries and from what its functions do.

tests.docs.reference writes and checks them. Tables of operators and conversions are made by
applying the operators and conversions to one value of every type, so they say what happens and not
what should.

Failure: none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.values.samples import SAMPLES
from worker.builtins import BUILTINS, FUNCTIONS
from worker.builtins.namespaces import NAMESPACES
from worker.error_codes import CODES
from worker.errors import Raised
from worker.evaluate import concurrency
from worker.values.convert import argv_word, coerce_word, echo_text, interpolate, stdin_bytes
from worker.values.json_codec import to_json
from worker.values.methods import walk
from worker.values.operators import binary, truth
from worker.values.render import block, inline, strip_terminal
from worker.values.types import TYPE_NAMES, Value, type_name

DOCS: Final = Path(__file__).resolve().parents[2] / "docs" / "language"

_NOTICE: Final = "Generated; run `make format` after a change.\n"

# --- tables ---------------------------------------------------------------------------------------


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "↵")


def _code(text: str) -> str:
    """Text in backticks, whatever is in it; nothing for nothing."""
    if not text:
        return ""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    names = list(columns)
    yield f"| {' | '.join(names)} |"
    yield f"|{' --- |' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"
    yield ""


# --- methods --------------------------------------------------------------------------------------

_METHODS: Final = f"""# Methods

{_NOTICE}
A method is called with `value.name(arguments)`. Without arguments the parentheses may be left out,
except on a record, whose fields are the user's own. An outcome passes what it does not know itself
on to its `.out`, a glob to the list of its matches, a stream with an end to the list of its items.
`name?` marks an argument that may be left out, `= x` what it is then.
"""

# Receivers that share their methods, with the name a section has.
_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "Lists, tables and ranges": ("list", "table", "range"),
    "Strings": ("str",),
    "Records": ("record",),
    "Numbers and bool": ("int", "float", "bool"),
    "Paths": ("path",),
    "Globs": ("glob",),
    "Bytes": ("bytes", "content-addressed bytes"),
    "Outcomes": ("outcome",),
    "Tasks": ("task",),
    "Streams": ("stream",),
    "Channel handles": ("channel handle",),
}
# A method that so many types have is listed once, for all of them.
_COMMON_TYPES_MIN: Final = 15


def methods() -> Iterator[str]:
    yield _METHODS
    entries = walk()
    common = [entry for entry in entries if len(entry["receivers"]) >= _COMMON_TYPES_MIN]
    yield "## Every type\n"
    yield from _method_table(common)
    for title, receivers in _FAMILIES.items():
        yield f"## {title}\n"
        family = [
            entry
            for entry in entries
            if entry not in common and set(entry["receivers"]) & set(receivers)
        ]
        yield from _method_table(family, receivers)


def _method_table(entries: list[dict[str, Any]], receivers: tuple[str, ...] = ()) -> Iterator[str]:
    yield from table(
        ("Method", "Gives", ""),
        (
            (
                _code(f".{entry['name']}({', '.join(entry['parameters'])})"),
                entry["result"],
                entry["doc"] + _only(entry["receivers"], receivers) + _effects(entry["effects"]),
            )
            for entry in sorted(entries, key=lambda entry: str(entry["name"]))
        ),
    )


def _only(receivers: list[str], section: tuple[str, ...]) -> str:
    """Which receivers of a section a method is for, when not for all of them."""
    present = [name for name in section if name in receivers]
    return "" if len(present) == len(section) else f" Only {', '.join(present)}."


def _effects(effects: list[list[str]]) -> str:
    return "".join(f" Effect: {_code(kind)} of the {operand}." for kind, operand, _ in effects)


# --- operators ------------------------------------------------------------------------------------

_OPERATORS: Final = f"""# Operators

{_NOTICE}
The tables show the type of the result for one value of each type. A pair of types that is not in a
table raises `type_error`. Integers have 64 bits and raise `overflow` instead of wrapping; dividing
an int, a size or a duration by zero raises `div_zero`; floats follow IEEE 754.
"""
_ARITHMETIC: Final = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%"}


def _attempt(function: Callable[..., Any], *values: Any) -> Any:
    """The result, or the error's code in brackets."""
    try:
        return function(*values)
    except Raised as failure:
        return failure


def operators() -> Iterator[str]:
    yield _OPERATORS
    yield "## Arithmetic\n"
    yield from table(("Left", "Right", *map(_code, _ARITHMETIC.values())), _arithmetic())
    yield "## Order\n"
    yield "`<`, `<=`, `>`, `>=`, `sort`, `min` and `max` know an order of these pairs:\n"
    yield from table(("Left", "Right"), _pairs_with("lt"))
    yield "## Equality\n"
    yield (
        "`==` and `!=` have an answer for every pair of types. These pairs of different types can "
        "be equal; any other is unequal. A stream next to another type raises `type_error`.\n"
    )
    yield from table(("Left", "Right"), _EQUAL_ACROSS)
    yield "## Membership\n"
    yield "`needle in haystack` is defined for these types:\n"
    yield from table(("Haystack", "Needle"), _membership())
    yield "## Conditions\n"
    yield (
        "`if`, `while`, `!`, `&&`, `||`, match guards, `assert` and predicates take these types "
        "and no others: there is no truthiness.\n"
    )
    yield from table(("Type", "True when"), _conditions())


def _arithmetic() -> Iterator[tuple[str, ...]]:
    for left in TYPE_NAMES:
        for right in TYPE_NAMES:
            results = [_attempt(binary, op, SAMPLES[left], SAMPLES[right]) for op in _ARITHMETIC]
            cells = [
                "" if isinstance(result, Raised) and result.error.code == "type_error"
                # A sample may lie outside of what the cell can hold; then its own kind is meant.
                else left if isinstance(result, Raised)
                else type_name(result)
                for result in results
            ]  # fmt: skip
            if any(cells):
                yield (left, right, *cells)


def _pairs_with(op: str) -> Iterator[tuple[str, str]]:
    for left in TYPE_NAMES:
        for right in TYPE_NAMES:
            if not isinstance(_attempt(binary, op, SAMPLES[left], SAMPLES[right]), Raised):
                yield left, right


# Values of two types that are equal, as the test of this page proves.
EQUAL_SAMPLES: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("int", "float"): ("1", "1.0"),
    ("path", "str"): ('path("a/b")', '"a/b"'),
    ("table", "list"): ("json.parse([{a: 1}].json())", "[{a: 1}]"),
}
_EQUAL_ACROSS: Final = sorted(EQUAL_SAMPLES)


def _membership() -> Iterator[tuple[str, str]]:
    for haystack in TYPE_NAMES:
        needles = [
            needle
            for needle in TYPE_NAMES
            if not isinstance(_attempt(binary, "in", SAMPLES[needle], SAMPLES[haystack]), Raised)
        ]
        if needles:
            yield haystack, "any" if len(needles) == len(TYPE_NAMES) else ", ".join(needles)


_TRUE_WHEN: Final = {"bool": "it is `true`", "outcome": "the command succeeded"}


def _conditions() -> Iterator[tuple[str, str]]:
    for name in TYPE_NAMES:
        if not isinstance(_attempt(truth, SAMPLES[name]), Raised):
            yield name, _TRUE_WHEN[name]


# --- conversions ----------------------------------------------------------------------------------

_CONVERSIONS: Final = f"""# Conversions

{_NOTICE}
Values are not converted behind the user's back, with two exceptions: ints meet floats in
arithmetic, and the words of a command become the declared types of a function's parameters. The
tables show one value of each type; an error is shown by its code.
"""


def conversions() -> Iterator[str]:
    yield _CONVERSIONS
    yield "## Values to text\n"
    yield from table(
        ("Type", "In a string", "`echo`", "`.json()`"),
        (
            (name, *(_shown(form, SAMPLES[name]) for form in (interpolate, echo_text, to_json)))
            for name in TYPE_NAMES
        ),
    )
    yield "## Values to programs\n"
    yield "What a program gets for a value as one of its arguments, and on its standard input:\n"
    yield from table(
        ("Type", "Argument", "Standard input"),
        ((name, *(_shown(f, SAMPLES[name]) for f in (argv_word, stdin_bytes)))
         for name in TYPE_NAMES),
    )  # fmt: skip
    yield "## Words to parameters\n"
    yield "A word of a command in the place of a parameter with a type:\n"
    yield from table(
        ("Declared", "Word", "Value"),
        ((_code(declared), _code(word), _word(word, declared)) for declared, word in _WORDS),
    )


_WORDS: Final = (
    ("str", "42"), ("int", "42"), ("int", "4.5"), ("int", "+7"), ("float", "4"), ("float", "1e3"),
    ("float", "inf"), ("bool", "true"), ("bool", "yes"), ("size", "12MB"), ("size", "12"),
    ("duration", "1h30m"), ("duration", "90"), ("duration", "soon"), ("time", "6:05pm"),
    ("time", "25:00"), ("datetime", "2031-05-04"), ("datetime", "2031-05-04T09:30:00+02:00"),
    ("path", "notes.txt"), ("glob", "*.md"), ("list<int>", "3"), ("list", "a"), ("thing", "a"),
)  # fmt: skip


def _word(word: str, declared: str) -> str:
    value = _attempt(coerce_word, word, declared, "/srv")
    if isinstance(value, Raised):
        return f"{_code(value.error.code)}: {value.error.msg}"
    return f"{_code(inline(value))} ({type_name(value)})"


def _shown(form: Callable[[Any], str | bytes], value: Value) -> str:
    result = _attempt(form, value)
    if isinstance(result, Raised):
        return f"*{result.error.code}*"
    text = result.decode("utf-8", "replace") if isinstance(result, bytes) else result
    return _code(text) or "nothing"


# --- rendering ------------------------------------------------------------------------------------

_RENDERING: Final = f"""# Rendering

{_NOTICE}
The inline form is one line; strings in it are quoted, containers nest. The block form is what a
person is shown. It is coloured when the client is a terminal, and 80 columns wide: a table that is
wider shrinks its widest column.
"""

_BLOCKS: Final[Mapping[str, Value]] = {
    "A record": {"name": "notes.txt", "tags": ["a", "b"], "lines\nlong": None},
    "A list": ["two\nlines", 2.0, None, {"k": True}],
    "A list of records, or a table": [
        {"crew": "Ines", "dive": "42m"},
        {"crew": "日本", "gear": ["fins"]},
    ],
    "A table with a column too wide": [{"id": 1, "text": "x" * 70, "more": "y" * 40}],
}


def rendering() -> Iterator[str]:
    yield _RENDERING
    yield "## One line\n"
    yield from table(
        ("Type", "Inline form"), ((name, _code(inline(SAMPLES[name]))) for name in TYPE_NAMES)
    )
    yield "## Blocks\n"
    for title, value in _BLOCKS.items():
        yield f"{title}, {_code(inline(value))}:\n"
        yield "```text"
        yield strip_terminal(block(value))
        yield "```\n"


# --- errors ---------------------------------------------------------------------------------------

_ERRORS: Final = f"""# Error codes

{_NOTICE}
An error has a `code` for programs and a `msg` for people, often a `hint`; the error of a failed
program has its `status` and `stderr` too. `catch e` binds it.
"""


def errors() -> Iterator[str]:
    yield _ERRORS
    for title, codes in CODES.items():
        yield f"## {title}\n"
        yield from table(("Code", "When"), ((_code(code), text) for code, text in codes.items()))


# --- the index ------------------------------------------------------------------------------------

_INDEX: Final = f"""# The language

{_NOTICE}
- [tour.md](tour.md): the language for people who know Python and bash
- [methods.md](methods.md): every method, by the type it belongs to
- [operators.md](operators.md): what can be added, compared and tested
- [conversions.md](conversions.md): how values become text, words and input of programs
- [rendering.md](rendering.md): how values are shown
- [errors.md](errors.md): every error code
- [../builtins.md](../builtins.md): every builtin, function and namespace, with effects and undo
"""


def index() -> Iterator[str]:
    yield _INDEX
    yield "## Builtins\n"
    yield ", ".join(f"[`{name}`](../builtins.md#{name})" for name in sorted(BUILTINS)) + "\n"
    yield "## Functions\n"
    yield ", ".join(_code(name) for name in sorted({*FUNCTIONS, *concurrency.FUNCTIONS})) + "\n"
    yield "## Namespaces\n"
    for name in sorted(NAMESPACES):
        namespace = NAMESPACES[name]
        members = [*namespace.constants, *(f"{member}()" for member in namespace.functions)]
        yield f"- [`{name}`](../builtins.md#{name}): {', '.join(map(_code, members))}"
    yield ""


PAGES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "README.md": index,
    "methods.md": methods,
    "operators.md": operators,
    "conversions.md": conversions,
    "rendering.md": rendering,
    "errors.md": errors,
}


def render(name: str) -> str:
    """A whole page."""
    return "\n".join(PAGES[name]()).rstrip("\n") + "\n"
