"""The ranked memory of visited directories behind `j` and `jump` (chapter 31 §4.1).

`Frecency` is the pure part: text in, visits, ranking, text out. `NavigationStore` keeps one where
the host says; a host that keeps nothing gets one in memory. A store that lives outside is read
again for every use, since other sessions write it too.

Failure: bad lines are skipped; a store that cannot be read is empty, one that cannot be written
keeps what it had. Nothing is raised.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

RANK_SUM_MAX: Final = 10_000.0
AGING: Final = 0.9
RANK_MIN: Final = 1.0
_HOUR_S: Final = 3600

# (age below which it holds, weight); older visits get the last weight.
_WEIGHTS: Final = ((_HOUR_S, 4.0), (24 * _HOUR_S, 2.0), (7 * 24 * _HOUR_S, 0.5))
_OLD_WEIGHT: Final = 0.25


class Visited(NamedTuple):
    rank: float
    last_s: int


class Frecency:
    """Ranks by directory, with the time of the last visit in Unix seconds."""

    def __init__(self, text: str = "") -> None:
        self.places: dict[str, Visited] = {}
        for line in text.split("\n"):
            self._read(line)

    def _read(self, line: str) -> None:
        rank_text, _, rest = line.partition("\t")
        seconds_text, tab, path = rest.partition("\t")
        try:
            rank, seconds = float(rank_text), int(seconds_text)
        except ValueError:
            return
        if not tab or not path or not 0 < rank < float("inf"):
            return
        known = self.places.get(path, Visited(0.0, seconds))
        self.places[path] = Visited(known.rank + rank, max(known.last_s, seconds))

    def text(self) -> str:
        """One `RANK<tab>UNIX_SECONDS<tab>PATH` per line."""
        return "".join(
            f"{place.rank:.6f}\t{place.last_s}\t{path}\n" for path, place in self.places.items()
        )

    def visit(self, path: str, now_s: int) -> None:
        """Count one visit; when the ranks have grown too high all of them fade."""
        if "\n" in path:
            return
        known = self.places.get(path, Visited(0.0, now_s))
        self.places[path] = Visited(known.rank + 1, now_s)
        if sum(place.rank for place in self.places.values()) > RANK_SUM_MAX:
            faded = {
                name: Visited(place.rank * AGING, place.last_s)
                for name, place in self.places.items()
            }
            self.places = {name: place for name, place in faded.items() if place.rank >= RANK_MIN}

    def ranked(self, query: str | None, now_s: int) -> list[str]:
        """The directories whose path contains the query, ignoring case, best first."""
        wanted = (query or "").casefold()
        found = [path for path in self.places if wanted in path.casefold()]

        def order(path: str) -> tuple[float, bool, int, str]:
            place = self.places[path]
            elsewhere = wanted not in os.path.basename(path).casefold()
            return (-place.rank * _weight(now_s - place.last_s), elsewhere, -place.last_s, path)

        return sorted(found, key=order)


def _weight(age_s: int) -> float:
    return next((weight for below, weight in _WEIGHTS if age_s < below), _OLD_WEIGHT)


class NavigationStore:
    """The navigation port of a host. `load` gives the stored text, `store` keeps a new one; both
    may raise OSError."""

    # Without a backing the text is kept here; it changes in `visit` only.
    def __init__(
        self,
        load: Callable[[], str] | None = None,
        store: Callable[[str], None] | None = None,
    ) -> None:
        self._text = ""
        self._load = load or (lambda: self._text)
        self._store = store or self._keep

    @classmethod
    def in_file(cls, path: str) -> NavigationStore:
        return cls(lambda: read_store(path), lambda text: write_store(path, text))

    def _keep(self, text: str) -> None:
        self._text = text

    def _read(self) -> Frecency:
        try:
            return Frecency(self._load())
        except OSError:
            return Frecency()

    def visit(self, path: str, now_s: int) -> None:
        """Count one visit, best effort."""
        places = self._read()
        places.visit(path, now_s)
        with suppress(OSError):
            self._store(places.text())

    def ranked(self, query: str | None, now_s: int) -> list[str]:
        return self._read().ranked(query, now_s)


def read_store(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def write_store(path: str, text: str) -> None:
    """Replace the file as a whole: a reader sees the old or the new text."""
    directory = os.path.dirname(path)
    fd, temporary = tempfile.mkstemp(prefix=".jump-", dir=directory)
    try:
        with open(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
