"""`json yaml toml csv math os config` and the rules all namespaces share (chapter 31 §10)."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.builtins.support import Shell, shell_in
from worker.builtins.namespaces import NAMESPACES, csv_text, toml_text, yaml_text
from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator
from worker.values.types import Table


@pytest.fixture
def session(shell: Shell) -> Shell:
    return shell


def quoted(text: str) -> str:
    """A text as a literal of the language."""
    return json.dumps(text).replace("{", "\\{")


def parsed(session: Shell, namespace: str, text: str) -> str:
    return session.inline(f"{namespace}.parse({quoted(text)})")


# --- members --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("json.parse", "`json.parse` is a function — call it"),
        ("os.pid", "`os.pid` is a function — call it"),
        ("config.get", "`config.get` is a function — call it"),
        ("json.nope(1)", "unknown method `json.nope`"),
        ("math.pi()", "unknown method `math.pi`"),
        ("math.sqrt", "`math.sqrt` is not a constant; if it is a function, call it"),
        ("math.nope", "`math.nope` is not a constant; if it is a function, call it"),
        ("os.nope(1)", "unknown method `os.nope`"),
    ],
)
def test_a_member_that_is_not_there_is_missing(session: Shell, source: str, message: str) -> None:
    error = session.fails(source)
    assert (error.code, error.msg) == ("field_missing", message)


def test_an_unknown_member_read_as_a_field_is_missing(session: Shell) -> None:
    assert session.code("json.nope") == "field_missing"
    assert session.code("os.nope") == "field_missing"


def test_a_namespace_is_no_value_and_a_binding_hides_it(session: Shell) -> None:
    assert session.code("let x = json") == "undefined_var"
    assert session.inline('let csv = {parse: s => "mine"}\ncsv.parse("a")') == '"mine"'


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("json.parse()", "json.parse expects a str argument"),
        ("json.parse(5)", "json.parse expects a str, found int"),
        ("yaml.parse()", "yaml.parse expects a str argument"),
        ("toml.parse(null)", "toml.parse expects a str, found null"),
        ("csv.parse([])", "csv.parse expects a str, found list"),
        ("config.get(5)", "config.get expects a str, found int"),
        ("os.pid(1)", "os.pid takes no arguments"),
        ("os.env(x: 1)", "os.env takes no arguments"),
    ],
)
def test_a_missing_or_wrong_first_argument(session: Shell, source: str, message: str) -> None:
    error = session.fails(source)
    assert (error.code, error.msg) == ("arg_error", message)


def test_surplus_arguments_are_ignored(session: Shell) -> None:
    assert session.inline('json.parse("1", 2, 3)') == "1"
    assert session.inline("math.sqrt(4, 9)") == "2"


# --- json -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"b": 1, "a": {"k": [true, null]}}', "{a: {k: [true, null]}, b: 1}"),
        ('[{"a": 1}, {"b": 2}]', "[{a: 1}, {b: 2}]"),
        ("[1, 2.0, 1e2, -0]", "[1, 2, 100, -0]"),
        ("18446744073709551616", "18446744073709552000"),
        ('{"a": 1, "a": 2}', "{a: 2}"),
        ('"\\u00e9"', '"é"'),
    ],
)
def test_json_values(session: Shell, text: str, value: str) -> None:
    assert parsed(session, "json", text) == value


def test_json_texts(session: Shell) -> None:
    assert session.run("json.stringify({z: 1, a: {k: [true]}})") == '{"a":{"k":[true]},"z":1}'
    pretty = session.run("json.stringify({a: [1]}, pretty: true)")
    assert pretty == '{\n  "a": [\n    1\n  ]\n}'
    assert session.run("json.stringify({a: [1]}, true)") == pretty
    assert session.run("json.stringify([1], pretty: false)") == "[1]"


def test_json_arrays_of_objects_are_tables(session: Shell) -> None:
    assert type(session.run("""json.parse('[{"a": 1}]')""")) is Table
    assert type(session.run("json.parse('[]')")) is list


# --- yaml -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("crew: [ann, bo]\nsize: 2", '{crew: ["ann", "bo"], size: 2}'),
        ("[true, True, TRUE, false]", "[true, true, true, false]"),
        ("[null, Null, NULL, ~, ]", "[null, null, null, null]"),
        ("a:", "{a: null}"),
        ("", "null"),
        ("[yes, on, Off, n]", '["yes", "on", "Off", "n"]'),
        ("[0x1F, 0o17, 0b101, -3, +4, 017]", "[31, 15, 5, -3, 4, 17]"),
        ("[1.5, 1e3, .5, -.inf, .nan, 1.]", "[1.5, 1000, 0.5, -inf, nan, 1]"),
        ("[2001-12-14, 12:30:00, 1_000]", '["2001-12-14", "12:30:00", "1_000"]'),
        ("99999999999999999999", "100000000000000000000"),
        ("{1: a, true: b, ~: c}", '{"1": "a", true: "b", "~": "c"}'),
        ("<<: {a: 1}\nb: 2", '{"<<": {a: 1}, b: 2}'),
        ("a: &x [1]\nb: *x", "{a: [1], b: [1]}"),
        ("a: 1\na: 2", "{a: 2}"),
        ("- a: 1\n- b: 2", "[{a: 1}, {b: 2}]"),
        ("'5'", '"5"'),
        ("!!str 5", '"5"'),
        ("!!float 5", "5"),
        ("|\n  two\n  lines\n", '"two\\nlines\\n"'),
        ("# only a comment", "null"),
    ],
)
def test_yaml_values_follow_the_core_schema(session: Shell, text: str, value: str) -> None:
    assert parsed(session, "yaml", text) == value


@pytest.mark.parametrize(
    "text",
    [
        "[1",
        "a: b: c",
        "--- 1\n--- 2",
        "? [a]\n: b",
        "&a [*a]",
        "*nowhere",
        "!custom x",
        "!!int x",
        "[" * 200 + "]" * 200,
    ],
)
def test_yaml_refuses(session: Shell, text: str) -> None:
    error = session.fails(f"yaml.parse({quoted(text)})")
    assert error.code == "arg_error"
    assert error.msg.startswith("yaml.parse: ")


def test_aliases_that_would_grow_without_bound_are_refused() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(Raised, match="more than 1000000 nodes"):
        yaml_text.parse("\n".join(lines), "yaml.parse")


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_what_is_written_as_yaml_reads_back(data: Any) -> None:
    text = yaml_text.render(data)
    assert text.endswith("\n")
    assert yaml_text.parse(text, "yaml.parse") == data


@pytest.mark.parametrize(
    "text", ["yes", "2001-12-14", "0o17", "null", "~", "", "1_000", "0b1", "x: y"]
)
def test_a_string_that_looks_like_something_else_is_quoted_for_either_version(text: str) -> None:
    assert yaml.safe_load(yaml_text.render(text)) == text
    assert yaml_text.parse(yaml_text.render(text), "yaml.parse") == text


def test_yaml_texts_are_in_block_style(session: Shell) -> None:
    assert session.run('yaml.stringify({b: [1, {c: "x"}], a: {}})') == "a: {}\nb:\n- 1\n- c: x\n"
    assert session.run('yaml.stringify("x")') == "x\n"


# --- toml -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("b = 1\na = [1, 2]\n[t.u]\nx = 'y'", '{a: [1, 2], b: 1, t: {u: {x: "y"}}}'),
        ("[[i]]\nn = 'x'\n[[i]]\nn = 'y'", '{i: [{n: "x"}, {n: "y"}]}'),
        ("f = 1.0\ni = inf", "{f: 1, i: inf}"),
        ("n = 99999999999999999999", "{n: 100000000000000000000}"),
        ("", "{}"),
        (
            "a = 1979-05-27 07:32:00.10\nb = [{ c = 1979-05-27T07:32:00+00:00 }]\n"
            "[d]\ne = 07:32:00\nf = 1979-05-27",
            '{a: "1979-05-27 07:32:00.10", b: [{c: "1979-05-27T07:32:00+00:00"}], '
            'd: {e: "07:32:00", f: "1979-05-27"}}',
        ),
    ],
)
def test_toml_values(session: Shell, text: str, value: str) -> None:
    assert parsed(session, "toml", text) == value


@pytest.mark.parametrize(
    "text", ["a", "a = ", "a = 1\na = 2", "[a]\n[a]", "a = " + "[" * 300 + "]" * 300]
)
def test_toml_refuses(session: Shell, text: str) -> None:
    error = session.fails(f"toml.parse({quoted(text)})")
    assert error.code == "arg_error"
    assert error.msg.startswith("toml.parse: ")


@pytest.mark.parametrize(
    "source",
    [
        "toml.stringify([1])",
        "toml.stringify(5)",
        "toml.stringify({a: null})",
        "toml.stringify({a: [{b: null}]})",
    ],
)
def test_toml_cannot_hold_everything(session: Shell, source: str) -> None:
    assert session.code(source) == "arg_error"


def test_toml_texts(session: Shell) -> None:
    assert session.run('toml.stringify({t: {z: 1}, a: [1, 2], b: "x", r: [{k: 1}]})') == (
        'a = [1, 2]\nb = "x"\n\n[t]\nz = 1\n\n[[r]]\nk = 1\n'
    )


TOML_DATA = st.dictionaries(
    st.text(st.characters(codec="utf-8")),
    st.recursive(
        st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(codec="utf-8")),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
        ),
        max_leaves=12,
    ),
    max_size=5,
)


@given(TOML_DATA)
def test_what_is_written_as_toml_reads_back(data: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text.render(data, "toml.stringify")) == data


# --- csv ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a,b\n1,2\n", '[{a: "1", b: "2"}]'),
        ("b,a\r\n1,2\r\n\r\n3,4", '[{b: "1", a: "2"}, {b: "3", a: "4"}]'),
        ('a\n"x,""y""\nz"', '[{a: "x,\\"y\\"\\nz"}]'),
        ("a,b", "[]"),
        ("", "[]"),
        ("\n\n", "[]"),
        ('a\n""\n', '[{a: ""}]'),
        ("a,b\n,\n", '[{a: "", b: ""}]'),
        ("a\n 5 \n", '[{a: " 5 "}]'),
    ],
)
def test_csv_values(session: Shell, text: str, value: str) -> None:
    assert type(session.run(f"csv.parse({quoted(text)})")) is Table
    assert parsed(session, "csv", text) == value


@pytest.mark.parametrize("text", ["a,b\n1", "a\n1,2"])
def test_csv_rows_are_as_long_as_the_header(session: Shell, text: str) -> None:
    error = session.fails(f"csv.parse({quoted(text)})")
    assert (error.code, error.msg[:11]) == ("arg_error", "csv.parse: ")


def test_a_csv_cell_may_be_long() -> None:
    cell = "x" * 300_000
    assert csv_text.parse(f"a\n{cell}\n", "csv.parse").rows == [{"a": cell}]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("[{a: 1, b: null}, {b: 2.0, c: 3}]", "a,b\n1,null\n,2\n"),
        ('{a: "x,y", b: "say \\"hi\\""}', 'a,b\n"x,y","say ""hi"""\n'),
        ('[{a: "two\\nlines"}]', 'a\n"two\nlines"\n'),
        ('[{a: ""}]', 'a\n""\n'),
        ('[{a: [1, "x"], b: 2kb}]', 'a,b\n"[1, ""x""]",2kb\n'),
        ("[]", ""),
        ('csv.parse("a\\n1")', "a\n1\n"),
    ],
)
def test_csv_texts(session: Shell, value: str, text: str) -> None:
    assert session.run(f"csv.stringify({value})") == text


