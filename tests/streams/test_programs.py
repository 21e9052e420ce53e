"""Streams as programs use them: sources, combinators, sinks, consumption (chapter 30 §14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.methods.support import check_failure, evaluator, failure, run, value_of
from worker.evaluate.host import Host

TABLE = """json.parse('[{"n": 3}, {"n": 1}]')"""

RESULTS = [
    # sources and their labels
    ("[7, [8]].stream().collect()", "[7, [8]]"),
    ("(2..5).stream().collect()", "[2, 3, 4]"),
    (f"{TABLE}.stream().collect()", "[{n: 3}, {n: 1}]"),
    ('"u\\nv".stream().collect()', '["u", "v"]'),
    ("[1].stream()", "stream<value>"),
    ("every(1h)", "stream<datetime>"),
    ('channel("c").events()', "stream<event>"),
    ("every(1h).where(t => true).take(2)", "stream<datetime>"),
    ("every(1h).map(t => 1)", "stream<value>"),
    ("every(1h).scan(0, (a, t) => a)", "stream<value>"),
    ("every(1h).flat_map(t => [])", "stream<value>"),
    ("every(1h).window(2)", "stream<list>"),
    ("every(1h).enumerate()", "stream<list>"),
    ("every(1h).zip([1].stream())", "stream<list>"),
    ("every(1h).merge([1].stream())", "stream<value>"),
    ("every(1h).dedupe().distinct().debounce(1s).throttle(1s)", "stream<datetime>"),
    ("every(1h).tee()", "[stream<datetime>, stream<datetime>]"),
    ("every(1h).take(1).tee()", "[stream<value>, stream<value>]"),
    # stages
    ("(1..8).stream().where(n => n % 3 == 0).map(n => n * n).collect()", "[9, 36]"),
    ("(1..8).stream().filter(n => n > 5).collect()", "[6, 7]"),
    ("(1..5).stream().scan(10, (acc, n) => acc + n).collect()", "[11, 13, 16, 20]"),
    ("(1..4).stream().flat_map(n => 0..n).collect()", "[0, 0, 1, 0, 1, 2]"),
    ("(1..3).stream().flat_map(n => [n, n].stream()).collect()", "[1, 1, 2, 2]"),
    (f"[0].stream().flat_map(n => {TABLE}).collect()", "[{n: 3}, {n: 1}]"),
    ("(1..9).stream().take(2).collect()", "[1, 2]"),
    ("(1..9).stream().take().collect()", "[]"),
    ("(1..9).stream().take_until(n => n > 3).collect()", "[1, 2, 3]"),
    ("(1..9).stream().take_until([].stream()).len()", "8"),
    ("[4, 4, 9, 9.0, 4].stream().dedupe().collect()", "[4, 9, 4]"),
    ("[4, 9, 4.0, true, 9].stream().distinct().collect()", "[4, 9, true]"),
    ('[path("a//b"), "a/b", path("a/b")].stream().distinct().len()', "2"),
    ("(1..5).stream().window(2).collect()", "[[1, 2], [2, 3], [3, 4]]"),
    ("(1..3).stream().window(5).collect()", "[]"),
    ("(1..4).stream().window(1h).collect()", "[[1], [1, 2], [1, 2, 3]]"),
    ("(1..4).stream().buffer(0).collect()", "[1, 2, 3]"),
    ('["u", "v"].stream().enumerate().collect()', '[[0, "u"], [1, "v"]]'),
    ("(1..3).stream().merge((7..9).stream()).collect()", "[1, 2, 7, 8]"),
    ("(1..4).stream().zip([8, 9].stream()).collect()", "[[1, 8], [2, 9]]"),
    ("every(2ms).zip([8].stream()).map(p => p[1]).collect()", "[8]"),
    ("(1..4).stream().throttle(1h).collect()", "[1]"),
    ("(1..4).stream().debounce(1ms).collect()", "[3]"),
    # sinks and the methods of the list
    ("(1..4).stream().each(n => n)", "null"),
    ("var t = 0\n(1..4).stream().each(n => { t += n })\nt", "6"),
    ("var t = 0\nfor n in (1..4).stream() { t += n }\nt", "6"),
    ("(1..5).stream().sum()", "10"),
    ("(1..5).stream().len", "4"),
    ("(1..5).stream().first(2)", "[1, 2]"),
    ("(1..5).stream().skip(2)", "[3, 4]"),
    ("(1..5).stream().reduce(0, (a, n) => a - n)", "-10"),
    ("(1..4).stream().json()", '"[1,2,3]"'),
    ("(1..4).stream().stream().collect()", "[1, 2, 3]"),
    ("(1..4).stream().get(1)", "2"),
    ("(1..4).stream().contains(3)", "true"),
    ("every(2ms).take(2).len()", "2"),
    # handles
    ("let s = [1].stream()\ns == s", "true"),
    (
        "let s = [1].stream()\nlet t = [s]\nt[0].collect()\ns.collect() catch e { e.code }",
        '"stream_consumed"',
    ),
    ("[3].stream().tap(s => 1).collect()", "[3]"),
    (
        "let s = [3].stream()\ns.tap(s => s.collect())\ns.len() catch e { e.code }",
        '"stream_consumed"',
    ),
    ("let s = [1, 2].stream()\nlet t = s.buffer(4)\nt == s", "true"),
]


@pytest.mark.parametrize(("source", "shown"), RESULTS, ids=[row[0][:60] for row in RESULTS])
def test_result(source: str, shown: str) -> None:
    assert run(source) == shown


CONSUMED = [
    "map(n => n)", "where(n => true)", "scan(0, (a, n) => a)", "flat_map(n => [n])", "take(1)",
    "take_until(n => true)", "dedupe()", "distinct()", "debounce(1s)", "throttle(1s)", "window(1)",
    "buffer(1)", "enumerate()", "merge([1].stream())", "zip([1].stream())", "tee()", "collect()",
    "each(n => n)", 'save("f")', 'append("f")',
    'into(channel("c"))', "render()", "len()", "skip(1)",
]  # fmt: skip


@pytest.mark.parametrize("later", CONSUMED)
def test_only_the_first_use_gets_the_source(later: str) -> None:
    check_failure(
        f"let s = [1].stream()\ns.map(n => n)\ns.{later}",
        "stream_consumed",
        "stream already consumed",
        "`.collect()`",
    )


def test_a_stream_cannot_meet_itself() -> None:
    assert failure("let s = [1].stream()\ns.merge(s)").code == "stream_consumed"
    assert run("let s = [1].stream()\ns.zip(s) catch e { s.collect() }") == "[1]"


BAD_ARGUMENTS = [
    ("map()", "arg_error", "missing argument 1"),
    ("scan(0)", "arg_error", "missing argument 2"),
    ("take(-1)", "type_error", "expected non-negative int, found int"),
    ("take_until()", "arg_error", "missing argument 1"),
    ("dedupe(1)", "arg_error", "method takes no arguments"),
    ("distinct(x: 1)", "arg_error", "method takes no arguments"),
    ("enumerate(1)", "arg_error", "method takes no arguments"),
    ("collect(1)", "arg_error", "method takes no arguments"),
    ("debounce(1)", "arg_error", "expected a non-negative duration"),
    ("throttle(-1s)", "arg_error", "expected a non-negative duration"),
    ("window(0)", "arg_error", "window expects a positive count or a duration"),
    ('window("2")', "arg_error", "window expects a positive count or a duration"),
    ("window()", "arg_error", "missing argument 1"),
    ("buffer(-1)", "type_error", "expected non-negative int"),
    ("merge([1])", "type_error", "merge expects a stream, found list"),
    ("zip(3)", "type_error", "zip expects a stream, found int"),
    ("tee(0)", "arg_error", "tee count must be positive"),
    ("tee(-1)", "type_error", "expected non-negative int"),
    ("into(3)", "arg_error", "into expects a channel: "),
    ('into({channel: "a", b: 1})', "arg_error", "into expects a channel: "),
    ("save(3)", "type_error", "expected path, found int"),
    ("chunks(0)", "arg_error", "chunk size must be positive"),
    ("skip(-1)", "type_error", "expected non-negative int"),
    ("sum(1)", "arg_error", "sum takes no arguments"),
    ("zzz()", "field_missing", "unknown method `.zzz` on list"),
    ("upper()", "type_error", "expected str, found list"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "code", "phrase"), BAD_ARGUMENTS, ids=[row[0] for row in BAD_ARGUMENTS]
)
def test_bad_arguments_do_not_consume(call: str, code: str, phrase: str) -> None:
    check_failure(f"[5].stream().{call}", code, phrase)
    if not call.startswith("chunks"):
        # Zero is refused by `chunks` itself, on the list it works on.
        assert run(f"let s = [5].stream()\ns.{call} catch e {{ s.collect() }}") == "[5]"


UNBOUNDED = [
    "every(1h).collect()",
    "every(1h).len()",
    "every(1h).skip(1)",
    "every(1h).map(t => t).sort()",
    "every(1h).merge([1].stream()).collect()",
    "every(1h).take_until(t => true).collect()",
    "every(1h).tee()[0].collect()",
    'channel("c").events().collect()',
    "for t in every(1h) { t }",
    "every(1h).window(2).first()",
]


@pytest.mark.parametrize("source", UNBOUNDED)
def test_a_stream_without_an_end_cannot_be_collected(source: str) -> None:
    check_failure(source, "stream_unbounded", "this stream has no natural end", ".take(n)")


def test_a_refused_collect_consumes_nothing() -> None:
    source = "let s = every(2ms)\ns.collect() catch e { 0 }\ns.take(2).len()"
    assert run(source) == "2"


def test_merge_and_zip_are_bounded_by_their_inputs() -> None:
    assert run("every(1ms).zip((1..4).stream()).len()") == "3"
    assert failure("[1].stream().merge(every(1h)).len()").code == "stream_unbounded"
    assert run("[1].stream().merge(every(1ms)).take(3).len()") == "3"


def test_nothing_runs_before_a_sink_pulls() -> None:
    source = """
    var calls = 0
    let s = (1..100).stream().map(n => { calls += 1; n }).where(n => n > 0).take(3)
    let before = calls
    s.collect()
    [before, calls]
    """
    assert run(source) == "[0, 3]"


def test_an_error_in_a_stage_ends_the_sink_and_the_stream() -> None:
    source = """
    var seen = []
    let s = [1, 2, 0, 4].stream().map(n => 8 / n)
    let code = s.each(n => { seen = seen + [n] }) catch e { e.code }
    [code, seen, s.len() catch e { e.code }]
    """
    assert run(source) == '["div_zero", [8, 4], "stream_consumed"]'


def test_a_predicate_of_a_stage_follows_the_condition_rule() -> None:
    check_failure("[1].stream().where(n => n).len()", "type_error", "expected bool", "truthiness")
    check_failure("[1].stream().take_until(n => n).len()", "type_error", "expected bool")


def test_flat_map_names_what_it_got() -> None:
    check_failure(
        "[1].stream().flat_map(n => n).len()",
        "type_error",
        "flat_map expects each result to be a stream or list, found int",
    )


def test_a_stream_compares_by_identity_only() -> None:
    assert run("[1].stream() == [1].stream()") == "false"
    check_failure("[1].stream() == [1]", "type_error", "cannot compare a stream", "`.collect()`")


EVERY = [
    ("every()", "arg_error", ""),
    ("every(1s, 2s)", "arg_error", ""),
    ("every(5)", "type_error", ""),
    ("every(-1s)", "type_error", ""),
    ("every(0s)", "arg_error", "every expects a positive interval"),
    ("watch()", "arg_error", ""),
    ("watch(1)", "type_error", ""),
    ('watch("nowhere")', "not_found", "watch target does not exist: "),
    ('watch("nowhere/*.c")', "not_found", "watch target does not exist: "),
    ('watch("a[b")', "arg_error", ""),
    ("tail()", "arg_error", ""),
    ("tail(1)", "type_error", "expected a path, found int"),
    ('tail("nowhere")', "not_found", "tail target does not exist: "),
]


@pytest.mark.parametrize(("source", "code", "phrase"), EVERY, ids=[row[0] for row in EVERY])
def test_source_failure(source: str, code: str, phrase: str, tmp_path: Path) -> None:
    check_failure(source, code, phrase, cwd=str(tmp_path))


def test_render_shows_every_item() -> None:
    shown: list[object] = []
    ev = evaluator(host=Host(sink=shown.append))
    assert value_of('[1, null, "a"].stream().render()', ev=ev) is None
    assert shown == [1, "a"]


def test_save_appends_a_line_per_item(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("old\n")
    source = '["a b", {k: 1}, 2kb, null].stream().save("log")'
    assert run(source, str(tmp_path)) == f"{tmp_path}/log"
    run('["é"].stream().append("log")', str(tmp_path))
    assert (tmp_path / "log").read_text() == 'old\na b\n{"k":1}\n2000\nnull\né\n'


def test_save_writes_each_line_as_it_comes(tmp_path: Path) -> None:
    source = """
    var sizes = []
    [1, 22].stream().map(n => { sizes = sizes + [path("log").size]; n }).save("log")
    sizes
    """
    assert run(source, str(tmp_path)) == "[0b, 2b]"


def test_save_that_cannot_be_written_consumes_nothing(tmp_path: Path) -> None:
    check_failure(
        '[1].stream().save("no/log")', "custom", f"{tmp_path}/no/log: ", cwd=str(tmp_path)
    )
    source = 'let s = [1].stream()\ns.save("no/log") catch e { s.collect() }'
    assert run(source, str(tmp_path)) == "[1]"


def test_into_emits_every_item() -> None:
    source = """
    [4, 5].stream().into(channel("fill"))
    channel("fill").events().take(2).map(.payload).collect()
    """
    assert run(source) == "[4, 5]"
