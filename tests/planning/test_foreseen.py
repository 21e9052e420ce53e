"""What runs is within what was planned: every effect checked at run time was foreseen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leash.effects import FS_KINDS, NAME_KINDS
from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator
from worker.evaluate.host import Host
from worker.language import parse
from worker.planning import derive

# Programs without opaque parts; each builtin that touches anything is in one of them. That a glob
# leaves out what may not be read is no effect of its own, so none removes or writes by a glob.
PROGRAMS = (
    "ls",
    "ls sub a.txt",
    "ls *.txt",
    "stat a.txt",
    "cat a.txt b.txt",
    "head a.txt",
    "touch new a.txt",
    "mkdir -p x/y",
    "cp a.txt copied",
    "cp a.txt b.txt sub",
    "cp -r sub twin",
    "mv a.txt moved",
    "mv a.txt b.txt sub",
    "rm a.txt",
    "rm -r sub",
    "rm --permanent a.txt",
    "ln a.txt hard",
    "ln -s a.txt soft",
    "which sh",
    "env HOME",
    "env",
    "cd sub\ntouch below",
    "pushd sub\npopd",
    "save out.txt 5",
    'save("out.txt", 5)',
    "source one.shl",
    "run one.shl",
    "./one.shl",
    "use ./module.shl",
    "env.NAME = env.HOME",
    "echo hi > out.txt",
    "echo hi >> a.txt",
    '"v".save("out.txt")',
    '"v".append("a.txt")',
    'path("a.txt").read',
    'path("a.txt").read_bytes()',
    'path("a.txt").lines',
    'path("a.txt").exists',
    'path("sub").is_dir',
    'path("a.txt").is_file',
    'path("a.txt").size',
    'path("a.txt").modified',
    'with cwd: "sub" { touch below }',
    'with env: {A: "b"} { touch a.txt }',
    'for f in ["p", "q"] { touch (f) }',
    'for f in glob("*.txt") { cat (f) }',
    "fn t(x) { touch (x) }\nt(\"fn\")",
    "alias m = mkdir -p\nm made",
    "try { cat none } catch e { touch caught }",
    'parallel(() => touch("p1"), () => touch("p2"))',
    'retry(2, () => touch("r"))',
    "let t = spawn { touch spawned }\nt.await()",
    "os.env()",
    'if true { touch yes } else { rm no }',
    'match 1 { 1 => touch("one"), _ => rm("two") }',
    '["a.txt"].map(x => 1)',
    '"{touch("inside")}"',
)  # fmt: skip


class Recorder:
    """An authority that grants everything and remembers what was asked."""

    restricted = False

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def check(self, effect: dict[str, Any]) -> None:
        self.asked.append(effect)

    def admit_spawn(self, request: Any) -> None:
        self.asked.append({"kind": "proc_spawn", "argv0": request.argv0})


def _foreseen(effect: dict[str, Any], plan: list[dict[str, Any]]) -> bool:
    same = [planned for planned in plan if planned["kind"] == effect["kind"]]
    if effect["kind"] in FS_KINDS:
        known = {path for planned in same for path in planned["paths"]}
        return all(any(_within(path, place) for place in known) for path in effect["paths"])
    if effect["kind"] in NAME_KINDS:
        known = {name for planned in same for name in planned["names"]}
        return "*" in known or set(effect["names"]) <= known
    return bool(same)


def _within(path: str, place: str) -> bool:
    """The path, or something below it: a directory stands for what is in it."""
    return path == place or path.startswith(place.rstrip("/") + "/")


@pytest.mark.parametrize("src", PROGRAMS)
def test_what_runs_was_foreseen(tmp_path: Path, src: str) -> None:
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in ("one.shl", "module.shl"):
        (tmp_path / name).write_text("touch scripted\n")
    recorder = Recorder()
    host = Host(sink=lambda _value: None, echo="quiet", authority=recorder)
    environment = {b"PATH": os.environb[b"PATH"], b"HOME": os.fsencode(tmp_path)}
    ev = Evaluator(os.path.realpath(tmp_path), environment, host)
    program = parse(src)
    plan = [dict(effect) for effect in derive(ev, program).plan.effects]
    assert {"kind": "opaque"} not in plan
    recorder.asked.clear()
    try:
        ev.run_program(program, src)
    except Raised as failure:
        assert failure.error.code in ("custom", "not_found"), failure
    assert [effect for effect in recorder.asked if not _foreseen(effect, plan)] == []
