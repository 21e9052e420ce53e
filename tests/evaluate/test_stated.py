"""The values and messages of `stated.txt`: whole programs, each in a session of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.evaluate.session import Session
from worker.error_codes import ALL
from worker.errors import Raised
from worker.values.inline import inline

LINES: Final = [
    line
    for line in Path(__file__).with_name("stated.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


def is_error(expected: str) -> bool:
    return expected.partition("|")[0] in ALL and "|" in expected


@pytest.mark.parametrize("line", LINES)
def test_a_program_gives_or_raises_what_is_stated(session: Session, line: str) -> None:
    src, _, expected = line.partition(" ~ ")
    try:
        given = inline(session.run(src.replace("⏎", "\n")))
    except Raised as failure:
        error = failure.error
        assert is_error(expected), f"{error.code}: {error.msg}"
        code, message, *hints = expected.split("|")
        assert (error.code, message in error.msg) == (code, True), error.msg
        for hint in hints:
            assert hint in str(error.hint)
        return
    assert not is_error(expected), given
    prefix = expected.removesuffix("…")
    assert given == expected if prefix == expected else given.startswith(prefix)
