"""The method reference page is what the typed methods say."""

from __future__ import annotations

from ipc.methods import METHODS
from supervisor.kernel_endpoint import method_names
from tests.docs.method_reference import PAGE, render


def test_the_method_reference_is_current() -> None:
    assert PAGE.read_text("utf-8") == render(), "run python -m tests.docs.method_reference --write"


def test_every_served_method_has_its_types_and_every_typed_method_is_served() -> None:
    assert method_names() == sorted(METHODS)
