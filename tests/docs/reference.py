"""The generated pages of the documentation, and the generated parts of others.

    python -m tests.docs.reference --check    exit 1 and say which page is stale
    python -m tests.docs.reference --write    bring every page up to date

A page holds prose, and blocks between `<!-- generated: NAME -->` and `<!-- end -->` that are made
from the registries: configuration keys, variables, commands, methods of the agent endpoint. Other
pages are made as a whole: the methods of the kernel endpoint, and most of the language.

Failure: exit 1 for a stale page, KeyError for a block that nothing makes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from supervisor.cli.help import option_name, usage
from supervisor.cli.options import Command, Option
from supervisor.cli.registry import COMMANDS
from supervisor.config import KEYS, Key, Reload
from supervisor.config.environment import OVERRIDES, PROCESS_VARIABLES
from tests.arrows.rules import ROOT
from tests.docs import agent_reference, language_pages, method_reference

DOCS: Final = ROOT / "docs"
_BLOCK: Final = re.compile(
    r"(<!-- generated: (?P<name>[\w.]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL
)

_RELOADS: Final[Mapping[Reload, str]] = {
    Reload.LIVE: "reload",
    Reload.SESSION: "new sessions",
    Reload.RESTART: "restart",
    Reload.CLIENT: "next use",
}


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def keys() -> Iterator[str]:
    """Every configuration key, a table for each section."""
    sections: dict[str, list[Key]] = {}
    for key in KEYS.values():
        sections.setdefault(key.path.rpartition(".")[0], []).append(key)
    for section, members in sections.items():
        yield ""
        yield f"### `{section}`" if section else "### Outside of any section"
        yield ""
        yield from _table(("Key", "Type", "Default", "Takes effect", "Meaning"), _rows(members))
    yield ""


def _rows(members: list[Key]) -> Iterator[tuple[str, ...]]:
    for key in members:
        shape = key.shape.value.removeprefix("a ").removeprefix("an ")
        meaning = key.meaning[0].upper() + key.meaning[1:]
        yield f"`{key.path}`", shape, _default(key.default), _RELOADS[key.reload], meaning


def _default(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 else str(value)
    if isinstance(value, str):
        return f"`{value}`"
    return "empty"


def variables() -> Iterator[str]:
    """Every environment variable that sets a key, and those that set none."""
    yield ""
    yield from _table(
        ("Variable", "Key"), ((f"`{each.variable}`", f"`{each.key}`") for each in OVERRIDES)
    )
    yield ""
    yield from _table(
        ("Variable", "Meaning"),
        ((f"`{name}`", text[0].upper() + text[1:]) for name, text in PROCESS_VARIABLES.items()),
    )
    yield ""


def commands() -> Iterator[str]:
    """Every command with its options."""
    for command in COMMANDS:
        yield ""
        yield f"## `shoal {command.name}`"
        yield ""
        yield f"{command.summary[0].upper()}{command.summary[1:]}."
        yield ""
        yield "```text"
        yield usage(command)
        yield "```"
        yield ""
        if command.about:
            yield from _about(command)
        yield from _options(command)
        for sub in command.commands:
            yield f"### `shoal {sub.path}`"
            yield ""
            yield f"{sub.summary[0].upper()}{sub.summary[1:]}."
            yield ""
            yield from _options(sub)


def _about(command: Command) -> Iterator[str]:
    """The text of help: examples are its indented lines."""
    for part in command.about.strip("\n").split("\n\n"):
        example = part.startswith("  ")
        if example:
            yield "```sh"
        yield from (line.removeprefix("  ") for line in part.split("\n"))
        if example:
            yield "```"
        yield ""


def _options(command: Command) -> Iterator[str]:
    if command.operands or command.options:
        rows = [(f"`{operand.name}`", operand.help) for operand in command.operands]
        rows += [(f"`{option_name(option)}`", _help(option)) for option in command.options]
        yield from _table(("Argument", "Meaning"), iter(rows))
        yield ""


def _help(option: Option) -> str:
    return option.help + ("; may be repeated" if option.repeat else "")


BLOCKS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "keys": keys,
    "variables": variables,
    "commands": commands,
    "agent_methods": lambda: iter((agent_reference.render(),)),
}

# Pages that are made as a whole.
PAGES: Final[Mapping[Path, Callable[[], str]]] = {
    method_reference.PAGE: method_reference.render,
    **{
        language_pages.DOCS / name: partial(language_pages.render, name)
        for name in language_pages.PAGES
    },
}


def refreshed(text: str) -> str:
    """A page with its generated blocks made anew."""

    def block(match: re.Match[str]) -> str:
        body = "\n".join(BLOCKS[match["name"]]())
        return f"{match[1]}{body}\n{match[4]}"

    return _BLOCK.sub(block, text)


def stale_pages(*, write: bool) -> list[Path]:
    """The pages that differ from what the registries give; rewritten when asked to."""
    found = []
    for path in sorted({*PAGES, *DOCS.rglob("*.md")}):
        text = path.read_text() if path.exists() else ""
        if path in PAGES:
            fresh = PAGES[path]()
        else:
            fresh = refreshed(text) if "<!-- generated: " in text else text
        if fresh != text:
            found.append(path)
            if write:
                path.write_text(fresh)
    return found


def main(words: list[str]) -> int:
    write = words == ["--write"]
    if not write and words != ["--check"]:
        sys.stderr.write("usage: python -m tests.docs.reference --check | --write\n")
        return 2
    found = stale_pages(write=write)
    for path in found:
        state = "rewritten" if write else "stale, run `make format`"
        sys.stderr.write(f"{path.relative_to(ROOT)}: {state}\n")
    return 0 if write or not found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
