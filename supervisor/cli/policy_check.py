"""The policy file in effect, read before anything else starts.

A policy that is there but cannot be read or parsed is never replaced by a permissive one.

Failure: Failure that names the file and what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from leash.policy import PolicyError, PolicyFile, read
from supervisor.cli.failure import Failure
from supervisor.paths import Paths
from supervisor.policies import Policies


def check_policy(path: Path | None, environ: Mapping[str, str]) -> PolicyFile | None:
    """The policy of a file; None when there is no file."""
    if path is None:
        return None
    try:
        return read(path, environ.get("HOME"))
    except PolicyError as error:
        raise Failure(str(error)) from error


def policies_in_effect(paths: Paths) -> tuple[Policies, tuple[str, ...]]:
    """What is in force for work of the local human without a kernel, and the warnings about it."""
    expected = None if paths.config_dir is None else paths.config_dir / "leash.toml"
    policies = Policies(f"uid:{os.geteuid()}", expected)
    try:
        return policies, policies.load(paths.policy)
    except PolicyError as error:
        raise Failure(str(error)) from error
