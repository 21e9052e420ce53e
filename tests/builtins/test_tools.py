"""`which`, `reef` and the resolution of tools (chapter 41, part B)."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from tests.builtins.support import Shell, shell_in
from worker.commands.reef import Reef
from worker.commands.reef.constraints import Constraint, Version
from worker.commands.reef.probe import version_in
from worker.values.types import Table


@pytest.fixture
def project(tmp_path: Path) -> Shell:
    """A project folder with a PATH and a HOME of its own; `bin` comes first on PATH."""
    for name in ("project", "bin", "home"):
        (tmp_path / name).mkdir()
    shell = shell_in(tmp_path / "project", reef=Reef())
    shell.evaluator.env.update(
        {
            b"HOME": os.fsencode(tmp_path / "home"),
            b"PATH": os.fsencode(tmp_path / "bin") + b":/usr/bin:/bin",
        }
    )
    for variable in (b"MISE_DATA_DIR", b"CARGO_HOME", b"XDG_RUNTIME_DIR"):
        shell.evaluator.env.pop(variable, None)
    return shell


def program(path: Path, says: str = "", version: str = "") -> Path:
    """An executable that prints its version on demand, else what it says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = --version ]; then echo "tool {version}"; else echo "{says}" "$@"; fi\n'
    )
    path.chmod(0o755)
    return path


def mise(project: Shell, tool: str, *versions: str) -> None:
    for version in versions:
        folder = project.folder.parent / "home/.local/share/mise/installs" / tool / version
        program(folder / "bin" / tool, f"{tool}-{version}")


def manifest(project: Shell, text: str, name: str = ".reef.toml") -> Path:
    path = project.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def lock_of(project: Shell) -> dict[str, dict[str, str]]:
    tools: dict[str, dict[str, str]] = tomllib.loads((project.folder / "reef.lock").read_text())[
        "tool"
    ]
    return tools


# --- constraints and versions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown", "accepted", "refused"),
    [
        ("", "*", ["1.0", "unknown", "nightly"], []),
        (" * ", "*", ["unknown"], []),
        ("latest", "latest", ["1.0", "unknown"], []),
        ("3.12", "3.12", ["3.12", "3.12.9", "v3.12.1"], ["3.1", "3.13", "3", "unknown", "x"]),
        ("v20", "20", ["20.1", "20"], ["2", "200"]),
        (">=3", ">=3", [">=3.1"], ["3.1", "unknown"]),
        ("nightly-2", "nightly-2", ["nightly-2024"], ["nightly-1"]),
    ],
)
def test_constraints(text: str, shown: str, accepted: list[str], refused: list[str]) -> None:
    constraint = Constraint.parse(text)
    assert str(constraint) == shown
    assert all(constraint.accepts(Version.parse(version)) for version in accepted)
    assert not any(constraint.accepts(Version.parse(version)) for version in refused)


def test_versions_are_ordered() -> None:
    ascending = ["unknown", "alpha", "beta", "1.9", "1.10-rc1", "1.10", "1.10.1", "2"]
    versions = [Version.parse(text) for text in ascending]
    assert sorted(versions, key=lambda version: version.order) == versions
    assert Version.parse("v1.0").order == Version.parse("1.0.0").order


@pytest.mark.parametrize(
    ("one", "other", "compatible"),
    [
        ("*", "18", True),
        ("latest", "18", True),
        ("18", "18.2", True),
        ("18.2", "18", True),
        ("18", "20", False),
        ("18.1", "18.2", False),
        ("1", "18", False),
        ("night", "nightly", True),
        ("18", "nightly", False),
    ],
)
def test_compatible_constraints(one: str, other: str, compatible: bool) -> None:
    assert Constraint.parse(one).compatible(Constraint.parse(other)) is compatible


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("git version 2.39.5", "2.39.5"),
        ("Python 3.11.7\n", "3.11.7"),
        ("v20.1.0", "20.1.0"),
        ("less 590 (PCRE)", "590"),
        ("tool 5 build 1.2", "1.2"),
        ("no digits", None),
        ("", None),
    ],
)
def test_the_version_in_an_answer(text: str, version: str | None) -> None:
    assert version_in(text) == version


