"""Whoever is not confined pays nothing for those who are."""

from __future__ import annotations

from leash.policy import PERMISSIVE
from leash.verdict import Standing
from worker.sandbox import Sandbox


def test_the_local_human_pays_nothing() -> None:
    sandbox = Sandbox()
    sandbox.enter(Standing("uid:0", PERMISSIVE), {})
    assert sandbox.base is None
    assert sandbox.domain(Standing("uid:0", PERMISSIVE)) is None
