"""Building the host of an evaluator from configuration: the same for sessions and local runs.

The configuration is the snapshot of chapter 81 §6.3 as plain data. `apply_settings` installs what
lives in the evaluator itself: aliases and environment entries.

Failure: an alias or environment entry that cannot be installed is skipped and named in a warning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final

from worker.commands.adapters import load_catalog
from worker.commands.reef import Reef, user_file
from worker.evaluate.evaluator import Evaluator
from worker.evaluate.host import EchoMode, Host, Limits
from worker.language import ParseError, ast, parse
from worker.values.types import Value

_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def build_host(
    config: dict[str, Any],
    *,
    principal: str,
    limits: Limits,
    sink: Callable[[Value], None],
    echo: EchoMode,
    note: Callable[[str], None],
) -> Host:
    """The services of a new evaluator. Adapters that cannot be used are noted."""
    adapters = load_catalog(config, os.environ)
    for warning in adapters.warnings:
        note(f"warning: failed to load adapter: {warning}")
    return Host(
        adapters=adapters,
        sink=sink,
        echo=echo,
        config=config,
        principal=principal,
        limits=limits,
        stderr_note=note,
        reef=Reef(user_file(os.environ)),
    )


def apply_settings(evaluator: Evaluator, config: dict[str, Any]) -> list[str]:
    """Install `[env]` and `[aliases]`; returns the warnings."""
    warnings: list[str] = []
    for name, value in config.get("env", {}).items():
        if _ENV_NAME.match(name):
            evaluator.set_env(name.encode(), str(value).encode("utf-8", "surrogateescape"))
        else:
            warnings.append(f"env.{name}: not a variable name")
    for name, source in config.get("aliases", {}).items():
        text = f"alias {name} = {source}"
        try:
            program = parse(text)
            if len(program.stmts) != 1 or not isinstance(program.stmts[0], ast.Alias):
                warnings.append(f"aliases.{name}: not one command")
                continue
            evaluator.run_program(program, text)
        except ParseError as error:
            warnings.append(f"aliases.{name}: {error.message}")
    return warnings
