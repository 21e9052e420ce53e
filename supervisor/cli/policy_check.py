"""The policy file in effect, read before anything else starts.

A policy that is there but cannot be read or parsed is never replaced by a permissive one.

Failure: Failure that names the file and what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from leash.policy import PolicyError, PolicyFile, read
from supervisor.cli.failure import Failure


def check_policy(path: Path | None, environ: Mapping[str, str]) -> PolicyFile | None:
    """The policy of a file; None when there is no file."""
    if path is None:
        return None
    try:
        return read(path, environ.get("HOME"))
    except PolicyError as error:
        raise Failure(str(error)) from error
