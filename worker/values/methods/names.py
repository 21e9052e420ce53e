"""Methods of a path that only look at its name (chapter 21 §7.1). No I/O.

Failure: type_error for a segment that is none, `utf8_error` for the strict text of a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.errors import raised, type_error
from worker.values import paths
from worker.values.methods.arguments import Parameter
from worker.values.methods.registry import TAKES_NOTHING, method
from worker.values.types import Path, Value, type_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

PATH: Final = ("path",)


def segment(value: Value) -> str:
    if type(value) is Path:
        return value.raw
    if type(value) is str:
        return value
    raise type_error(f"expected str or path, found {type_name(value)}")


@method("name", on=PATH, result="str or null", doc="The last component.")
def name(ev: Evaluator, recv: Path) -> Value:
    return paths.name(recv.raw)


@method("stem", on=PATH, result="str or null", doc="The name without its extension.")
def stem(ev: Evaluator, recv: Path) -> Value:
    return paths.stem(recv.raw)


@method("ext", on=PATH, result="str or null", doc="The extension, without the dot.")
def ext(ev: Evaluator, recv: Path) -> Value:
    return paths.ext(recv.raw)


@method(
    "parent",
    on=PATH,
    result="path or null",
    doc="The path without its last component.",
    refuses=TAKES_NOTHING,
)
def parent(ev: Evaluator, recv: Path) -> Value:
    raw = paths.parent(recv.raw)
    return None if raw is None else Path(raw)


_SEGMENT: Final = Parameter("seg", "str or path", segment)


@method(
    "join",
    on=PATH,
    params=(_SEGMENT,),
    result="path",
    doc="The path with a segment after it; an absolute segment replaces it.",
)
def join(ev: Evaluator, recv: Path, seg: str) -> Value:
    return Path(paths.join(recv.raw, seg))


@method(
    "abs",
    on=PATH,
    result="path",
    doc="The absolute path in the session's directory.",
    refuses=TAKES_NOTHING,
)
def absolute(ev: Evaluator, recv: Path) -> Value:
    return Path(ev.absolute(recv))


@method("str", on=PATH, result="str", doc="The text of the name, which must be UTF-8.")
def to_text(ev: Evaluator, recv: Path) -> Value:
    try:
        recv.raw.encode()
    except UnicodeEncodeError:
        raise raised("utf8_error", "path is not valid UTF-8") from None
    return recv.raw


@method("display", on=PATH, result="str", doc="The text of the name, U+FFFD for bad bytes.")
def display(ev: Evaluator, recv: Path) -> Value:
    return recv.display
