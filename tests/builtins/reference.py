"""The reference page of builtins, made from their registries.

    python -m tests.builtins.reference --write

writes `docs/builtins.md`; the test beside this fails when the page is not what this makes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from worker.builtins import BUILTINS, FUNCTIONS
from worker.builtins.effects import SCRIPT, STORED_PLAN, Operands, Rule, Rules
from worker.builtins.namespaces import NAMESPACES
from worker.builtins.registry import Builtin, Undo

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "builtins.md"

_HEAD: Final = """# Builtins

Generated from the registries in `worker/builtins`; run `python -m tests.builtins.reference --write`
after a change there.

Each entry shows how it is written and what it gives, the effects that planning foresees for it, and
what `undo` can take back. Arguments that are globs have become absolute paths before a builtin sees
them; relative paths start at the session's working directory.
"""

_NAMES: Final = {SCRIPT: "the effects of the script", STORED_PLAN: "the effects of the kept plan"}


def effects_text(rules: Rules) -> str:
    return "; ".join(_rule_text(rule) for rule in rules) or "none"


def _rule_text(rule: Rule) -> str:
    text = _NAMES.get(rule.kind, f"`{rule.kind}`")
    if rule.names:
        text += f" of {', '.join(f'`{name}`' for name in rule.names)}"
    elif rule.kind not in _NAMES and rule.operands is not Operands.NONE:
        text += f" of {rule.operands.value}"
    if rule.unless_flags:
        text += f", not with {_flags(rule.unless_flags)}"
    if rule.irreversible_flags:
        text += f", for good with {_flags(rule.irreversible_flags)}"
    return text


def _flags(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{'-' if len(name) == 1 else '--'}{name}`" for name in names)


def render() -> str:
    """The whole page."""
    return "\n".join(
        [
            _HEAD,
            *_heads("Commands that give an outcome", structured=True),
            *_heads("Commands that give a bare value", structured=False),
            *_functions(),
            *_namespaces(),
        ]
    )


def _heads(title: str, *, structured: bool) -> Iterator[str]:
    yield f"## {title}\n"
    for name in sorted(BUILTINS):
        if BUILTINS[name].structured is structured:
            yield from _head(BUILTINS[name])


def _head(entry: Builtin) -> Iterator[str]:
    yield f"### `{entry.name}`\n"
    yield f"{entry.summary}\n"
    yield "```text"
    yield from entry.usage
    yield "```\n"
    yield f"- Effects: {effects_text(entry.effects)}."
    if entry.undo is not Undo.NONE:
        yield f"- Undo: {entry.undo.value}."
    yield ""


def _functions() -> Iterator[str]:
    yield "## Functions\n"
    yield "| Call | What | Effects |"
    yield "| --- | --- | --- |"
    for name in sorted(FUNCTIONS):
        entry = FUNCTIONS[name]
        yield _row(entry.usage, entry.summary, entry.effects)
    yield ""


def _namespaces() -> Iterator[str]:
    for name in NAMESPACES:
        namespace = NAMESPACES[name]
        yield f"## `{name}`\n"
        if namespace.constants:
            constants = ", ".join(f"`{name}.{constant}`" for constant in namespace.constants)
            yield f"Constants: {constants}.\n"
        yield "| Call | What | Effects |"
        yield "| --- | --- | --- |"
        for member in namespace.functions.values():
            yield _row(member.usage, member.summary, member.effects)
        yield ""


def _row(usage: str, summary: str, effects: Rules) -> str:
    cells = (f"`{usage}`", summary, effects_text(effects))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        PAGE.write_text(render(), "utf-8")
        return 0
    return 0 if PAGE.read_text("utf-8") == render() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
