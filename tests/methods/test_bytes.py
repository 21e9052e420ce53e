"""Bytes, content-addressed bytes and content references (chapter 21 §9)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.methods.support import evaluator, run, value_of
from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator
from worker.evaluate.host import Host
from worker.values.methods import call_method, field_method
from worker.values.types import MISSING, LazyBytes, Value

HASH = "0123456789abcdef" * 4
REFERENCE = f"val:blake3:{HASH}"


def stored(content: bytes, loads: list[int] | None = None) -> LazyBytes:
    def load(offset: int, length: int | None) -> bytes:
        if loads is not None:
            loads.append(offset)
        return content[offset : None if length is None else offset + length]

    return LazyBytes(HASH, len(content), content[:4], False, load)


class Journal:
    """A store that knows one content."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def lookup(self, digest: str) -> LazyBytes | None:
        return stored(self._content) if digest == HASH else None


def call(recv: Value, name: str, *pos: Value, ev: Evaluator | None = None) -> Any:
    return call_method(ev or evaluator(), recv, name, list(pos))


def error_of(recv: Value, name: str, *pos: Value, ev: Evaluator | None = None) -> tuple[str, str]:
    with pytest.raises(Raised) as caught:
        call(recv, name, *pos, ev=ev)
    return caught.value.error.code, caught.value.error.msg


def test_resident_bytes() -> None:
    assert call(b"\xffab", "len") == call(b"\xffab", "count") == 3
    assert call(b"", "is_empty") is True
    assert call("é".encode(), "str") == "é"
    assert call(b"a\xff", "display") == "a\ufffd"
    assert call(b"a\xff", "json") == '"a\ufffd"'
    assert call(call(b"u\r\nv\xff\n", "stream"), "collect") == ["u", "v\ufffd"]
    assert error_of(b"\xff", "str") == ("utf8_error", "bytes are not valid UTF-8")
    assert error_of(b"a", "len", 1) == ("arg_error", "method takes no arguments")


@pytest.mark.parametrize("name", ["first", "reverse", "upper", "words", "take", "sort"])
def test_bytes_are_no_collection_and_no_text(name: str) -> None:
    code, message = error_of(b"ab", name)
    assert code == "type_error"
    assert message.endswith(", found bytes")


def test_contains_needs_its_argument_before_it_looks_at_the_receiver() -> None:
    assert error_of(b"ab", "contains") == ("arg_error", "missing argument 1")
    assert error_of(b"ab", "contains", 1) == ("type_error", "expected collection, found bytes")


@pytest.mark.parametrize("name", ["ref", "load", "bytes"])
def test_resident_bytes_have_no_reference(name: str) -> None:
    assert error_of(b"ab", name)[0] == "field_missing"


def test_metadata_needs_no_load() -> None:
    loads: list[int] = []
    value = stored(b"hello", loads)
    assert call(value, "len") == call(value, "count", 1) == 5
    assert call(value, "is_empty", 1) is False
    assert call(value, "ref") == REFERENCE
    tap = value_of("let f = b => 1\nf")
    assert call(value, "tap", tap) is value
    assert loads == []


def test_other_methods_load_once() -> None:
    loads: list[int] = []
    value = stored(b"hi\nyou", loads)
    assert call(value, "load") == call(value, "bytes") == b"hi\nyou"
    assert loads == [0, 0]
    assert call(value, "str") == "hi\nyou"
    assert call(value, "json") == '"hi\\nyou"'
    assert call(call(value, "stream"), "collect") == ["hi", "you"]
    assert loads == [0] * 5
    assert error_of(value, "upper")[0] == "type_error"
    assert error_of(value, "zzz")[1] == "unknown method `.zzz` on bytes"
    assert len(loads) == 5


def test_saving_stored_bytes_gives_resident_ones(tmp_path: Any) -> None:
    ev = evaluator(str(tmp_path))
    assert call(stored(b"hello"), "save", "f", ev=ev) == b"hello"
    assert (tmp_path / "f").read_bytes() == b"hello"


def test_content_that_cannot_be_loaded() -> None:
    assert error_of(LazyBytes(HASH, 9, b"", False), "load")[0] == "io_error"


def test_a_reference_stands_for_its_bytes() -> None:
    ev = evaluator(host=Host(journal=Journal(b"kept")))
    assert run(f'"{REFERENCE}".len()', ev=ev) == "4"
    assert run(f'"{REFERENCE}".load().str()', ev=ev) == '"kept"'
    assert run(f'"{REFERENCE}".ref()', ev=ev) == f'"{REFERENCE}"'
    assert run(f'"{REFERENCE}".display', ev=ev) == '"kept"'


def test_a_reference_nothing_is_stored_under() -> None:
    ev = evaluator(host=Host(journal=Journal(b"")))
    other = REFERENCE.replace("0", "f")
    assert error_of(other, "len", ev=ev) == (
        "not_found",
        f"no CAS blob for content ref {other} in the journal/CAS",
    )
    assert error_of(REFERENCE, "len") == (
        "not_found",
        f"cannot resolve content ref {REFERENCE}: this session has no journal/CAS",
    )


@pytest.mark.parametrize(
    "text",
    [REFERENCE[:-1] + "G", REFERENCE[:-1], REFERENCE + "0", REFERENCE.upper(), "val:blake3:"],
)
def test_every_other_string_is_an_ordinary_string(text: str) -> None:
    assert call(text, "len") == len(text)


def test_the_field_form_knows_stored_bytes() -> None:
    ev = evaluator()
    assert field_method(ev, stored(b"abc"), "len") == 3
    assert field_method(ev, stored(b"abc"), "zzz") is MISSING
