"""Whatever a program is given, what comes of it is defined: an error of the language, never a
failure of the evaluator, and never a wait without end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evaluate.session import Session
from worker.errors import Cancelled

DEEPEST = "recursion_limit"

# Programs that call themselves without end, each in another way.
RECURSION = {
    "plain": "fn f(n) { f(n + 1) }\nf(0)",
    "not in the tail": "fn f(n) { 1 + f(n) }\nf(0)",
    "mutual": "fn a(n) { b(n) }\nfn b(n) { a(n) }\na(0)",
    "a function that gets itself": "let w = x => x(x)\nw(w)",
    "a callable field": "let r = {f: self => self.f(self)}\nr.f(r)",
    "an immediate lambda": "fn f(n) { (m => f(m))(n) }\nf(0)",
    "a default": "fn f(n = f()) { n }\nf()",
    "a list item": "fn f(n) { [1, [2, {a: f(n)}]] }\nf(0)",
    "a string hole": 'fn f(n) { "a{f(n)}b" }\nf(0)',
    "a condition": "fn f(n) { if f(n) { 1 } }\nf(0)",
    "a match arm": "fn f(n) { match n { int x => f(x) } }\nf(0)",
    "a loop body": "fn f(n) { for i in [1] { f(n) } }\nf(0)",
    "a with body": 'fn f(n) { with cwd: "/" { f(n) } }\nf(0)',
    "map": "fn f(n) { [n].map(x => f(x)) }\nf(0)",
    "where": "fn f(n) { [n].where(x => f(x)).len() == 1 }\nf(0)",
    "reduce": "fn f(n) { [n].reduce(0, (a, x) => f(x)) }\nf(0)",
    "sort_by": "fn f(n) { [n, 2].sort_by(x => f(x)) }\nf(0)",
    "group": "fn f(n) { [n].group(x => f(x)) }\nf(0)",
    "tap": "fn f(n) { n.tap(x => f(x)) }\nf(0)",
    "a stream": "fn f(n) { [n].stream().map(x => f(x)).collect() }\nf(0)",
    "retry": "fn f(n) { retry(1) { f(n) } }\nf(0)",
    "command form": "fn g(x) { g x }\ng x",
    "an alias": "alias q = q\nq",
    "an alias of a function": "fn g(x) { h(x) }\nalias h = g\nh x",
    "a chain of closures": ("var f = () => 0\nfor i in 0..11000 { let g = f; f = () => g() }\nf()"),
    "a spawned task": "fn f(n) { f(n) }\n(spawn { f(0) }).await()",
    "parallel": "fn f(n) { f(n) }\nparallel(() => f(0), () => f(1))",
    "parallel and map": "fn f(n) { [n].map(x => f(x)) }\nparallel(() => f(0), () => f(1))",
    "a handler": ('fn f(n) { f(n) }\nlet t = on("c", e => f(e))\nchannel("c").emit(1)\nt.await()'),
}


@pytest.mark.parametrize("src", RECURSION.values(), ids=RECURSION)
def test_recursion_without_end_is_an_error_and_the_evaluator_goes_on(
    session: Session, src: str
) -> None:
    assert session.error(src).code == DEEPEST
    assert session.text("6 * 7") == "42"


def test_every_thunk_of_parallel_has_its_own_depth(session: Session) -> None:
    src = "fn f(n) { f(n) }\nparallel(() => f(0), () => 1, settle: true).first().code"
    assert session.text(src) == f'"{DEEPEST}"'


NUMBERS = {
    "9223372036854775807 + 1": "integer overflow",
    "-9223372036854775807 - 2": "integer overflow",
    "2 * 9223372036854775807": "integer overflow",
    "let least = -9223372036854775807 - 1\n-least": "integer overflow",
    "let least = -9223372036854775807 - 1\nleast / -1": "integer overflow",
    "let least = -9223372036854775807 - 1\nleast % -1": "integer overflow",
    "(-9223372036854775807 - 1).abs()": "overflow",
    "var n = 9223372036854775807\nn += 1": "integer overflow",
    "[9223372036854775807, 1].sum()": "integer overflow",
    "(-9223372036854775807..=9223372036854775807).len()": "integer overflow",
    "18446744073709551615b + 1b": "size overflow",
    "10000tb * 10000": "size overflow",
    "1w * 100000000": "duration overflow",
    "1s * math.inf": "duration overflow",
    't"9999-12-31T23:59:59Z" + 1d': "datetime out of range",
    '(t"9000-01-01" - t"1000-01-01")': "overflow",
    "(106751d * 2).ago": "overflow",
}  # fmt: skip


@pytest.mark.parametrize(("src", "phrase"), NUMBERS.items())
def test_numbers_out_of_range_are_overflow(session: Session, src: str, phrase: str) -> None:
    error = session.error(src)
    assert error.code == "overflow"
    assert phrase in error.msg


IMMENSE = {
    "(0..9223372036854775807).first(3)": "[0, 1, 2]",
    "(-9223372036854775807..=9223372036854775807).last(2)": (
        "[9223372036854775806, 9223372036854775807]"
    ),
    "(0..9223372036854775807).len()": "9223372036854775807",
    "5 in 0..9223372036854775807": "true",
    "[1, 2].take(9223372036854775807)": "[1, 2]",
    "(1..=3).chunks(9223372036854775807)": "[[1, 2, 3]]",
    "[1].stream().window(9223372036854775807).collect()": "[]",
    "1.5.round(9223372036854775807)": "1.5",
}


@pytest.mark.parametrize(("src", "expected"), IMMENSE.items())
def test_immense_counts_and_ranges_cost_nothing(session: Session, src: str, expected: str) -> None:
    assert session.text(src) == expected


@pytest.mark.parametrize(
    "src",
    [
        "(0..9223372036854775807).collect()",
        "(-9223372036854775807..=9223372036854775807).collect()",
        "(0..9223372036854775807).reverse()",
        "(0..9223372036854775807).json()",
    ],
)
def test_a_range_that_no_memory_holds_is_an_error(session: Session, src: str) -> None:
    error = session.error(src)
    assert error.code == "custom"
    assert "does not fit into memory" in error.msg
    assert session.text("6 * 7") == "42"


ENDLESS = {
    "every(1ms)": "collect()",
    'watch(".")': "len()",
    'tail("bad.txt")': "sum()",
    'channel("x").events()': "sort()",
    "(0..3).stream().merge(every(1ms))": "collect()",
    "every(1ms).take_until(n => false)": "collect()",
}


@pytest.mark.parametrize(("source", "sink"), ENDLESS.items())
def test_a_stream_without_end_is_not_collected(session: Session, source: str, sink: str) -> None:
    session.write("bad.txt", "")
    assert session.error(f"{source}.{sink}").code == "stream_unbounded"
    assert session.error(f"for x in {source} {{ x }}").code == "stream_unbounded"


@pytest.mark.parametrize(
    "src",
    [
        "every(1ms).each(n => n)",
        'channel("x").events().take(1).collect()',
        "every(1h).take(1).collect()",
        'path("fifo").read',
        "cat fifo",
        "head fifo",
        "sleep 9223372036854775807",
    ],
)
def test_what_would_wait_for_ever_ends_when_cancelled(session: Session, src: str) -> None:
    os.mkfifo(session.cwd / "fifo")
    token = session.fresh_token()
    timer = threading.Timer(0.1, token.cancel)
    timer.start()
    try:
        session.run(src)
    except Cancelled:
        pass
    finally:
        timer.join()
    assert token.cancelled


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def files(session: Session) -> Session:
    """Text that is no UTF-8, a name that is none, links that lead nowhere or in circles."""
    root = session.cwd
    (root / "bad.txt").write_bytes(b"ab\xff\xfe\nok")
    (root / os.fsdecode(b"n\xff")).write_text("x")
    (root / "loop").symlink_to(".")
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    (root / "dangling").symlink_to("nowhere")
    (root / "sub").mkdir()
    (root / "sub" / "up").symlink_to("..")
    (root / "bad.shl").write_bytes(b"1 + 1 # \xff")
    return session


FILE_VALUES = {
    "path('bad.txt').read_bytes.len()": "7",
    "(cat bad.txt).out.display()": '"ab\ufffd\ufffd\\nok"',
    "(head bad.txt).out": '["ab\ufffd\ufffd", "ok"]',
    "path('bad.txt').read_bytes.stream().collect()": '["ab\ufffd\ufffd", "ok"]',
    "tail('bad.txt', from_start: true).take(1).collect()": '["ab\ufffd\ufffd"]',
    "ls.map(.name).last(2)": '["n\ufffd", "sub"]',
    "(ls a).map(.type)": '["symlink"]',
    "(ls loop).len() == ls.len()": "true",
    "(stat dangling).type": '"symlink"',
    "path('a').exists": "false",
    "path('a').is_dir": "false",
    "path('dangling').exists": "false",
    # Wildcards do not follow links to directories, so a circle has an end.
    "glob('**/*.txt').map(.name)": '["bad.txt"]',
    "path('/dev/null').read": '""',
    "(cat /dev/null).out.len()": "0",
    "(head /dev/zero 0).out": "[]",
    "(stat /dev/null).type": '"other"',
    "'x'.save('/dev/null')": '"x"',
}


@pytest.mark.parametrize(("src", "expected"), FILE_VALUES.items())
def test_odd_files_have_defined_values(files: Session, src: str, expected: str) -> None:
    assert files.text(src.replace("'", '"')) == expected


FILE_ERRORS = {
    "path('bad.txt').read": ("utf8_error", "not valid UTF-8"),
    "path('bad.txt').lines": ("utf8_error", "not valid UTF-8"),
    "(cat bad.txt).out.str()": ("utf8_error", "bytes are not valid UTF-8"),
    "glob('n*').first().str()": ("utf8_error", "path is not valid UTF-8"),
    "source bad.shl": ("io_error", "cannot read script"),
    "run bad.shl": ("io_error", "cannot read script"),
    "use ./bad": ("io_error", "cannot read module"),
    "path('a').read": ("custom", "(os error 40)"),
    "path('dangling').read": ("not_found", "(os error 2)"),
    "path('.').read": ("custom", "(os error 21)"),
    "cat a": ("custom", "(os error 40)"),
    "cat dangling": ("custom", "No such file or directory (os error 2)"),
    "cat sub": ("custom", "(os error 21)"),
    "cd a": ("arg_error", "(os error 40)"),
    "cp -r loop x": ("custom", "copy"),
    "cp -r sub sub/x": ("custom", "copy"),
    "tail('a')": ("not_found", "tail target does not exist"),
    "'x'.save('/dev/full')": ("custom", "No space left on device (os error 28)"),
    "'x'.save('sub')": ("custom", "(os error 21)"),
}


@pytest.mark.parametrize(("src", "expected"), FILE_ERRORS.items())
def test_odd_files_have_defined_errors(files: Session, src: str, expected: tuple[str, str]) -> None:
    error = files.error(src.replace("'", '"'))
    assert (error.code, expected[1] in error.msg) == (expected[0], True), error


def test_an_endless_device_is_refused_before_memory_ends(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.builtins.reading.FILE_BYTES_MAX", 4 << 20)
    for src in ("cat /dev/zero", 'path("/dev/zero").read', "head /dev/zero"):
        error = session.error(src)
        assert (error.code, "File too large (os error 27)" in error.msg) == ("custom", True)


def test_an_entry_that_disappears_during_ls_is_left_out(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files go between the reading of the directory and the look at each of them."""
    for name in ("gone", "kept"):
        session.write(name, "")
    scan = os.scandir

    class Vanishing:
        def __init__(self, path: str) -> None:
            with scan(path) as entries:
                self._entries = iter(list(entries))
            (Path(path) / "gone").unlink()

        def __enter__(self) -> Vanishing:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def __iter__(self) -> Iterator[os.DirEntry[str]]:
            return self._entries

    monkeypatch.setattr("worker.builtins.listing.os.scandir", Vanishing)
    assert session.text("ls.map(.name)") == '["kept"]'


def test_a_directory_that_disappears_under_the_session(session: Session) -> None:
    (session.cwd / "d").mkdir()
    session.run("cd d")
    (session.cwd / "d").rmdir()
    assert session.error("ls").code == "custom"
    assert session.text("pwd.name") == '"d"'
    assert session.error("^/bin/true").code in ("custom", "not_found")
    assert session.text("cd -") == str(session.cwd)


def test_the_evaluator_survives_any_failure_inside_a_callback(session: Session) -> None:
    for src in ("[1].map(x => 1 / 0)", '[1].each(x => assert(false, "no"))'):
        session.error(src)
    assert session.evaluator.call_depth == 0
