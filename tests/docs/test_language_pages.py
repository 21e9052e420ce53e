"""The pages of the language: generated ones are current, and every sample of the tour is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.language_pages import DOCS, EQUAL_SAMPLES, render
from tests.docs.raised_codes import raised_codes
from tests.docs.tour import blocks
from tests.evaluate.session import Session
from tests.values.samples import SAMPLES
from worker.builtins import BUILTINS
from worker.builtins.namespaces import NAMESPACES
from worker.error_codes import ALL
from worker.errors import Raised
from worker.values.equality import equal
from worker.values.inline import inline
from worker.values.methods import walk
from worker.values.types import TYPE_NAMES

TOUR = DOCS / "tour.md"
VALUE, ERROR = "#=> ", "#!> "


def test_every_method_is_on_its_page() -> None:
    page = render("methods.md")
    assert [entry["name"] for entry in walk() if f"`.{entry['name']}(" not in page] == []


def test_every_builtin_and_namespace_is_in_the_index() -> None:
    page = render("README.md")
    assert [name for name in (*BUILTINS, *NAMESPACES) if f"[`{name}`]" not in page] == []


# --- codes ----------------------------------------------------------------------------------------


def test_every_raised_code_has_a_meaning() -> None:
    unknown = {code: places for code, places in raised_codes().items() if code not in ALL}
    assert unknown == {}


def test_every_code_with_a_meaning_is_raised_somewhere() -> None:
    assert ALL - set(raised_codes()) == set()


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("types", "sources"), EQUAL_SAMPLES.items())
def test_values_of_these_types_can_be_equal(
    session: Session, types: tuple[str, str], sources: tuple[str, str]
) -> None:
    left, right = sources
    assert session.text(f"[{left} == {right}, {right} == {left}]") == "[true, true]"
    kinds = [
        f"match {src} {{ {name} v => true; _ => false }}"
        for name, src in zip(types, sources, strict=True)
    ]
    assert session.text(f"[{', '.join(kinds)}]") == "[true, true]"


def test_no_samples_of_other_pairs_are_equal() -> None:
    for left in TYPE_NAMES:
        for right in TYPE_NAMES:
            known = left == right or {left, right} in [set(pair) for pair in EQUAL_SAMPLES]
            assert known or not equal(SAMPLES[left], SAMPLES[right])


# --- the tour -------------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path.resolve())


def samples(block: str) -> list[tuple[str, str]]:
    """The programs of a block, and the line that says what comes of each (none: a value)."""
    found = []
    lines: list[str] = []
    for line in block.splitlines():
        if line.startswith((VALUE, ERROR)):
            found.append(("\n".join(lines), line))
            lines = []
        else:
            lines.append(line)
    if any(lines):
        found.append(("\n".join(lines), ""))
    return found


def outcome_of(session: Session, src: str) -> str:
    try:
        return VALUE + inline(session.run(src))
    except Raised as failure:
        return ERROR + failure.error.code


def test_every_sample_of_the_tour_gives_what_it_shows(session: Session) -> None:
    wrong = []
    count = 0
    for block in blocks(TOUR, "shoal"):
        for src, shown in samples(block):
            count += 1
            given = outcome_of(session, src)
            if shown and given != shown:
                wrong.append(f"{src}\n{shown}\ngave\n{given}")
            assert shown or given.startswith(VALUE), f"{src}\n{given}"
    assert not wrong, "\n\n".join(wrong)
    assert count > 60


def test_the_pages_link_to_files_that_exist() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8")):
            assert (DOCS / target).is_file(), f"{page.name}: {target}"
