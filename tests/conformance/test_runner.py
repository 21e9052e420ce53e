"""The conformance runner itself: what counts as passed, and that nothing can hang it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conformance.cases import Case, InvalidCase, Result, load, satisfies
from tests.conformance.runner import run_all, run_case, session_members

PASSING = """\
[[case]]
name = 'sum'
src = '1 + 1'
value = '2'

[[case]]
name = 'fixture'
src = 'ls.map(.name)'
fixture = ['b/', 'a/x.txt']
value = '["a", "b"]'

[[case]]
name = 'error'
src = '1 / 0'
error = 'div_zero'
error_contains = 'by zero'

[[case]]
name = 'syntax'
src = 'ls | wc'
parse_error = true
parse_error_contains = 'pipe'

[[case]]
name = 'later'
src = 'whatever'
skip = 'not yet'
"""

FAILING = """\
[[case]]
name = 'wrong value'
src = '1 + 1'
value = '3'

[[case]]
name = 'wrong code'
src = '1 / 0'
error = 'overflow'
"""


def run_folder(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.conformance", str(folder), *options],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_passing_folder_exits_with_zero_and_closes_with_the_counts(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(PASSING)
    done = run_folder(tmp_path)
    assert done.stdout == "4 passed, 0 failed, 1 skipped\n"
    assert done.returncode == 0


def test_failures_are_printed_with_expected_and_got(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(PASSING)
    (tmp_path / "b.toml").write_text(FAILING)
    done = run_folder(tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "4 passed, 2 failed, 1 skipped"
    assert "FAILED b.toml: wrong value" in done.stdout
    assert "expected value '3'" in done.stdout and "got      value '2'" in done.stdout
    assert "got      error div_zero: division by zero" in done.stdout


def test_filter_and_json(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(PASSING)
    done = run_folder(tmp_path, "--json", "--filter", "sum")
    record, counts = done.stdout.splitlines()
    assert json.loads(record) == {
        "file": "a.toml",
        "name": "sum",
        "passed": True,
        "expected": "value '2'",
        "got": "value '2'",
    }
    assert counts == "1 passed, 0 failed, 0 skipped"


def test_hung_case_is_killed_with_everything_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    src = f'env.OUT = "{pid_file}"\nsh {{ echo $$ > $OUT; sleep 600; }}'
    started = time.monotonic()
    [(_, result)] = list(run_all([Case("f", "hung", src, value="1")], seconds=3.0))
    assert result.kind == "timeout"
    assert time.monotonic() - started < 30
    assert _ended(int(pid_file.read_text()))


def _ended(pid: int) -> bool:
    """Whether a killed process is gone, or dead and only waiting to be collected by init."""
    for _ in range(2000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.005)
    return False


def test_crashing_case_is_a_failure_of_its_own() -> None:
    def crash(case: Case) -> Result:
        os._exit(3)

    [(_, result)] = list(run_all([Case("f", "crash", "1", value="1")], run=crash))
    assert result.kind == "crash"


def test_cases_do_not_share_anything(tmp_path: Path) -> None:
    cases = [
        Case("f", "first", 'let a = 1\necho x > left.txt\nenv.LEFT = "1"', value="null"),
        Case("f", "second", '[ls.len(), (env LEFT).out, a catch "unbound"]', value="?"),
    ]
    results = {case.name: result for case, result in run_all(cases)}
    assert results["second"].text == '[0, null, "unbound"]'


def test_case_runs_in_a_directory_that_is_gone_afterwards() -> None:
    result = run_case(Case("f", "where", "pwd", value="?"))
    assert result.kind == "value"
    assert not Path(result.text).exists()


@pytest.mark.parametrize(
    ("case", "result", "wanted"),
    [
        (Case("f", "n", "", value="2"), Result("value", " 2\n"), True),
        (Case("f", "n", "", value="2"), Result("error", "2", "custom"), False),
        (Case("f", "n", "", error="a"), Result("error", "m", "a"), True),
        (Case("f", "n", "", error="a"), Result("error", "m", "b"), False),
        (Case("f", "n", "", error="a", contains="h"), Result("error", "m", "a", "has h"), True),
        (Case("f", "n", "", error="a", contains="q"), Result("error", "m", "a", "has h"), False),
        (Case("f", "n", "", parse_error=True), Result("parse error", "m"), True),
        (Case("f", "n", "", parse_error=True), Result("error", "m", "parse_error"), False),
        (Case("f", "n", "", value=""), Result("timeout", ""), False),
    ],
)
def test_what_satisfies_a_case(case: Case, result: Result, wanted: bool) -> None:
    assert satisfies(case, result) is wanted


@pytest.mark.parametrize(
    "text",
    [
        "[[case]]\nsrc = '1'\nvalue = '1'",
        "[[case]]\nname = 'n'\nsrc = '1'",
        "[[case]]\nname = 'n'\nsrc = '1'\nvalue = '1'\nerror = 'x'",
        "[[case]]\nname = 'n'\nvalue = '1'",
        "case = 4",
        "not toml",
    ],
)
def test_malformed_case_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(InvalidCase):
        load(tmp_path)


def test_session_members_are_those_of_one_session() -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        assert session_members(child.pid) == [child.pid]
    finally:
        child.kill()
        child.wait()