# --- which ----------------------------------------------------------------------------------------


def test_which_of_an_unconstrained_tool_locks_nothing(project: Shell) -> None:
    path = program(project.folder.parent / "bin/only-here")
    digest = blake3(path.read_bytes()).hexdigest()
    assert project.inline("(which only-here).out") == (
        '{name: "only-here", scope: "ambient", constraint: "*", version: "unknown", '
        f'path: {path}, hash8: "{digest[:8]}", provider: "system", '
        'chain: [{scope: "ambient", source: , constraint: null, outcome: "selected"}]}'
    )
    assert os.listdir(project.folder) == []


def test_which_knows_the_system_and_builtin_names_as_programs(project: Shell) -> None:
    assert project.inline("(which sh).scope") == '"system"'
    assert project.inline("(which ls).path.name") == '"ls"'
    assert project.inline("(which nope-nope).out") == "null"


def test_which_of_a_constrained_tool_locks_it(project: Shell) -> None:
    mise(project, "terra", "1.8.0", "1.8.2", "1.9.0")
    file = manifest(project, '[tools]\nterra = "1.8"\n')
    record = project.out("which terra")
    assert (record["version"], record["provider"], record["scope"]) == ("1.8.2", "mise", "reef")
    assert record["constraint"] == "1.8"
    assert record["chain"].rows == [
        {
            "scope": "reef",
            "source": record["chain"].rows[0]["source"],
            "constraint": "1.8",
            "outcome": "selected",
        }
    ]
    assert record["chain"].rows[0]["source"].raw == str(file)
    entry = lock_of(project)["terra"]
    assert list(entry) == ["name", "version", "provider", "path", "blake3", "resolved_at"]
    assert entry["version"] == "1.8.2"
    assert entry["blake3"] == blake3(Path(entry["path"]).read_bytes()).hexdigest()


def test_which_all_lists_every_candidate_without_locking(project: Shell) -> None:
    mise(project, "terra", "1", "2")
    program(project.folder.parent / "bin/terra")
    program(project.folder / ".venv/bin/terra")
    manifest(project, '[tools]\nterra = "*"\n')
    table = project.out("which --all terra")
    assert type(table) is Table
    assert list(table.rows[0]) == ["tool", "version", "path", "provider", "scope"]
    assert [(row["provider"], row["version"], row["scope"]) for row in table.rows] == [
        ("venv", "unknown", "system"),
        ("mise", "1", "system"),
        ("mise", "2", "system"),
        ("system", "unknown", "ambient"),
    ]
    assert not (project.folder / "reef.lock").exists()


@pytest.mark.parametrize(
    ("source", "code"),
    [("which", "arg_error"), ("which a b", "arg_error"), ("which (5)", "type_error")],
)
def test_which_refuses(project: Shell, source: str, code: str) -> None:
    assert project.code(source) == code


def test_what_cannot_be_resolved_is_a_record_with_the_reason(project: Shell) -> None:
    manifest(project, '[tools]\nterra = "18"\n')
    manifest(project, '[tools]\nterra = "22"\n', "sub/.reef.toml")
    project.run("cd sub")
    record = project.out("which terra")
    assert list(record)[-2:] == ["note", "hint"]
    assert record["scope"] == "unresolved: reef_conflict"
    assert record["constraint"] == "22"
    assert record["note"] == "terra: reef (22) is incompatible with reef (18)"
    assert record["hint"] == (
        f"reconcile {project.folder}/sub/.reef.toml and {project.folder}/.reef.toml"
    )


def test_a_constrained_tool_that_only_path_has_gives_the_minimal_record(project: Shell) -> None:
    path = program(project.folder.parent / "bin/terra", version="1.0")
    manifest(project, '[tools]\nterra = "2"\n')
    assert project.inline("(which terra).out") == (
        f'{{name: "terra", scope: "ambient", constraint: "*", version: "unknown", path: {path}, '
        'hash8: null, provider: "ambient", chain: []}'
    )


# --- scopes ---------------------------------------------------------------------------------------


