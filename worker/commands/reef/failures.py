"""The errors of tool resolution (chapter 41 §B10).

Failure: this module only describes failures.
"""

from __future__ import annotations

from worker.errors import Raised, raised
from worker.values.types import display_name


def reef_error(code: str, msg: str, hint: str | None = None) -> Raised:
    return raised(code, msg, hint=hint)


def unlocked(name: str, constraint: object) -> Raised:
    return reef_error(
        "reef_unlocked",
        f"{name} is constrained ({constraint}) but not locked",
        "run `reef lock` to resolve and lock it",
    )


def drift(name: str, found: str, locked: str) -> Raised:
    return reef_error(
        "reef_drift",
        f"{name}: on-disk hash {found[:12]} != locked {locked[:12]}",
        "run `reef lock --refresh`",
    )


def no_candidate(name: str, constraint: object) -> Raised:
    return reef_error(
        "reef_not_found",
        f"no candidate for {name} satisfying {constraint}",
        f"try `reef fetch {name}`",
    )


def locked_file_unreadable(name: str, constraint: object) -> Raised:
    return reef_error(
        "reef_not_found",
        f"no candidate for {name} satisfying {constraint}",
        "run `reef lock --refresh`",
    )


def provider_failure(msg: str) -> Raised:
    return reef_error("reef_provider", msg)


def hashing_failure(path: str, error: OSError) -> Raised:
    return provider_failure(f"hashing {display_name(path)}: {error.strerror or error}")


def as_note(error: Raised) -> str:
    """A tool error inside a value: `CODE: message (hint)`."""
    text = f"{error.error.code}: {error.error.msg}"
    return f"{text} ({error.error.hint})" if error.error.hint else text
