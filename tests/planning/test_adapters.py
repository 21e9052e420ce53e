"""What adapter-described programs are foreseen to touch, from their templates and arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import blake3
import pytest

from worker.evaluate.evaluator import Evaluator, bare_evaluator
from worker.language import parse
from worker.planning import derive


@dataclass
class Spec:
    effects: Sequence[str] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    positional: Sequence[str] = ()


@dataclass
class Described:
    top: Spec
    bin: str = "sh"
    command_class: str = "cli"
    subcommands: Mapping[str, Spec] = field(default_factory=dict)


@dataclass
class Catalog:
    adapters: Mapping[str, Described]

    def lookup(self, head: str) -> Described | None:
        return self.adapters.get(head)


PARAMS = {"src": "path", "dest": "path?", "pattern": "glob", "host": "str", "quiet": "bool"}


def effects(tmp_path: Path, described: Described, src: str) -> list[dict[str, Any]]:
    ev = evaluator(tmp_path)
    ev.host.adapters = Catalog({"tool": described})
    return list(derive(ev, parse(src)).plan.effects)


def evaluator(tmp_path: Path) -> Evaluator:
    ev = bare_evaluator(str(tmp_path.resolve()))
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "sh").write_text("binary")
    (tools / "sh").chmod(0o755)
    ev.env = {b"PATH": str(tools).encode(), b"HOME": b"/home/io"}
    return ev


SPAWN = {"kind": "proc_spawn", "bin_hash": blake3.blake3(b"binary").hexdigest(), "argv0": "sh"}
OPAQUE = {"kind": "opaque"}


def fs(kind: str, *paths: str) -> dict[str, Any]:
    return {"kind": kind, "paths": list(paths)}


ROWS = [
    ("fs.read(cwd)", "tool", [fs("fs_read", "@")]),
    ("fs.write(cwd/out/x)", "tool", [fs("fs_write", "@/out/x")]),
    ("fs.read($src)", "tool a", [fs("fs_read", "@/a")]),
    ("fs.read($src)", "tool", [fs("fs_read")]),
    ("fs.read($src)", "tool --src=a", [fs("fs_read", "@/a")]),
    ("fs.read($src)", "tool --src a", [fs("fs_read", "@/a")]),
    ("fs.read($src)", "tool --quiet a", [fs("fs_read", "@/a")]),
    ("fs.read($src)", "tool -s a", [fs("fs_read", "@/a")]),
    ("fs.delete($dest)", "tool a b", [fs("fs_delete", "@/b")]),
    ("fs.read($src)", "tool (cat a).out", None),
    ("fs.read(~/.toolrc)", "tool", [fs("fs_read", "/home/io/.toolrc")]),
    ("fs.read(/etc/tool)", "tool", [fs("fs_read", "/etc/tool")]),
    ("net.connect($host)", "tool --host h:8080",
     [{"kind": "net_connect", "host": "h", "port": 8080}]),
    ("net.connect($host)", "tool --host h", [{"kind": "net_connect", "host": "h", "port": 443}]),
    ("net.connect($host)", "tool --host http://u@h/x",
     [{"kind": "net_connect", "host": "h", "port": 80}]),
    ("net.listen(8080)", "tool", [{"kind": "net_listen", "port": 8080}]),
    ("net.listen(http)", "tool", [OPAQUE]),
    ("env.read(HOME)", "tool", [{"kind": "env_read", "names": ["HOME"]}]),
    ("env.write($src)", "tool A", [{"kind": "env_write", "names": ["A"]}]),
    ("secret.use(key)", "tool", [{"kind": "secret_use", "names": ["key"]}]),
    ("proc.spawn(x)", "tool", []),
    ("fs.burn(x)", "tool", []),
    ("nonsense", "tool", []),
]  # fmt: skip


@pytest.mark.parametrize(("template", "src", "expected"), ROWS)
def test_a_template_becomes_an_effect(
    tmp_path: Path, template: str, src: str, expected: list[dict[str, Any]] | None
) -> None:
    spec = Spec([template], PARAMS, ("src", "dest"))
    found = effects(tmp_path, Described(spec), src)
    cwd = str(tmp_path.resolve())
    if expected is None:
        assert found[-2:] == [OPAQUE, SPAWN]
        return
    shown = [
        {**effect, "paths": [path.replace(cwd, "@", 1) for path in effect["paths"]]}
        if "paths" in effect
        else effect
        for effect in found
    ]
    assert shown == [*expected, SPAWN]


def test_a_subcommand_has_its_own_effects_alone(tmp_path: Path) -> None:
    described = Described(
        Spec(["fs.read(cwd)"]), subcommands={"put": Spec(["fs.write($src)"], PARAMS, ("src",))}
    )
    cwd = str(tmp_path.resolve())
    assert effects(tmp_path, described, "tool put a") == [fs("fs_write", f"{cwd}/a"), SPAWN]
    assert effects(tmp_path, described, "tool get a") == [fs("fs_read", cwd), SPAWN]
    assert effects(tmp_path, described, 'tool "put" a') == [fs("fs_read", cwd), SPAWN]


def test_a_glob_of_the_callee_stands_for_its_leading_directory(tmp_path: Path) -> None:
    described = Described(Spec(["fs.read($pattern)"], PARAMS, ("pattern",)))
    found = effects(tmp_path, described, "tool src/*.c")
    assert found == [fs("fs_read", f"{tmp_path.resolve()}/src"), SPAWN]


def test_an_interpreter_is_opaque_as_well_and_a_forced_head_is_nothing_else(
    tmp_path: Path,
) -> None:
    described = Described(Spec(), command_class="interpreter")
    assert effects(tmp_path, described, "tool x.py") == [SPAWN, OPAQUE]
    assert effects(tmp_path, described, "^tool x.py") == [OPAQUE]
    assert effects(tmp_path, described, 'let r = tool("x.py")') == [SPAWN, OPAQUE]


def test_a_program_that_is_nowhere_has_no_hash(tmp_path: Path) -> None:
    found = effects(tmp_path, Described(Spec(), bin="gone"), "tool")
    assert found == [{"kind": "proc_spawn", "bin_hash": "", "argv0": "gone"}]


def test_an_adapted_program_is_conditional(tmp_path: Path) -> None:
    ev = evaluator(tmp_path)
    ev.host.adapters = Catalog({"tool": Described(Spec(["fs.read(cwd)"]))})
    assert derive(ev, parse("tool")).leash.reversibility == "conditional"
