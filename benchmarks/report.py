"""What a benchmark says: rows of measured values, each against a reference of the same run.

A row has a value, what it is compared with, the ratio, and the bound the project holds itself to.
Times are never judged by themselves: machines differ, ratios of one run travel.

Failure: a bound that is missed marks the row; the command then exits 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

Direction = Literal["at most", "at least"]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `ratio` is what `bound` is about; both None for plain information."""

    group: str
    name: str
    value: float
    unit: str
    reference: str = ""
    ratio: float | None = None
    direction: Direction = "at most"
    bound: float | None = None

    @property
    def met(self) -> bool:
        if self.ratio is None or self.bound is None:
            return True
        return self.ratio <= self.bound if self.direction == "at most" else self.ratio >= self.bound


def median(samples: Iterable[float]) -> float:
    return statistics.median(samples)


def table(rows: list[Row]) -> str:
    """The rows as aligned text."""
    cells = [("GROUP", "WHAT", "VALUE", "RATIO", "BOUND", "AGAINST")]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        bound = ""
        if row.bound is not None:
            bound = f"{'≤' if row.direction == 'at most' else '≥'} {row.bound:g}"
            bound += "" if row.met else "  MISSED"
        cells.append(
            (row.group, row.name, f"{row.value:,.4g} {row.unit}", ratio, bound, row.reference)
        )
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


Benchmark = Callable[[], list[Row]]
