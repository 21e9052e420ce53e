"""The command that serves the Model Context Protocol.

Failure: none.
"""

from __future__ import annotations

from typing import Final

from supervisor.cli.call import TARGET_OPTIONS
from supervisor.cli.options import Command, Option

MCP: Final = Command(
    "mcp",
    "serve a session to an agent over the Model Context Protocol",
    run="supervisor.cli.mcp:run",
    prefix="shoal-mcp",
    about="""\
Speaks newline-delimited JSON-RPC on stdin and stdout until stdin ends; see docs/mcp.md. Meant to
be started by an agent's host, not by hand.""",
    options=(
        *TARGET_OPTIONS[:2],
        Option("--token", "bearer secret; others can read it in the argument list", value="TOKEN"),
        *TARGET_OPTIONS[2:],
    ),
)
