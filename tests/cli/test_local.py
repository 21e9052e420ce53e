"""Runs without a kernel: what is printed, and the exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.program import WAIT_S, Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_last_value_and_bare_commands_are_printed_and_pure_values_between_are_not(
    program: Program,
) -> None:
    ran = program.run("-c", "1 + 1\necho A\n'between'\n6 * 7")
    assert (ran.code, ran.out, ran.err) == (0, "A\n42\n", "")


@pytest.mark.parametrize(
    ("echo", "out"), [("quiet", "A\n42\n"), ("commands", "A\n"), ("all", "2\nA\n42\n")]
)
def test_echo_modes(program: Program, echo: str, out: str) -> None:
    program.configure(f"[render]\necho = '{echo}'\n")
    assert program.run("-c", "1 + 1\necho A\n6 * 7").out == out


def test_last_command_is_printed_in_every_mode(program: Program) -> None:
    ran = program.run("-c", "echo A", environ={"SHOAL_RENDER_ECHO": "commands"})
    assert ran.out == "A\n"


def test_null_and_empty_texts_print_nothing(program: Program) -> None:
    assert program.run("-c", "let a = 1").out == ""
    assert program.run("-c", "''").out == ""
    assert program.run("-c", "").out == ""


@pytest.mark.parametrize("word", ["-c", "--command"])
def test_source_gets_arguments_as_paths(program: Program, word: str) -> None:
    assert program.run(word, "args", "a", "-b", "--", "c d").out == "a\n-b\n--\nc d\n"


def test_attached_source(program: Program) -> None:
    assert program.run("--command=args.len()", "x").out == "1\n"


def test_script_knows_its_path_and_arguments(program: Program) -> None:
    (program.root / "tool.shl").write_text("script\nargs\n")
    program.configure("[render]\necho = 'all'\n")
    assert program.run("tool.shl", "x", "--json").out == "tool.shl\nx\n--json\n"
    assert program.run("run", "tool.shl", "x", "--json").out == "tool.shl\nx\n--json\n"


def test_file_named_like_a_command_or_an_option_needs_a_dash_dash_or_a_path(
    program: Program,
) -> None:
    for name in ("status", "-x"):
        (program.root / name).write_text("'ran'\n")
        assert program.run("--", name).out == "ran\n"
    assert program.run("./status").out == "ran\n"


def test_piped_source(program: Program) -> None:
    ran = program.run(stdin="script\n")
    assert (ran.code, ran.out) == (0, "<stdin>\n")
    assert program.run(stdin="").out == ""


@pytest.mark.parametrize(
    ("source", "code"), [("exit 3", 3), ("exit 256", 0), ("exit", 0), ("quit", 0)]
)
def test_exit_is_the_exit_code_and_prints_nothing_more(
    program: Program, source: str, code: int
) -> None:
    ran = program.run("-c", f"{source}\necho never")
    assert (ran.code, ran.out, ran.err) == (code, "", "")


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("sh -c 'exit 9'", 9),
        ("sh -c 'kill -9 $$'", 1),
        ("1 / 0", 1),
        ("1 +", 2),
        ("it", 2),
        ("let r = (sh -c 'exit 9'); r.status", 0),
    ],
)
def test_exit_codes(program: Program, source: str, code: int) -> None:
    assert program.run("-c", source).code == code


def test_diagnostic_names_the_source_as_given(program: Program) -> None:
    (program.root / "tool.shl").write_text("let a = 1\n\n1 / 0\n")
    ran = program.run("./tool.shl")
    assert ran.err.startswith("./tool.shl:3:1: div_zero: ")
    assert program.run("-c", "1 / 0").err.startswith("<repl>:1:1: ")
    assert program.run(stdin="1 / 0").err.startswith("<stdin>:1:1: ")


def test_stderr_of_a_failed_command_comes_first(program: Program) -> None:
    ran = program.run("-c", "sh -c 'echo trouble >&2; exit 1'")
    assert ran.err.startswith("trouble\n<repl>:1:1: cmd_failed: ")


def test_script_that_cannot_be_read(program: Program) -> None:
    ran = program.run("none.shl")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: cannot read none.shl: No such file or directory\n"


def test_colour_follows_configuration_not_the_terminal(program: Program) -> None:
    assert "\x1b" not in program.run("-c", "1 / 0").err
    del program.environ["NO_COLOR"]
    assert "\x1b[1;31m" in program.run("-c", "1 / 0").err
    program.configure("[render]\ncolor = false\n")
    assert "\x1b" not in program.run("-c", "1 / 0").err


def test_width_is_configured_or_eighty(program: Program) -> None:
    source = f"[{{a: '{'x' * 55}', b: '{'y' * 50}'}}]"

    def widest(**environ: str) -> int:
        return max(map(len, program.run("-c", source, environ=environ).out.splitlines()))

    assert widest() == 80
    assert widest(COLUMNS="100") == 100
    program.configure("[render]\nwidth = 90\n")
    assert widest(COLUMNS="100") == 90


def test_configuration_reaches_the_program(program: Program) -> None:
    program.configure("[env]\nGREETING = 'hello'\n[aliases]\nhi = 'echo'\n")
    assert program.run("-c", "env.GREETING").out == "hello\n"
    assert program.run("-c", "hi there").out == "there\n"
    (program.root / ".shoal.toml").write_text("[env]\nGREETING = 'project'\n")
    assert program.run("-c", "env.GREETING").out == "project\n"


def test_warnings_come_before_anything_else_and_errors_end_it(program: Program) -> None:
    program.configure("[kernel]\nsesion = 'x'\n[aliases]\nbad = ')'\n")
    ran = program.run("-c", "1")
    assert ran.code == 0
    first, second = ran.err.splitlines()[:2]
    assert first.startswith("warning: config error: ")
    assert second.startswith("warning: aliases.bad: ")
    program.configure("[kernel]\nsession = 1\n")
    ran = program.run("-c", "1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ")


def test_policy_that_cannot_be_read_is_fatal(program: Program) -> None:
    ran = program.run("-c", "1", environ={"SHOAL_LEASH_POLICY": "/none/policy.toml"})
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: cannot read policy /none/policy.toml: ")


def test_programs_get_no_input(program: Program) -> None:
    assert program.run("-c", "(cat).out.len()", stdin="ignored").out in ("0\n", "")


def wait_for_file(path: Path) -> str:
    end = time.monotonic() + WAIT_S
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < end
        time.sleep(0.01)
    return path.read_text().strip()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_cancels_the_running_program(
    program: Program, number: signal.Signals, code: int
) -> None:
    pid_file = program.root / "pid"
    source = f"sh -c 'echo $$ > {pid_file}; exec sleep 60'\necho never"
    with program.started("-c", source) as child:
        sleeper = int(wait_for_file(pid_file))
        child.send_signal(number)
        out, err = child.communicate(timeout=WAIT_S)
    assert (child.returncode, out, err) == (code, "", "")
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper, 0)


def test_killed_command_leaves_nothing_running(program: Program) -> None:
    pid_file = program.root / "pid"
    with program.started("-c", f"sh -c 'echo $$ > {pid_file}; exec sleep 60'") as child:
        sleeper = int(wait_for_file(pid_file))
        child.kill()
        child.wait(WAIT_S)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            os.kill(sleeper, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail("the program outlived its command")


def test_closed_stdout_ends_quietly_with_141(program: Program) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        program.command("-c", "echo A\necho B"),
        stdout=writer,
        stderr=subprocess.PIPE,
        env=program.environ,
        cwd=program.root,
        timeout=WAIT_S,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


# -- policy, confinement and secrets --------------------------------------------------------------


def restrict(program: Program, *lines: str) -> Mapping[str, str]:
    """A policy for the user who runs the tests; gives the environment in which it is in force."""
    file = program.root / "leash.toml"
    text = "\n".join(lines)
    file.write_text(f'[principal."uid:{os.getuid()}"]\n{text}\n')
    return {"SHOAL_LEASH_POLICY": str(file)}


RUN_ANYTHING = ('opaque = "allow"', 'auto_apply = "in-grant"')


def test_policy_confines_the_programs_of_a_local_run(program: Program) -> None:
    inside, outside = program.root / "inside", program.root / "outside"
    for place in (inside, outside):
        place.mkdir()
        (place / "note").write_text("text of a note")
    policy = restrict(program, f'fs.read = ["{inside}/**"]', *RUN_ANYTHING)
    seen = program.run("-c", f"sh {{ cat {inside}/note }}", environ=policy)
    assert (seen.code, seen.out) == (0, "text of a note\n")
    hidden = program.run("-c", f"sh {{ cat {outside}/note }}", environ=policy)
    assert hidden.code == 1
    assert "Permission denied" in hidden.err
    written = program.run("-c", f"sh {{ echo x > {inside}/new }}", environ=policy)
    assert (written.code, list(inside.iterdir())) == (2, [inside / "note"])


def test_confined_local_run_has_a_private_directory_that_goes_with_it(program: Program) -> None:
    policy = restrict(program, "fs.read = []", *RUN_ANYTHING)
    ran = program.run("-c", "sh { echo x > $TMPDIR/file; echo $TMPDIR }", environ=policy)
    assert ran.code == 0
    assert ran.out.startswith(str(program.short))
    assert not Path(ran.out.strip()).exists()


def test_denied_local_run_names_the_effects_and_exits_77(program: Program) -> None:
    policy = restrict(program, "fs.read = []", *RUN_ANYTHING)
    file = program.root / "file"
    ran = program.run("-c", f'echo started\ntouch "{file}"', environ=policy)
    assert (ran.code, ran.out) == (77, "")
    assert ran.err == f"error: leash denied execution\n  fs_write  paths: {file}\n"
    assert not file.exists()


def test_local_run_that_needs_an_approval_exits_75(program: Program) -> None:
    policy = restrict(program, 'opaque = "ask"', 'auto_apply = "in-grant"')
    ran = program.run("-c", "sh { true }", environ=policy)
    assert (ran.code, ran.out) == (75, "")
    assert ran.err.splitlines()[:2] == ["error: approval required; plan first", "  opaque"]


def test_local_run_of_a_user_without_a_section_is_denied_everything(program: Program) -> None:
    policy = restrict(program)
    Path(policy["SHOAL_LEASH_POLICY"]).write_text('[principal."agent:other"]\n')
    ran = program.run("-c", "1 + 1", environ=policy)
    assert (ran.code, ran.out) == (77, "")
    uid = os.getuid()
    assert f'hint: no policy section for uid:{uid}: add [principal."uid:{uid}"]' in ran.err


def test_effect_that_no_plan_foresaw_is_refused_in_a_local_run(program: Program) -> None:
    policy = restrict(program, f'fs.read = ["{program.root}"]', *RUN_ANYTHING)
    file = program.root / "file"
    file.write_text("x")
    src = f'let p = [path("{file}")].map(x => x)\np.each(x => x.read)'
    ran = program.run("-c", f"{src}\nsh {{ true }}", environ=policy)
    assert ran.code == 1
    assert ": leash_denied: leash: fs_read of " in ran.err


def test_unknown_policy_key_is_a_warning_of_a_local_run(program: Program) -> None:
    policy = restrict(program, "grant = 1", *RUN_ANYTHING)
    ran = program.run("-c", "1", environ=policy)
    assert ran.out == "1\n"
    assert ran.err.startswith("warning: policy ")
    assert f'principal "uid:{os.getuid()}": unknown key `grant` is ignored' in ran.err


def test_unrestricted_local_run_keeps_normal_behaviour(program: Program) -> None:
    ran = program.run("-c", "sh { grep NoNewPrivs /proc/self/status }")
    assert ran.out.split() == ["NoNewPrivs:0"]


def test_local_run_uses_the_secret_store(program: Program) -> None:
    canary = "c4nary-of-a-local-run"
    assert program.run("secret", "set", "canary", stdin=canary).code == 0
    ran = program.run("-c", 'let s = secret.get("canary")\n[s, s == s]')
    assert (ran.code, ran.out.split()) == (0, ["secret(canary)", "true"])
    for src in ('secret.get("none")', 'secret.get("no such")', '"{secret.get("canary")}"'):
        failed = program.run("-c", src)
        assert failed.code == 1
        assert canary not in failed.out + failed.err
    assert (
        ": permission: secret name must contain only"
        in program.run("-c", 'secret.get("no such")').err
    )
    (program.root / ".local" / "share" / "shoal" / "secrets" / "secrets.json").chmod(0o644)
    assert (
        "permission: secret file permissions must be 0600"
        in program.run("-c", 'secret.get("canary")').err
    )


def test_secret_of_a_local_run_needs_the_grant(program: Program) -> None:
    for name in ("granted", "other"):
        assert program.run("secret", "set", name, stdin="material").code == 0
    policy = restrict(program, 'secret_use = ["granted"]', "fs.read = []", *RUN_ANYTHING)
    assert program.run("-c", 'secret.get("granted")', environ=policy).out == "secret(granted)\n"
    assert program.run("-c", 'secret.get("other")', environ=policy).code == 77
