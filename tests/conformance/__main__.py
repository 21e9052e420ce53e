"""`python -m tests.conformance DIR [--json] [--filter TEXT]`: run a folder of language cases.

Prints every failure with what was expected and what came, and closes with the line
`N passed, N failed, N skipped`. Exit status 1 when a case failed, 2 for unusable arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.conformance.cases import Case, InvalidCase, Result, load, satisfies
from tests.conformance.runner import run_all


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("folder", type=Path, help="the folder with the *.toml case files")
    parser.add_argument("--json", action="store_true", help="one JSON object per case")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only names with this text")
    options = parser.parse_args(arguments)
    try:
        cases = [
            case
            for case in load(options.folder)
            if options.filter in case.name or options.filter in case.file
        ]
    except (InvalidCase, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    passed = failed = 0
    for case, result in run_all(cases):
        ok = satisfies(case, result)
        passed += ok
        failed += not ok
        if options.json:
            sys.stdout.write(json.dumps(_record(case, result, ok)) + "\n")
        elif not ok:
            sys.stdout.write(_report(case, result))
        sys.stdout.flush()
    skipped = sum(case.skip is not None for case in cases)
    sys.stdout.write(f"{passed} passed, {failed} failed, {skipped} skipped\n")
    return 1 if failed else 0


def _report(case: Case, result: Result) -> str:
    program = "\n".join(f"      {line}" for line in case.src.splitlines())
    return (
        f"FAILED {case.file}: {case.name}\n{program}\n"
        f"    expected {case.expected}\n    got      {result.describe()}\n"
    )


def _record(case: Case, result: Result, ok: bool) -> dict[str, object]:
    return {
        "file": case.file,
        "name": case.name,
        "passed": ok,
        "expected": case.expected,
        "got": result.describe(),
    }


if __name__ == "__main__":
    sys.exit(main())
