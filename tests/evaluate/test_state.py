"""Session state as cells: what a program changed, and that it comes back in another evaluator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evaluate.session import Session
from worker.evaluate.state import SavedCell, StateKeeper
from worker.values.inline import inline
from worker.values.types import MISSING, LazyBytes, Secret


class Kept:
    """A session with its keeper, and the cells as a store would have them."""

    def __init__(self, cwd: Path, cells: dict[str, bytes | None] | None = None) -> None:
        self.session = Session(cwd)
        self.cells: dict[str, bytes | None] = dict(cells or {})
        self.keeper = StateKeeper(
            self.session.evaluator,
            load_content=lambda digest, _at, _count: digest.encode(),
            read_secret=lambda name: f"material of {name}".encode(),
        )
        self.lost = self.keeper.restore(self.cells.items()) if cells else []

    def save(self) -> list[SavedCell]:
        changed = self.keeper.changed()
        for cell in changed:
            if cell.data is None and not cell.lost:
                self.cells.pop(cell.name, None)
            else:
                self.cells[cell.name] = cell.data
        return changed

    def run(self, src: str) -> str:
        """Run a program and save what it changed."""
        text = self.session.text(src)
        self.save()
        return text

    def again(self) -> Kept:
        """The same session in another worker."""
        return Kept(self.session.cwd, self.cells)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path.resolve())


VALUES = [
    "null", "true", "-7", "9223372036854775807", "2.5", '"text \\u{1f40c}"', "[1, [2], []]",
    '{a: 1, b: {c: "x"}}', "[{a: 1}, {a: 2}]", "1..=4", "3kib", "90s", 't"2024-02-29T12:00:00Z"',
    "12:30", 'path("a/b")', 'regex("a+b")', "now", '{f: [x => x, 1]}', 'glob("*.txt")',
]  # fmt: skip


@pytest.mark.parametrize("source", VALUES)
def test_a_value_comes_back_as_it_was(kept: Kept, source: str) -> None:
    kept.run(f"let v = {source}")
    before = kept.session.text("v")
    assert kept.again().session.text("v") == before


def test_only_what_changed_is_saved(kept: Kept) -> None:
    kept.run("var a = 1; let b = [1, 2]; fn f() { a }")
    assert kept.save() == []
    kept.session.run("a = a + 1")
    assert [cell.name for cell in kept.save()] == ["binding:a"]
    kept.session.run("let b = [1, 2]")
    assert [cell.name for cell in kept.save()] == ["binding:b"]


def test_a_name_declared_again_with_the_same_value_keeps_its_new_mutability(kept: Kept) -> None:
    kept.run("let a = 1")
    kept.run("var a = 1")
    assert kept.again().run("a = 2; a") == "2"
    kept.run("let a = 1")
    assert kept.again().session.error("a = 2").code == "type_error"


PROGRAMS = [
    ("fn double(x) { x * 2 }", "double(21)", "42"),
    ("fn fact(n) { if n < 2 { 1 } else { n * fact(n - 1) } }", "fact(10)", "3628800"),
    ("let add = a => b => a + b; let five = add(5)", "five(4)", "9"),
    ('fn greet(who, hello = "hi") { "{hello} {who}" }', 'greet("you").len', "6"),
    ("fn many(first, ...rest) { rest.len }", "many(1, 2, 3)", "2"),
    ("fn outer() { fn rec(n) { if n == 0 { 0 } else { rec(n - 1) } }; [rec][0] }; let r = outer()",
     "r(3)", "0"),
    ("fn f() { let x = 1; let g = () => { let x = 2; () => x }; g() }; let h = f()", "h()", "2"),
    ("let fs = [1, 2, 3].map(i => (() => i * 10))", "fs.map(f => f())", "[10, 20, 30]"),
    ("var n = 0; fn bump() { n = n + 1; n }", "bump(); bump()", "2"),
]  # fmt: skip


@pytest.mark.parametrize(("setup", "use", "expected"), PROGRAMS)
def test_functions_come_back(kept: Kept, setup: str, use: str, expected: str) -> None:
    kept.run(setup)
    assert kept.again().run(use) == expected
    # And once more, from what the second worker would save.
    second = kept.again()
    second.run("let unrelated = 1")
    assert second.again().run(use) == expected


COUNTER = """
fn counter() {
    var n = 0
    {up: () => { n = n + 1; n }, reset: () => { n = 0; n }}
}
let c = counter()
let up = c.up
let reset = c.reset
"""


def test_closures_share_their_variables_after_a_restore(kept: Kept) -> None:
    kept.run(COUNTER)
    assert kept.run("up(); up()") == "2"
    second = kept.again()
    assert second.run("up()") == "3"
    assert second.run("reset(); up()") == "1"
    third = second.again()
    assert third.run("up()") == "2"


def test_a_change_through_a_closure_alone_is_saved(kept: Kept) -> None:
    kept.run(COUNTER)
    kept.session.run("up()")
    names = [cell.name for cell in kept.save()]
    assert len(names) == 1
    assert names[0].startswith("captured:")


def test_source_text_is_stored_once_for_all_functions_of_it(kept: Kept) -> None:
    functions = "\n".join(f"fn f{i}(x) {{ x + {i} }}" for i in range(100))
    source = f"# {'a long comment ' * 5000}\n{functions}"
    kept.run(source)
    assert sum(len(data or b"") for data in kept.cells.values()) < 2 * len(source)
    assert kept.again().run("f7(1) + f99(0)") == "107"


def test_what_nothing_leads_to_any_more_is_removed(kept: Kept) -> None:
    for _ in range(300):
        kept.run(COUNTER)
    assert len(kept.cells) < 400
    assert kept.again().run("up()") == "1"


def test_an_alias_comes_back(kept: Kept) -> None:
    kept.run('alias say = echo "hello"')
    assert kept.again().run("(say world).out") == kept.run("(say world).out")


def test_functions_of_a_module_keep_its_variables(kept: Kept) -> None:
    kept.session.write("m.shl", "export var n = 10\nexport fn up() { n = n + 1; n }\n")
    kept.run("use m")
    assert kept.run("m.up()") == "11"
    assert kept.again().run("m.up()") == "12"


def test_directories_and_environment_come_back(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    kept.run("cd a; pushd b")
    kept.run('env.FIRST = "1"; env.HOME = "elsewhere"; env.FIRST = "2"')
    second = kept.again()
    evaluator = second.session.evaluator
    for one in (evaluator, kept.session.evaluator):
        one.env.pop(b"PYTEST_CURRENT_TEST", None)
    assert second.run("pwd") == str((tmp_path / "a" / "b").resolve())
    assert evaluator.dir_stack == kept.session.evaluator.dir_stack
    assert evaluator.prev_cwd == kept.session.evaluator.prev_cwd
    assert list(evaluator.env.items()) == list(kept.session.evaluator.env.items())


def test_a_stream_is_lost_and_says_so_until_it_is_assigned(kept: Kept) -> None:
    kept.run("var s = every(1s); let kept = 1; let inside = [1, every(1s)]")
    assert kept.cells["binding:s"] is None
    second = kept.again()
    assert second.lost == ["inside", "s"]
    error = second.session.error("s")
    assert error.code == "lost_value"
    assert error.msg == "value of `s` was lost when the session was restored"
    assert error.hint
    assert second.session.error("s.take(1)").code == "lost_value"
    assert second.session.error("s += 1").code == "lost_value"
    assert second.run("s = 5; s += 1; s") == "6"
    assert second.run("kept") == "1"
    assert second.again().lost == ["inside"]


def test_a_lost_variable_of_a_closure_raises_when_it_is_read(kept: Kept) -> None:
    kept.run("fn f() { let s = every(1s); [() => s, () => 1] }; let g = f()")
    second = kept.again()
    assert second.run("g[1]()") == "1"
    assert second.session.error("g[0]()").code == "lost_value"


def test_damaged_cells_are_lost_and_spoil_nothing_else(kept: Kept) -> None:
    kept.run("let a = 1; let b = [2]; fn f() { 3 }")
    kept.cells["binding:b"] = b"\x80garbage"
    for name in [name for name in kept.cells if name.startswith("code:")]:
        kept.cells[name] = b"\x80garbage"
    second = kept.again()
    assert second.lost == ["b", "f"]
    assert second.run("a") == "1"


def test_a_secret_is_stored_by_name_and_read_again(kept: Kept) -> None:
    kept.session.evaluator.root.declare("s", [Secret("K", "very secret material")])
    kept.save()
    assert b"very secret" not in b"".join(data or b"" for data in kept.cells.values())
    (secret,) = kept.again().session.evaluator.root.lookup("s")
    assert (secret.name, secret.reveal()) == ("K", "material of K")


def test_stored_bytes_load_from_the_store_of_the_new_worker(kept: Kept) -> None:
    digest = "ab" * 32
    kept.session.evaluator.root.declare("big", LazyBytes(digest, 9, b"pre", False))
    kept.save()
    assert kept.keeper.content_changes() == ([digest], [])
    second = kept.again()
    big = second.session.evaluator.root.lookup("big")
    assert big.load(0, None) == digest.encode()
    assert second.keeper.content_changes() == ([], [])
    second.run("let big = 1")
    assert second.keeper.content_changes() == ([], [digest])


def test_a_long_preview_is_not_stored_but_read_again(kept: Kept) -> None:
    digest = "ef" * 32
    preview = b"p" * 1_000_000
    kept.session.evaluator.root.declare("big", LazyBytes(digest, 2_000_000, preview, True))
    kept.save()
    stored = kept.cells["binding:big"]
    assert stored is not None
    assert len(stored) < 1000
    big = kept.again().session.evaluator.root.lookup("big")
    assert (big.preview, big.preview_length, big.truncated) == (digest.encode(), 1_000_000, True)


def test_content_is_let_go_with_its_last_value(kept: Kept) -> None:
    digest = "cd" * 32
    value = LazyBytes(digest, 9, b"pre", False)
    kept.session.evaluator.root.declare("a", value)
    kept.save()
    result = kept.keeper.result("out:1", [value])
    assert result.data is not None
    assert kept.keeper.content_changes() == ([digest], [])
    kept.run("let a = 1")
    assert kept.keeper.content_changes() == ([digest], [])
    kept.keeper.forget("out:1")
    assert kept.keeper.content_changes() == ([], [digest])


def test_a_finished_task_comes_back_and_a_running_one_is_lost(kept: Kept) -> None:
    kept.run("let done = spawn { 6 * 7 }; done.await()")
    kept.save()
    kept.session.run("let running = spawn { sleep 60s }")
    kept.save()
    second = kept.again()
    assert second.lost == ["running"]
    kept.session.evaluator.tasks.cancel_all()


RESULTS = [
    "[x => x, 1]",
    "fn f(a) { f }; [f]",
    "let y = 2; (x => x + y)",
    "[1, 2].map(i => (() => i))",
]


@pytest.mark.parametrize("source", RESULTS)
def test_a_result_with_closures_stands_alone(kept: Kept, source: str) -> None:
    value = kept.session.run(source)
    stored = kept.keeper.result("out:1", value)
    assert stored.data is not None
    assert inline(kept.again().keeper.read_result(stored.data)) == inline(value)


def test_a_result_without_stored_form_is_lost(kept: Kept) -> None:
    stored = kept.keeper.result("out:1", kept.session.run("every(1s)"))
    assert (stored.data, stored.lost) == (None, True)
    assert kept.keeper.read_result(b"\x80nonsense") is MISSING


READERS: list[tuple[str, Callable[[Kept], str]]] = [
    ("read", lambda kept: kept.run("x")),
    ("call", lambda kept: kept.run("f()")),
]


@pytest.mark.parametrize(("how", "read"), READERS)
def test_names_bound_later_are_found_by_restored_functions(
    kept: Kept, how: str, read: Callable[[Kept], str]
) -> None:
    kept.run("fn f() { x }")
    second = kept.again()
    second.run("let x = 5")
    assert read(second) == "5", how
