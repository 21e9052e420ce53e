"""The kernel endpoint serves what the method reference page says."""

from __future__ import annotations

from ipc.methods import METHODS
from supervisor.kernel_endpoint import method_names


def test_every_served_method_has_its_types_and_every_typed_method_is_served() -> None:
    assert method_names() == sorted(METHODS)
