"""The vocabulary per receiver type and the hints for unknown methods (chapter 21 §1.6).

`VOCABULARY` also feeds completion after a dot. Its order decides between equally good guesses, so
it is written out instead of being taken from the registry.

Failure: none; a name nothing is known about has no hint.
"""

from __future__ import annotations

from typing import Final


def _names(text: str) -> list[str]:
    return text.split()


_COLLECTION: Final = _names(
    "len count is_empty first last collect stream tee map reduce fold where filter each any all "
    "find flat_map sort_by sort reverse uniq sum min max flatten enumerate skip take chunks zip "
    "group group_by join contains get json save append feed"
)
_SCALAR: Final = _names("json save append feed")
_NUMBER: Final = _names("abs round floor ceil str display json save append feed")

VOCABULARY: Final[dict[str, list[str]]] = {
    "list": _COLLECTION,
    "table": _COLLECTION,
    "range": _COLLECTION,
    "str": _names(
        "len count is_empty lines words chars trim upper lower split starts_with ends_with "
        "contains replace matches match parse_int parse_float take skip reverse stream str "
        "display json save append feed"
    ),
    "record": _names(
        "keys values items set merge get contains len count is_empty json save append feed"
    ),
    "int": _NUMBER,
    "float": _NUMBER,
    "path": _names(
        "name stem ext parent join abs read read_bytes lines exists is_dir is_file size modified "
        "save append str display json"
    ),
    "task": _names("await wait cancel is_done suspend resume is_suspended"),
    "bytes": _names("len count is_empty str display stream json save append feed"),
    **dict.fromkeys(("bool", "size", "duration", "datetime", "time"), _SCALAR),
}

_SHORT_NAME_LENGTH: Final = 4
_PREFIX_LENGTH_MIN: Final = 3
_SLICING: Final = frozenset(("substring", "substr", "slice"))


def method_hint(type_name: str, name: str) -> str | None:
    """What the caller probably meant; the first rule that applies decides."""
    table = VOCABULARY.get(type_name)
    if table is None:
        return None
    if name in ("length", "size") and "len" in table:
        return "did you mean .len()?"
    if name == "push" and type_name in ("list", "table"):
        return "values are immutable; build a new list with `list + [item]`"
    if name in _SLICING and type_name == "str":
        return "use .take(n) for the start of a string and .skip(n) for the rest"
    if name.startswith("to_") and name[3:] in table:
        return f"did you mean .{name[3:]}()?"
    near = _nearest(name, table)
    if near is not None:
        return f"did you mean .{near}()?"
    for known in table:
        if len(known) >= _PREFIX_LENGTH_MIN and name.startswith(known + "_"):
            return f"did you mean .{known}()?"
    return None


def _nearest(name: str, table: list[str]) -> str | None:
    limit = 1 if len(name) <= _SHORT_NAME_LENGTH else 2
    limit = min(limit, len(name) - 1)
    best: str | None = None
    best_distance = limit + 1
    for known in table:
        if abs(len(known) - len(name)) < best_distance:
            distance = edit_distance(name, known)
            if distance < best_distance:
                best, best_distance = known, distance
    return best


def edit_distance(left: str, right: str) -> int:
    """Levenshtein: insertions, deletions and substitutions, each one step."""
    previous = list(range(len(right) + 1))
    for row, a in enumerate(left, 1):
        current = [row]
        for column, b in enumerate(right, 1):
            current.append(
                min(
                    previous[column] + 1,
                    current[column - 1] + 1,
                    previous[column - 1] + (a != b),
                )
            )
        previous = current
    return previous[-1]