@pytest.mark.parametrize("value", ["5", '"a"', "[1]", "[{a: 1}, 2]", "null"])
def test_csv_needs_rows(session: Shell, value: str) -> None:
    assert session.code(f"csv.stringify({value})") == "type_error"


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\ufeff")),
        min_size=1,
        max_size=3,
        unique=True,
    ).flatmap(
        lambda header: st.lists(
            st.fixed_dictionaries({name: st.text(st.characters(codec="utf-8")) for name in header}),
            min_size=1,
            max_size=4,
        )
    )
)
def test_what_is_written_as_csv_reads_back(rows: list[dict[str, str]]) -> None:
    assert csv_text.parse(csv_text.render(Table(rows)), "csv.parse").rows == rows


# --- math -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("math.pi", "3.141592653589793"),
        ("math.tau == 2 * math.pi", "true"),
        ("[math.inf, -math.inf, math.nan]", "[inf, -inf, nan]"),
        ("math.sqrt2", "1.4142135623730951"),
        ("math.sqrt(16)", "4"),
        ("math.sqrt(-1)", "nan"),
        ("math.cbrt(-27)", "-3"),
        ("math.cbrt(1000)", "10"),
        ("math.ln(0)", "-inf"),
        ("math.ln(-1)", "nan"),
        ("math.log2(8)", "3"),
        ("math.log10(1000)", "3"),
        ("math.log(8, 2)", "3"),
        ("math.log(2, 1)", "inf"),
        ("math.exp(1000)", "inf"),
        ("math.pow(2, 10)", "1024"),
        ("math.pow(-8, 0.5)", "nan"),
        ("math.pow(0, -1)", "inf"),
        ("math.pow(-0.0, -1)", "-inf"),
        ("math.pow(-10, 999)", "-inf"),
        ("math.asin(2)", "nan"),
        ("math.sin(math.inf)", "nan"),
        ("[math.floor(-1.5), math.ceil(-1.5), math.trunc(-1.5)]", "[-2, -1, -1]"),
        ("[math.round(2.5), math.round(-2.5), math.round(0.49999999999999994)]", "[3, -3, 0]"),
        ("[math.floor(math.inf), math.round(-math.inf), math.ceil(math.nan)]", "[inf, -inf, nan]"),
        ("math.ceil(-0.5)", "-0"),
        ("math.abs(-3)", "3"),
        ("[math.sign(0), math.sign(-0.0), math.sign(-9), math.sign(math.nan)]", "[1, -1, -1, nan]"),
        ("[math.min(3, math.nan), math.max(math.nan, 3)]", "[3, 3]"),
        ("[math.min(3, -1), math.max(3, -1)]", "[-1, 3]"),
        ("math.hypot(3, 4)", "5"),
        ("math.atan2(0, -1) == math.pi", "true"),
        ("[math.clamp(5, 0, 3), math.clamp(-5, 0, 3), math.clamp(2, 0, 3)]", "[3, 0, 2]"),
        ("math.clamp(math.nan, 0, 1)", "nan"),
    ],
)
def test_math(session: Shell, source: str, value: str) -> None:
    assert session.inline(source) == value


