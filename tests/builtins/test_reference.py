"""The reference page of builtins is what the registries say."""

from __future__ import annotations

import pytest

from tests.builtins.reference import PAGE, render
from worker.builtins import BUILTINS, FUNCTIONS


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == render(), "run python -m tests.builtins.reference --write"


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_every_head_is_on_the_page_with_all_its_forms(name: str) -> None:
    page = PAGE.read_text("utf-8")
    assert f"### `{name}`\n" in page
    assert all(f"\n{line}\n" in page for line in BUILTINS[name].usage)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_on_the_page(name: str) -> None:
    assert f"| `{name}(" in PAGE.read_text("utf-8")