def test_foreign_manifests_constrain_too(project: Shell) -> None:
    manifest(project, '[tools]\nnode = "18"\nruby = ["3.1", "3.0"]\n', "mise.toml")
    manifest(project, '[tools.go]\nversion = "1.20"\n', ".mise.toml")
    manifest(project, "# comment\npython 3.11 3.10\nbad\nelm 0.19 # c\n", ".tool-versions")
    assert project.inline("(reef).out.map(r => [r.name, r.constraint])") == (
        '[["elm", "0.19"], ["go", "1.20"], ["node", "18"], ["python", "3.11"], ["ruby", "3.1"]]'
    )


def test_the_more_specific_constraint_and_the_farther_pin_count(project: Shell) -> None:
    mise(project, "node", "18.1.0", "18.2.0")
    program(project.folder.parent / "bin/node", version="18.2.9")
    manifest(project, '[tools]\nnode = { version = "18.2", provider = "mise" }\n')
    manifest(project, '[tools]\nnode = "18"\n', "sub/.reef.toml")
    project.run("cd sub")
    assert project.inline("[(which node).version, (which node).constraint]") == (
        '["18.2.0", "18.2"]'
    )
    assert project.inline("(which node).chain.map(.outcome)") == '["selected", "shadowed"]'


def test_two_pins_of_one_tool_are_a_conflict(project: Shell) -> None:
    manifest(project, '[tools]\nnode = { provider = "mise" }\n')
    manifest(project, '[tools]\nnode = { provider = "cargo" }\n', "sub/.reef.toml")
    project.run("cd sub")
    assert project.inline("(which node).note") == '"node: provider pinned to both cargo and mise"'


