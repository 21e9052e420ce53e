"""The README's examples as data: commands, and what they print.

In a `console` block a line that begins with `$ ` is a command for bash, and the lines up to the
next one are its output, stderr included. `…` in an expected line stands for any text; a line that
is `…` alone stands for any lines. Blanks at line ends do not count.

Failure: none; what does not fit is for the test to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
ANYTHING: Final = "…"


@dataclass(frozen=True)
class Step:
    """One command and its expected output."""

    command: str
    expected: str


def blocks(page: Path, language: str) -> Iterator[str]:
    for match in _BLOCK.finditer(page.read_text()):
        if match["language"] == language:
            yield match["body"]


def steps(page: Path) -> list[Step]:
    """Every command of a page, in order."""
    found = []
    for body in blocks(page, "console"):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            found.append(Step(command, expected))
    return found


def fits(expected: str, printed: str) -> bool:
    """Whether an output is the expected one."""
    pattern = []
    for line in expected.splitlines():
        if line == ANYTHING:
            pattern.append(r"(?:[^\n]*\n)*")
        else:
            parts = map(re.escape, line.rstrip().split(ANYTHING))
            pattern.append("[^\n]*".join(parts) + "\n")
    shown = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    return re.fullmatch("".join(pattern), shown) is not None
