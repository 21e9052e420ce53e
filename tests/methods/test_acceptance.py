"""Which method takes which receiver: every pair of the table of chapter 21 §2."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.methods.support import evaluator
from worker.errors import Raised
from worker.values.render import inline

# Receivers in the order of the columns; those of `coll` all behave alike.
RECEIVERS: Final = {
    "coll": ["[1, 2]", "(1..3)", "json.parse([{a: 1}].json())"],
    "str": ['"ab"'],
    "record": ["{a: 1}"],
    "bytes": ['path("f").read_bytes'],
    "path": ['path("f")'],
    "glob": ['glob("f")'],
    "outcome": ["(echo ab)"],
    "stream": ["[1, 2].stream()"],
}

# Calls that are right for the receivers that take them.
CALLS: Final = {
    "len": "len()", "count": "count()", "is_empty": "is_empty()", "first": "first()",
    "last": "last()", "map": "map(x => 1)", "where": "where(x => true)",
    "filter": "filter(x => true)", "flat_map": "flat_map(x => [1])", "each": "each(x => 1)",
    "reduce": "reduce(0, (a, x) => a)", "fold": "fold(0, (a, x) => a)", "any": "any(x => true)",
    "all": "all(x => true)", "find": "find(x => true)", "sort": "sort(x => 1)",
    "sort_by": "sort_by(x => 1)", "uniq": "uniq()", "min": "min()", "max": "max()",
    "chunks": "chunks(1)", "group": "group(x => 1)", "group_by": "group_by(x => 1)",
    "reverse": "reverse()", "enumerate": "enumerate()", "take": "take(1)", "skip": "skip(1)",
    "contains": 'contains("a")', "collect": "collect()", "stream": "stream()", "tee": "tee(2)",
    "str": "str()", "display": "display()", "json": "json()", "save": 'save("o")',
    "append": 'append("o")', "tap": "tap(x => 1)", "also": "also(x => 1)",
}  # fmt: skip

# Marks per column: y taken, - refused with type_error.
_COLLECTIONS: Final = "y - - - - y - y"
ROWS: Final = {
    "len count is_empty": "y y y y - y y y",
    "first last": _COLLECTIONS,
    "map where filter flat_map": _COLLECTIONS,
    "each": _COLLECTIONS,
    "reduce fold any all find": _COLLECTIONS,
    "sort sort_by uniq chunks group group_by": _COLLECTIONS,
    "reverse": "y y - - - y y y",
    "enumerate": _COLLECTIONS,
    "take skip": "y y - - - y y y",
    "contains": "y y y - - y y y",
    "collect": _COLLECTIONS,
    "stream": "y y - y - y y y",
    "tee": _COLLECTIONS,
    "str display": "- y - y y - y -",
    "json save append": "y y y y y y y y",
    "tap also": "y y y y y y y y",
}
# The outcome of the sample prints text, so what it takes is what a str takes.
PAIRS: Final = [
    (source, CALLS[name], mark == "y")
    for names, marks in ROWS.items()
    for name in names.split()
    for (kind, sources), mark in zip(RECEIVERS.items(), marks.split(), strict=True)
    for source in sources
]


@pytest.mark.parametrize(("source", "call", "taken"), PAIRS)
def test_a_receiver_takes_a_method_or_refuses_it(
    tmp_path: Path, source: str, call: str, taken: bool
) -> None:
    (tmp_path / "f").write_text("text")
    ev = evaluator(str(tmp_path))
    try:
        given = inline(ev.evaluate_source(f"{source}.{call}"))
    except Raised as failure:
        assert not taken, str(failure)
        assert failure.error.code == "type_error"
    else:
        assert taken, given