def test_a_user_file_has_the_lowest_priority(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    user = tmp_path / "shoal.toml"
    user.write_text('[reef.tools]\nnode = "18"\n[reef.runners]\nxx = "sh"\n')
    shell = shell_in(tmp_path / "p", reef=Reef(user_file=str(user)))
    assert shell.inline("(reef).out.map(r => [r.name, r.constraint])") == '[["node", "18"]]'


def test_an_option_alone_makes_a_scope(project: Shell) -> None:
    assert project.code("reef lock") == "reef_not_found"
    manifest(project, "[options]\nhermetic = false\n")
    assert project.out("reef lock").rows == []


def test_an_edited_manifest_counts_at_once(project: Shell) -> None:
    file = manifest(project, '[tools]\nnode = "18"\n')
    assert project.inline("(reef).out.map(.constraint)") == '["18"]'
    file.write_text('[tools]\nnode = "20.1"\n')
    assert project.inline("(reef).out.map(.constraint)") == '["20.1"]'


def test_the_providers_are_asked_for_a_system_version_only_when_needed(project: Shell) -> None:
    tool = project.folder.parent / "bin/terra"
    program(tool, version="v1.5.2")
    manifest(project, '[tools]\nterra = "1.5"\n')
    assert project.inline("(which terra).version") == '"1.5.2"'
    manifest(project, '[tools]\nterra = "*"\n')
    (project.folder / "reef.lock").unlink()
    assert project.inline("(which terra).version") == '"unknown"'


def test_a_program_that_does_not_answer_is_of_unknown_version(project: Shell) -> None:
    tool = program(project.folder.parent / "bin/terra")
    tool.write_text("#!/bin/sh\nsleep 600\n")
    manifest(project, '[tools]\nterra = "1"\n')
    assert project.inline("(which terra).scope") == '"ambient"'


# --- spawning -------------------------------------------------------------------------------------


def test_a_constrained_tool_must_be_locked_to_run(project: Shell) -> None:
    mise(project, "terra", "1.8.2")
    manifest(project, '[tools]\nterra = "1.8"\n')
    error = project.fails("terra plan")
    assert error.code == "reef_unlocked"
    assert error.msg == "terra is constrained (1.8) but not locked"
    assert "reef lock" in str(error.hint)
    project.run("reef lock")
    assert project.inline("(terra plan).out") == '"terra-1.8.2 plan"'
    assert project.inline("(terra plan).cmd").startswith(f'"{project.folder.parent}/home/')


def test_a_path_and_an_unmentioned_tool_skip_resolution(project: Shell) -> None:
    path = program(project.folder.parent / "bin/terra", "by-path")
    program(project.folder.parent / "bin/other", "other")
    manifest(project, '[tools]\nterra = "*"\n')
    assert project.inline(f"({path}).out") == '"by-path"'
    assert project.inline("(other).out") == '"other"'
    assert project.code("^terra") == "reef_unlocked"


def test_a_changed_file_is_drift(project: Shell) -> None:
    path = program(project.folder.parent / "bin/terra", "one")
    manifest(project, '[tools]\nterra = "*"\n')
    project.run("reef lock")
    locked = lock_of(project)["terra"]["blake3"]
    program(path, "two")
    found = blake3(path.read_bytes()).hexdigest()
    error = project.fails("terra")
    assert error.code == "reef_drift"
    assert error.msg == f"terra: on-disk hash {found[:12]} != locked {locked[:12]}"
    assert error.hint == "run `reef lock --refresh`"
    assert (
        project.inline("(reef doctor).out.map(r => [r.check, r.status])") == '[["drift", "drift"]]'
    )
    project.run("reef lock --refresh")
    assert project.inline("(terra).out") == '"two"'


def test_a_locked_file_that_is_gone_is_not_replaced_by_path(project: Shell) -> None:
    program(project.folder.parent / "bin/terra")
    manifest(project, '[tools]\nterra = { provider = "mise" }\n')
    mise(project, "terra", "1.0")
    project.run("reef lock")
    os.unlink(lock_of(project)["terra"]["path"])
    error = project.fails("terra")
    assert error.code == "reef_not_found"
    assert error.msg == (
        "`terra` is constrained (*) but not installed — reef fetch terra (found in ambient PATH at "
        f"{project.folder.parent}/bin/terra but shadowed by project reef)"
    )
    assert error.hint == "run `reef lock --refresh`"


def test_the_child_finds_the_locked_tools_first(project: Shell) -> None:
    mise(project, "terra", "1.0")
    caller = program(project.folder.parent / "bin/caller")
    caller.write_text('#!/bin/sh\ncommand -v terra; echo "$PATH"\n')
    manifest(project, '[tools]\nterra = "*"\ncaller = "*"\n')
    project.run("reef lock")
    found, path = project.run("(caller).out").split("\n")
    view = os.path.dirname(found)
    assert os.readlink(found) == lock_of(project)["terra"]["path"]
    assert path == f"{view}:{project.folder.parent}/bin:/usr/bin:/bin"
    root = os.path.dirname(os.path.dirname(view))
    assert os.path.basename(root) == f"shoal-views-{os.geteuid()}"
    assert stat.S_IMODE(os.stat(root).st_mode) == 0o700


def test_hermetic_scopes_leave_only_the_view(project: Shell) -> None:
    caller = program(project.folder.parent / "bin/caller")
    caller.write_text('#!/bin/sh\necho "$PATH"\n')
    manifest(project, '[tools]\ncaller = "*"\n[options]\nhermetic = true\n')
    manifest(project, "[options]\nhermetic = false\n[tools]\nx = '*'\n", "sub/.reef.toml")
    project.run("reef lock\ncd sub\nreef lock")
    assert ":" not in project.run("(caller).out")


def test_a_damaged_view_is_built_again(project: Shell) -> None:
    caller = program(project.folder.parent / "bin/caller")
    caller.write_text('#!/bin/sh\necho "$PATH"\n')
    manifest(project, '[tools]\ncaller = "*"\n')
    project.run("reef lock")
    view = project.run("(caller).out").split(":")[0]
    os.unlink(f"{view}/caller")
    os.symlink("/bin/false", f"{view}/caller")
    project.run("caller")
    assert os.readlink(f"{view}/caller") == str(caller)


def test_with_reef_is_stronger_than_every_manifest(project: Shell) -> None:
    mise(project, "terra", "1.0", "2.0")
    assert project.code('with reef: {terra: "1"} { terra }') == "reef_unlocked"
    assert project.inline('with reef: {terra: "1"} { (which terra).version }') == '"1.0"'
    assert project.inline('with reef: {terra: "1"} { (terra).out }') == '"terra-1.0"'
    assert project.inline("(which terra).version") == '"2.0"'


def test_runners_of_the_nearest_scope_win(project: Shell) -> None:
    manifest(project, '[runners]\nrb = "sh"\nxx = { tool = "sh", args = ["-e"] }\n')
    (project.folder / "a.rb").write_text("echo rb $1")
    (project.folder / "a.xx").write_text("echo xx $-")
    assert project.inline('run("a.rb", "arg").out') == '"rb arg"'
    assert "e" in project.run('run("a.xx").out')


# --- reef -----------------------------------------------------------------------------------------


def test_the_overview_resolves_without_writing(project: Shell) -> None:
    mise(project, "terra", "1.0")
    manifest(project, '[tools]\nterra = "1"\nghost = "2"\n')
    rows = project.out("reef").rows
    assert [list(row) for row in rows] == [
        ["name", "constraint", "version", "hash8", "provider", "scope"]
    ] * 2
    assert rows[0]["scope"] == "unresolved: reef_not_found"
    assert rows[0]["version"] is None
    assert (rows[1]["version"], rows[1]["scope"]) == ("1.0", "reef")
    assert not (project.folder / "reef.lock").exists()
    assert project.inline("(terra).out") == '"terra-1.0"'


def test_nothing_constrained_is_an_empty_table(project: Shell) -> None:
    assert project.out("reef").rows == []
    assert project.out("reef doctor").rows == []


def test_add_edits_the_manifest_and_locks(project: Shell) -> None:
    mise(project, "terra", "1.0")
    file = manifest(project, "# kept\n[tools]\nother = '*' # kept too\n")
    record = project.out("reef add terra@1")
    assert list(record) == ["added", "manifest", "version", "path", "locked"]
    assert (record["added"], record["version"], record["locked"]) == ("terra@1", "1.0", True)
    assert record["manifest"].raw == str(file)
    assert file.read_text() == "# kept\n[tools]\nother = '*' # kept too\nterra = \"1\"\n"
    assert set(lock_of(project)) == {"terra"}


def test_add_makes_a_manifest_and_keeps_the_edit_when_locking_fails(project: Shell) -> None:
    record = project.out("reef add ghost@1")
    assert list(record) == ["added", "manifest", "locked", "note"]
    assert record["locked"] is False
    assert record["note"].startswith("reef_not_found: no candidate for ghost satisfying 1 (")
    assert (project.folder / ".reef.toml").read_text() == '[tools]\nghost = "1"\n'


def test_add_uses_the_nearest_native_manifest_above(project: Shell) -> None:
    file = manifest(project, "[tools]\n")
    (project.folder / "sub").mkdir()
    project.run("cd sub")
    assert project.inline('(reef add "sh@*").manifest') == str(file)


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("reef add", "arg_error", "reef add expects <tool>@<version>"),
        ("reef add tool", "arg_error", "reef add expects <tool>@<version>"),
        ("reef add @1", "arg_error", "reef add expects <tool>@<version>"),
        ("reef add tool@", "arg_error", "reef add expects <tool>@<version>"),
        ("reef lock", "reef_not_found", "reef lock: no manifest in scope"),
        ("reef fetch", "arg_error", "reef fetch expects a tool name"),
        (
            "reef status",
            "arg_error",
            "reef: unknown subcommand `status` (expected add, lock, fetch, or doctor)",
        ),
    ],
)
def test_reef_refuses(project: Shell, source: str, code: str, message: str) -> None:
    error = project.fails(source)
    assert (error.code, error.msg) == (code, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [("tools = 5", "manifest [tools] is not a table"), ("tools = [", "parsing manifest ")],
)
def test_add_does_not_touch_a_broken_manifest(project: Shell, text: str, message: str) -> None:
    file = manifest(project, text)
    error = project.fails("reef add sh@1")
    assert error.code == "reef_provider"
    assert error.msg.startswith(message)
    assert file.read_text() == text


