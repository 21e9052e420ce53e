"""The reference pages are up to date and complete."""

from __future__ import annotations

import pytest

from supervisor.cli.help import option_name
from supervisor.cli.registry import COMMANDS
from supervisor.config import KEYS
from supervisor.config.environment import OVERRIDES, PROCESS_VARIABLES
from tests.docs.reference import DOCS, refreshed, stale_pages

CLI = DOCS / "cli.md"
CONFIGURATION = DOCS / "configuration.md"


def test_generated_pages_and_blocks_are_what_the_registries_give() -> None:
    assert stale_pages(write=False) == []


@pytest.mark.parametrize("path", KEYS)
def test_every_key_is_on_the_configuration_page(path: str) -> None:
    assert f"| `{path}` |" in CONFIGURATION.read_text()


@pytest.mark.parametrize(
    "name", [*(override.variable for override in OVERRIDES), *PROCESS_VARIABLES]
)
def test_every_variable_is_on_the_configuration_page(name: str) -> None:
    assert f"`{name}`" in CONFIGURATION.read_text()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_and_option_is_on_the_command_page(command: object) -> None:
    from supervisor.cli.options import Command

    assert isinstance(command, Command)
    page = CLI.read_text()
    for part in (command, *command.commands):
        assert f"`shoal {part.path}`" in page
        for option in part.options:
            assert f"`{option_name(option)}`".replace("|", "\\|") in page
        for operand in part.operands:
            assert f"`{operand.name}`" in page


def test_stale_block_is_noticed() -> None:
    page = CONFIGURATION.read_text()
    damaged = page.replace("| `quotas.sessions` |", "| `quotas.sesions` |")
    assert damaged != page
    assert refreshed(damaged) == page
