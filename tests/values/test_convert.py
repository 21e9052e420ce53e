"""Chapter 20 §5.1 to §5.4 and §5.6: words, arguments, standard input, texts, parsers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.values.samples import SAMPLES, SECOND, lazy, outcome
from worker.errors import Raised
from worker.values.convert import (
    argv_word,
    coerce_list,
    coerce_word,
    echo_text,
    interpolate,
    parse_datetime,
    parse_duration,
    parse_float,
    parse_int,
    parse_size,
    parse_time,
    redirect_bytes,
    stdin_bytes,
)
from worker.values.operators import equal
from worker.values.render import inline
from worker.values.types import (
    INT_MAX,
    INT_MIN,
    SIZE_MAX,
    TYPE_NAMES,
    Duration,
    Path,
    Size,
    Table,
    Value,
    type_name,
)

# --- words (5.1) ----------------------------------------------------------------------------------

WORDS: list[tuple[str, str, str]] = [
    ("str", "7", '"7"'),
    ("int", "7", "7"),
    ("int", "+7", "7"),
    ("int", "-007", "-7"),
    ("int", "-9223372036854775808", str(INT_MIN)),
    ("int?", "7", "7"),
    ("float", "3.5", "3.5"),
    ("float", ".5", "0.5"),
    ("float", "5.", "5"),
    ("float", "1e3", "1000"),
    ("float", "-Infinity", "-inf"),
    ("float", "1e999", "inf"),
    ("bool", "true", "true"),
    ("bool", "false", "false"),
    ("size", "12KB", "12kb"),
    ("size", ".5kib", "512b"),
    ("duration", "1h30m", "1h30m"),
    ("duration", "-2.5S", "-2s500ms"),
    ("duration", "90", "1m30s"),
    ("duration", "-5", "-5s"),
    ("time", "7:45", "07:45"),
    ("time", "12:00AM", "00:00"),
    ("time", "23:59:59", "23:59:59"),
    ("datetime", "2031-05-04", "2031-05-04T00:00:00Z"),
    ("path", "a//b", "a//b"),
    ("glob", "*.c", "*.c"),
    ("list<int>", "5", "[5]"),
    ("list", "5", '["5"]'),
    ("list<list<int>>?", "5", "[[5]]"),
    ("colour", "red", '"red"'),
    ("record", "x", '"x"'),
]


@pytest.mark.parametrize(("declared", "text", "expected"), WORDS)
def test_a_word_becomes_the_declared_type(declared: str, text: str, expected: str) -> None:
    assert inline(coerce_word(text, declared, "/work")) == expected


def test_a_glob_word_remembers_the_directory_and_a_path_word_does_not() -> None:
    assert coerce_word("*.c", "glob", "/work").origin == "/work"
    assert coerce_word("b", "path", "/work") == Path("b")


BAD_WORDS: list[tuple[str, str]] = [
    ("int", ""),
    ("int", " 7"),
    ("int", "7.0"),
    ("int", "0x1f"),
    ("int", "1_000"),
    ("int", "9223372036854775808"),
    ("int", "٧"),
    ("float", "."),
    ("float", "1_0.5"),
    ("float", "0x1p3"),
    ("float", "nano"),
    ("bool", "True"),
    ("bool", "yes"),
    ("size", "12"),
    ("size", "-1kb"),
    ("size", "1 kb"),
    ("size", "1e3kb"),
    ("size", "1kb2kb"),
    ("duration", "1h30"),
    ("duration", "s"),
    ("duration", "-"),
    ("duration", "1h-30m"),
    ("duration", ""),
    ("duration", "5 s"),
    ("time", "24:00"),
    ("time", "8:60"),
    ("time", "0:30am"),
    ("time", "13:00pm"),
    ("time", "9:5"),
    ("time", "123:45"),
    ("datetime", "yesterday"),
    ("list<int>", "x"),
]


@pytest.mark.parametrize(("declared", "text"), BAD_WORDS)
def test_a_word_that_does_not_parse_names_type_and_text(declared: str, text: str) -> None:
    with pytest.raises(Raised) as caught:
        coerce_word(text, declared, "/")
    wanted = "int" if declared == "list<int>" else declared
    assert caught.value.error.code == "arg_error"
    assert caught.value.error.msg == f'expected {wanted}, found "{text}"'


def test_a_list_for_a_list_parameter_converts_its_str_elements_only() -> None:
    assert coerce_list(["1", 2.5, None, "3"], "list<int>", "/") == [1, 2.5, None, 3]
    assert coerce_list(["1"], "int", "/") == ["1"]
    with pytest.raises(Raised, match='expected int, found "x"'):
        coerce_list(["1", "x"], "list<int>?", "/")


# --- parsers (5.6) --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parser", "text", "expected"),
    [
        (parse_int, "-042", -42),
        (parse_float, "1e3", 1000.0),
        (parse_size, "99999999999tb", Size(SIZE_MAX)),
        (parse_size, "1.5b", Size(2)),
        (parse_duration, "2.5ns", Duration(3)),
        (parse_duration, "-2.5ns", Duration(-3)),
        (parse_duration, "99999999999w", Duration(INT_MAX)),
        (parse_duration, "-99999999999w", Duration(INT_MIN)),
        (parse_duration, "1w2d3h4m5s6ms7us8ns", Duration(788_645_006_007_008)),
    ],
)
def test_parsers(parser: Callable[[str], Value], text: str, expected: Value) -> None:
    assert equal(parser(text), expected)
    assert type(parser(text)) is type(expected)


@pytest.mark.parametrize(
    ("parser", "what"),
    [
        (parse_int, "int"),
        (parse_float, "float"),
        (parse_size, "size"),
        (parse_duration, "duration"),
        (parse_time, "time"),
    ],
)
def test_parsers_name_text_and_type_on_failure(parser: Callable[[str], Value], what: str) -> None:
    with pytest.raises(Raised) as caught:
        parser('n"o')
    assert caught.value.error.code == "arg_error"
    assert caught.value.error.msg == f'cannot parse "n\\"o" as {what}'


def test_an_invalid_datetime_literal_shows_its_text() -> None:
    with pytest.raises(Raised, match="invalid datetime `2031-13-01`") as caught:
        parse_datetime("2031-13-01")
    assert caught.value.error.code == "arg_error"


# --- argument words (5.2) -------------------------------------------------------------------------

ARGV: list[tuple[Value, bytes]] = [
    ("né", "né".encode()),
    ("", b""),
    (Path("caf\udce9 x"), b"caf\xe9 x"),
    (-7, b"-7"),
    (2.0, b"2"),
    (1e20, b"100000000000000000000"),
    (float("inf"), b"inf"),
    (float("-inf"), b"-inf"),
    (float("nan"), b"NaN"),
    (Size(4000), b"4000"),
    (Duration(2 * SECOND), b"2000000000"),
    (True, b"true"),
    (False, b"false"),
]


@pytest.mark.parametrize(("value", "expected"), ARGV)
def test_argument_words(value: Value, expected: bytes) -> None:
    assert argv_word(value) == expected


def test_no_other_type_is_an_argument_word() -> None:
    accepted = {type_name(value) for value, _ in ARGV}
    for name in TYPE_NAMES:
        if name in accepted:
            continue
        with pytest.raises(Raised) as caught:
            argv_word(SAMPLES[name])
        wanted = "secret cannot be placed in argv"
        message = wanted if name == "secret" else f"{name} cannot be passed as argv"
        assert (caught.value.error.code, caught.value.error.msg) == ("type_error", message)


# --- standard input (5.3) -------------------------------------------------------------------------

FED: list[tuple[Value, bytes]] = [
    ("né", "né".encode()),
    (b"\xff\x00", b"\xff\x00"),
    (lazy(b"stored content"), b"stored content"),
    (7, b"7"),
    (2.0, b"2"),
    (True, b"true"),
    (Size(2500), b"2.5kb"),
    (Duration(90 * SECOND), b"1m30s"),
    (SAMPLES["datetime"], b"2026-01-01T00:00:00Z"),
    (SAMPLES["time"], b"07:45"),
    (["b", "a"], b"b\na\n"),
    ([], b""),
    (["b", 1], b'["b",1]'),
    ({"b": 1, "a": None}, b'{"a":null,"b":1}'),
    (Table([{"a": 1}]), b'[{"a":1}]'),
    (outcome(stdout=b"raw \xff\n"), b"raw \xff\n"),
    (outcome(stdout=b'{"a": [1, 2]}\n'), b'{"a":[1,2]}'),
    (outcome(structured=["x", "y"], stdout=b"other"), b"x\ny\n"),
    (outcome(ok=False, status=1, stdout=b"partial\n"), b"partial\n"),
]


@pytest.mark.parametrize(("value", "expected"), FED)
def test_standard_input(value: Value, expected: bytes) -> None:
    assert stdin_bytes(value) == expected


REFUSED: dict[str, tuple[str, str, str]] = {
    "path": ("type_error", "a name, not the file's contents", 'path("x").read.feed(cmd)'),
    "stream": ("type_error", "cannot feed a stream to a command's stdin", "collect"),
    "secret": ("feed_error", "a secret cannot be fed as stdin data", "injected at spawn time"),
    "task": ("feed_error", "a task cannot be fed as stdin data", ""),
    "closure": ("feed_error", "a closure cannot be fed as stdin data", ""),
    "error": ("feed_error", "a error cannot be fed as stdin data", ""),
    "glob": ("feed_error", "a glob cannot be fed as stdin data", ""),
    "regex": ("feed_error", "a regex cannot be fed as stdin data", ""),
    "null": ("type_error", "cannot feed a null to a command's stdin", ""),
    "command": ("type_error", "cannot feed a command to a command's stdin", ""),
    "range": ("type_error", "cannot feed a range to a command's stdin", ""),
}


def test_every_type_is_either_fed_or_refused() -> None:
    assert {type_name(value) for value, _ in FED} | set(REFUSED) == set(TYPE_NAMES)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_on_standard_input(name: str) -> None:
    code, message, hint = REFUSED[name]
    with pytest.raises(Raised) as caught:
        stdin_bytes(SAMPLES[name])
    assert caught.value.error.code == code
    assert message in caught.value.error.msg
    assert hint in (caught.value.error.hint or "")


# --- texts (5.4) ----------------------------------------------------------------------------------

TEXTS: list[tuple[Value, str, str]] = [
    ("a\nb", "a\nb", "a\nb"),
    (Path("my file"), '"my file"', "my file"),
    (Path("file"), "file", "file"),
    (b"xyz", "bytes(3b)", "bytes(3b)"),
    (1.0, "1", "1"),
    (True, "true", "true"),
    (None, "null", ""),
    (["a"], '["a"]', '["a"]'),
    (Size(2000), "2kb", "2kb"),
]


@pytest.mark.parametrize(("value", "interpolated", "echoed"), TEXTS)
def test_texts_of_interpolation_and_echo(value: Value, interpolated: str, echoed: str) -> None:
    assert interpolate(value) == interpolated
    assert echo_text(value) == echoed


def test_a_secret_is_never_interpolated_and_echoes_its_name() -> None:
    with pytest.raises(Raised, match="secrets cannot be interpolated"):
        interpolate(SAMPLES["secret"])
    assert echo_text(SAMPLES["secret"]) == "secret(deploy-key)"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"a\xff", b"a\xff"),
        (lazy(b"stored content"), b"stored content"),
        ("a", b"a\n"),
        ("a\n", b"a\n"),
        ("", b"\n"),
        (None, b""),
        (Path("my file"), b"my file\n"),
        ([1], b"[1]\n"),
        (outcome(stdout=b"all of it"), b"all of it"),
    ],
)
def test_bytes_of_a_redirect(value: Value, expected: bytes) -> None:
    assert redirect_bytes(value) == expected