def test_math_always_gives_floats(session: Shell) -> None:
    assert type(session.run("math.abs(3)")) is float
    assert type(session.run("math.floor(3)")) is float


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("math.sqrt()", "arg_error", "math.sqrt expects argument 1"),
        ("math.pow(2)", "arg_error", "math.pow expects argument 2"),
        ("math.clamp(1, 2)", "arg_error", "math.clamp expects argument 3"),
        ('math.sqrt("4")', "type_error", "math expects a number, found str"),
        ("math.sqrt(true)", "type_error", "math expects a number, found bool"),
        ("math.clamp(5, 10, 0)", "arg_error", "math.clamp: lo must be <= hi"),
        ("math.clamp(5, math.nan, 0)", "arg_error", "math.clamp: lo must be <= hi"),
    ],
)
def test_math_refuses(session: Shell, source: str, code: str, message: str) -> None:
    error = session.fails(source)
    assert (error.code, error.msg) == (code, message)


# --- os, config -----------------------------------------------------------------------------------


def test_os_facts(session: Shell) -> None:
    assert session.run("os.pid()") == os.getpid()
    assert session.run("os.cpus()") == len(os.sched_getaffinity(0))
    assert session.inline("os.uptime() > 0s") == "true"
    assert session.run("os.hostname()") == os.uname().nodename
    assert session.run("os.platform()") in ("linux", "macos", "freebsd")


