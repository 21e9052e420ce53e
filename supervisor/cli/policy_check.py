"""Whether a policy file can be used, looked at before anything else starts.

A policy that is there but cannot be read or parsed is never replaced by a permissive one.

Failure: Failure that names the file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from supervisor.cli.failure import Failure


def check_policy(path: Path | None) -> None:
    if path is None:
        return
    try:
        tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise Failure(f"policy {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"policy {path}: {error}") from error
