"""Methods of bytes, resident and content-addressed, and content references (chapter 21 §9).

Content-addressed bytes answer from their metadata where they can; any other method of bytes loads
everything once and goes on with the resident bytes.

The journal of the host resolves a reference: `journal.lookup(hash)` gives the `LazyBytes` of that
hash, or None.

Failure: `utf8_error` for a strict decode, `not_found` for a reference, `io_error` for a load.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from worker.errors import not_found, raised
from worker.evaluate.streams.sources import stream_of_lines
from worker.values.content import resident
from worker.values.methods.registry import CONTENT, TAKES_NOTHING, method
from worker.values.types import LazyBytes, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

BYTES: Final = ("bytes",)
STORED: Final = (CONTENT,)

REFERENCE_LENGTH: Final = len("val:blake3:") + 64
_REFERENCE: Final = re.compile(r"val:blake3:([0-9a-f]{64})")


@method("len", "count", on=BYTES, result="int", doc="Number of bytes.", refuses=TAKES_NOTHING)
def length(ev: Evaluator, recv: bytes) -> Value:
    return len(recv)


@method(
    "is_empty", on=BYTES, result="bool", doc="Whether there are no bytes.", refuses=TAKES_NOTHING
)
def is_empty(ev: Evaluator, recv: bytes) -> Value:
    return not recv


@method("str", on=BYTES, result="str", doc="The text, which must be UTF-8.")
def to_text(ev: Evaluator, recv: bytes) -> Value:
    try:
        return recv.decode()
    except UnicodeDecodeError:
        raise raised("utf8_error", "bytes are not valid UTF-8") from None


@method("display", on=BYTES, result="str", doc="The text, U+FFFD for what is not UTF-8.")
def display(ev: Evaluator, recv: bytes) -> Value:
    return recv.decode("utf-8", "replace")


@method(
    "stream",
    on=BYTES,
    result="stream",
    doc="A bounded stream of the lines, decoded lossily.",
    refuses=TAKES_NOTHING,
)
def stream(ev: Evaluator, recv: bytes) -> Value:
    return stream_of_lines(recv.decode("utf-8", "replace"))


@method("len", "count", on=STORED, result="int", doc="Number of bytes, without loading them.")
def stored_length(ev: Evaluator, recv: LazyBytes) -> Value:
    return recv.length


@method("is_empty", on=STORED, result="bool", doc="Whether there are no bytes, without loading.")
def stored_is_empty(ev: Evaluator, recv: LazyBytes) -> Value:
    return recv.length == 0


@method("ref", on=STORED, result="str", doc="The reference `val:blake3:HASH`, without loading.")
def reference(ev: Evaluator, recv: LazyBytes) -> Value:
    return recv.reference


@method("load", "bytes", on=STORED, result="bytes", doc="The resident bytes.")
def load(ev: Evaluator, recv: LazyBytes) -> Value:
    return resident(recv)


def resolve_reference(ev: Evaluator, text: str) -> LazyBytes | None:
    """The bytes a str names, None for any ordinary str. Call with a str of REFERENCE_LENGTH."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        return None
    journal = ev.host.journal
    if journal is None:
        raise not_found(f"cannot resolve content ref {text}: this session has no journal/CAS")
    stored: LazyBytes | None = journal.lookup(found.group(1))
    if stored is None:
        raise not_found(f"no CAS blob for content ref {text} in the journal/CAS")
    return stored
