"""Every subcommand. Help, completion scripts and docs/cli.md are made from this table.

A command that is not here does not exist: it is neither dispatched nor listed.

Failure: none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from supervisor.cli.declared import agents, kernel, mcp, stored, work
from supervisor.cli.options import Command

# What runs source without a kernel: `-c`, a file, standard input.
LOCAL: Final = "supervisor.cli.local_run:run"

# In the order of `shoal --help`.
_DECLARED: Final = (
    kernel.KERNEL,
    work.EXEC,
    work.PLAN,
    work.RUN,
    kernel.STATUS,
    work.EVENTS,
    stored.JOURNAL,
    work.TASK,
    work.PTY,
    work.SESSION,
    agents.AGENT,
    mcp.MCP,
    stored.BACKUP,
    stored.TOKEN,
    stored.SECRET,
    kernel.METRICS,
    kernel.DOCTOR,
    stored.CONFIG,
    stored.FMT,
    stored.COMPLETIONS,
)


def _with_paths(command: Command, above: str = "") -> Command:
    """The same declaration, every part knowing its full name."""
    path = f"{above} {command.name}".strip()
    subs = tuple(_with_paths(sub, path) for sub in command.commands)
    return replace(command, path=path, commands=subs)


COMMANDS: Final[tuple[Command, ...]] = tuple(map(_with_paths, _DECLARED))

_BY_NAME: Final = {command.name: command for command in COMMANDS}


def named(name: str) -> Command | None:
    return _BY_NAME.get(name)