def test_the_user_is_taken_from_the_session_first(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    shell.evaluator.env.update({b"USER": b"", b"LOGNAME": b"ann", b"USERNAME": b"bo"})
    assert shell.inline("os.username()") == '"ann"'


def test_config_is_what_the_host_gave(tmp_path: Path) -> None:
    shell = shell_in(tmp_path, config={"a": {"b": 1}, "render": 2})
    assert shell.inline("config.all()") == "{a: {b: 1}, render: 2}"
    assert shell.inline('[config.get("a"), config.get("a.b"), config.render, config.none]') == (
        "[{b: 1}, null, 2, null]"
    )
    assert shell_in(tmp_path).inline('[config.all(), config.get("x")]') == "[{}, null]"


WRONG_ARGUMENTS: tuple[list[Any], ...] = ([], [None], [5], ["x"], [[]], [{}], [True, 1, "x"])


def test_every_function_checks_its_arguments(session: Shell) -> None:
    """Nothing but language errors comes out, whatever is passed."""
    evaluator: Evaluator = session.evaluator
    for namespace in NAMESPACES.values():
        for name in namespace.functions:
            for pos in WRONG_ARGUMENTS:
                if namespace.name == "http" and pos and type(pos[0]) is str:
                    continue
                try:
                    namespace.call(evaluator, name, list(pos), {})
                except Raised as error:
                    assert error.error.code in ("arg_error", "type_error", "permission")
