"""Showing plans, for `exec --plan` and `shoal plan` (chapter 81, section 7.5).

Failure: none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.cli.output import Output
from supervisor.cli.results import effect_text


def print_plan(out: Output, plan: Mapping[str, Any]) -> None:
    """Reference, owner, session, verdict, reversibility, each effect, then the source, indented."""
    if out.json:
        out.document(plan)
        return
    rows = [
        ("plan", plan["plan_ref"]),
        ("owner", plan["principal"]),
        ("session", plan["session"]),
        ("verdict", plan["verdict"]),
        ("reversibility", plan["reversibility"]),
    ]
    for name, value in rows:
        out.line(f"{name + ':':<15}{value}")
    out.line("effects:" if plan["effects"] else "effects:       none")
    for effect in plan["effects"]:
        out.line(f"  {effect_text(effect)}")
    out.line("source:")
    for line in str(plan["src"]).splitlines():
        out.line(f"  {line}".rstrip())