def test_lock_reports_every_mentioned_name(project: Shell) -> None:
    mise(project, "terra", "1.0")
    manifest(project, '[tools]\nterra = "1"\nghost = "2"\n')
    rows: list[dict[str, Any]] = project.out("reef lock").rows
    assert rows[0] == {"name": "ghost", "locked": False, "error": "reef_not_found"}
    assert list(rows[1]) == ["name", "version", "hash8", "locked"]
    assert set(lock_of(project)) == {"terra"}


def test_a_lock_that_cannot_be_written_is_an_error(project: Shell) -> None:
    mise(project, "terra", "1.0")
    manifest(project, '[tools]\nterra = "1"\n')
    (project.folder / "reef.lock").mkdir()
    assert project.code("reef lock") == "reef_provider"


def test_entries_are_written_in_name_order_and_unparseable_ones_ignored(project: Shell) -> None:
    mise(project, "b", "1.0")
    mise(project, "a", "1.0")
    manifest(project, '[tools]\nb = "*"\na = "*"\n')
    (project.folder / "reef.lock").write_text("[tool.b]\nname = 5\n")
    project.run("reef lock")
    assert list(lock_of(project)) == ["a", "b"]


def test_fetch_installs_with_mise(project: Shell) -> None:
    installs = project.folder.parent / "home/.local/share/mise/installs"
    fake = program(project.folder.parent / "bin/mise")
    fake.write_text(
        f"#!/bin/sh\nname=${{2%@*}}; d={installs}/$name/1.2.3/bin; mkdir -p $d\n"
        'printf "#!/bin/sh\\n" > $d/$name; chmod +x $d/$name; echo "$@" > "$HOME/asked"\n'
    )
    manifest(project, '[tools]\nterra = "1.2"\n')
    assert project.inline("(reef fetch terra).out") == (
        '{tool: "terra", fetched: true, provider: "mise", version: "1.2.3", '
        f"path: {installs}/terra/1.2.3/bin/terra}}"
    )
    assert (project.folder.parent / "home/asked").read_text() == "install terra@1.2\n"
    assert project.inline("(reef fetch other).version") == '"1.2.3"'
    assert (project.folder.parent / "home/asked").read_text() == "install other@latest\n"
    assert not (project.folder / "reef.lock").exists()


