"""A file that is swapped between the check of its name and the opening is judged as what it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leash.policy import Policy
from tests.planning.test_authority import authority
from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator
from worker.evaluate.host import Host
from worker.language import parse

TREASURE = "the-treasure"
READING = (
    "cat t.txt",
    "head t.txt",
    'path("t.txt").read',
    'path("t.txt").read_bytes',
    'path("t.txt").lines',
    "cp t.txt copy.txt\ncat copy.txt",
    "source ./t.txt",
    "^/bin/cat < t.txt",
)


class Racing:
    """The real authority, and an attacker who swaps the file right after it was asked about."""

    restricted = True

    def __init__(self, place: Path) -> None:
        self._place = place
        self._real = authority(
            Policy(
                fs_read=(f"{place}", f"{place}/*.txt"), fs_write=(f"{place}/*.txt",), opaque="allow"
            )
        )
        self.swapped = False

    def check(self, effect: dict[str, Any]) -> None:
        self._real.check(effect)
        if effect["kind"] == "fs_read" and not self.swapped:
            self.swapped = True
            (self._place / "next").symlink_to(self._place / "secret.key")
            (self._place / "next").replace(self._place / "t.txt")

    def admit_spawn(self, request: Any) -> Any:
        return self._real.admit_spawn(request)


@pytest.mark.parametrize("src", READING)
def test_a_swapped_file_is_not_read(tmp_path: Path, src: str) -> None:
    place = tmp_path.resolve()
    (place / "secret.key").write_text(TREASURE)
    (place / "t.txt").write_text("mine")
    racing = Racing(place)
    shown: list[str] = []
    host = Host(sink=lambda value: shown.append(str(value)), authority=racing)
    ev = Evaluator(str(place), {b"PATH": os.environb[b"PATH"]}, host)
    with pytest.raises(Raised) as refused:
        ev.run_program(parse(src), src)
    assert racing.swapped
    assert refused.value.error.code == "leash_denied"
    assert TREASURE not in str(shown) + str(refused.value.error)
    copied = place / "copy.txt"
    assert not copied.exists() or copied.read_text() == ""


def test_a_file_that_stays_itself_is_read(tmp_path: Path) -> None:
    place = tmp_path.resolve()
    (place / "t.txt").write_text("mine")
    host = Host(authority=authority(Policy(fs_read=(f"{place}/*.txt",))))
    ev = Evaluator(str(place), {}, host)
    assert ev.run_program(parse('path("t.txt").read'), 'path("t.txt").read') == "mine"


def test_a_granted_link_is_read_as_what_it_names(tmp_path: Path) -> None:
    place = tmp_path.resolve()
    (place / "real").mkdir()
    (place / "real" / "t.txt").write_text("mine")
    (place / "way").symlink_to(place / "real")
    host = Host(authority=authority(Policy(fs_read=(f"{place}/way/**",))))
    ev = Evaluator(str(place), {}, host)
    assert ev.run_program(parse('path("way/t.txt").read'), "x") == "mine"
