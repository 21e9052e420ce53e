"""Commands that speak to the agent endpoint.

Failure: none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from supervisor.cli.call import JSON_OPTION, LISTING_OPTIONS, STATE_DIR_OPTION
from supervisor.cli.options import Command, Operand, Option

_WHERE: Final = (
    replace(STATE_DIR_OPTION, help="data directory whose endpoint is meant"),
    Option("--token-file", "file with a bearer secret, mode 0600", value="FILE"),
)

AGENT: Final = Command(
    "agent",
    "talk to an agent",
    about="""\
  shoal agent chat shell '6 * 7'        one prompt, answered and done
  shoal agent chat scribe               a conversation; one line is one prompt
  shoal agent chat scribe --session s1  go on with a stored one

What the agent says goes to stdout, everything else to stderr.""",
    options=_WHERE,
    commands=(
        Command(
            "chat",
            "prompt an agent; approvals and questions are asked in the terminal",
            run="supervisor.cli.agent:chat",
            options=(
                Option("--session", "session to create or go on with", value="ID"),
                Option("--here", "work in the current directory, not in the agent's workspace"),
            ),
            operands=(
                Operand("ALIAS", "the agent"),
                Operand("PROMPT", "one prompt (default: the lines of stdin)", required=False,
                        many=True),
            ),
        ),
        Command(
            "list", "agents", run="supervisor.cli.agent:list_agents", options=LISTING_OPTIONS
        ),
        Command(
            "status", "sessions of agents", run="supervisor.cli.agent:status",
            options=LISTING_OPTIONS,
        ),
    ),
)  # fmt: skip

# The agents' part of `shoal config`.
CONFIG_COMMANDS: Final = (
    Command(
        "get",
        "a property of the agents' configuration, or all of it",
        run="supervisor.cli.agent:config_get",
        options=_WHERE,
        operands=(Operand("PROP", "such as `agents.scribe.model`", required=False),),
    ),
    Command(
        "set",
        "set properties of the agents' configuration, all or none",
        run="supervisor.cli.agent:config_set",
        options=_WHERE,
        operands=(
            Operand("PROP=VALUE", "a value that is JSON counts as such; `null` resets", many=True),
        ),
    ),
    Command(
        "list",
        "properties of the agents' configuration with their values",
        run="supervisor.cli.agent:config_list",
        options=(*_WHERE, *(option for option in LISTING_OPTIONS if option is not JSON_OPTION)),
        operands=(Operand("PREFIX", "only those that start with it", required=False),),
    ),
    Command(
        "validate",
        "check the agents' configuration; exit 1 when it is wrong",
        run="supervisor.cli.agent:config_validate",
        options=_WHERE,
    ),
)