def test_fetch_without_a_provider_says_so(project: Shell) -> None:
    assert project.inline("(reef fetch terra).out") == (
        '{tool: "terra", fetched: false, note: "no provider can fetch this tool"}'
    )


def test_doctor_finds_what_is_wrong(project: Shell) -> None:
    shadow = program(project.folder.parent / "bin/terra")
    mise(project, "terra", "1.0")
    file = manifest(project, '[tools]\nterra = "1"\ngone = "1"\n')
    mise(project, "gone", "1.0")
    project.run("reef lock")
    file.write_text('[tools]\nterra = "1"\nfresh = "1"\n')
    manifest(project, "tools = [", "mise.toml")
    rows = project.out("reef doctor").rows
    assert [(row["name"], row["check"], row["status"]) for row in rows] == [
        ("fresh", "drift", "unlocked"),
        ("terra", "drift", "ok"),
        ("terra", "shadowed_ambient", "shadowed"),
        ("gone", "orphan", "orphan"),
        ("mise.toml", "manifest", "malformed"),
    ]
    assert list(rows[0]) == ["name", "check", "status", "path", "locked_hash8", "current_hash8"]
    assert rows[0]["path"] is None
    assert rows[2]["ambient_path"].raw == str(shadow)


def test_the_snapshot_asks_nobody(project: Shell) -> None:
    program(project.folder.parent / "bin/terra", version="1.0")
    file = manifest(project, '[tools]\nterra = "1"\nghost = "*"\n')
    reef: Reef = project.evaluator.host.reef
    assert reef.snapshot(project.evaluator) == {
        "active_scope": str(file),
        "bindings": [
            {
                "tool": name,
                "version": None,
                "provider": None,
                "scope": "reef",
                "constrained": True,
            }
            for name in ("ghost", "terra")
        ],
    }
    project.run("reef lock")
    bindings = reef.snapshot(project.evaluator)["bindings"]
    assert (bindings[1]["version"], bindings[1]["provider"]) == ("1.0", "system")
