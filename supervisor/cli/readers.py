"""Readers of option values: text in, value out.

Failure: ValueError with the text for the user.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

from supervisor.cli.options import Reader

_SPAN: Final = re.compile(r"(\d+)(ns|us|ms|s|m|h|d|w)")
_SPAN_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 604_800_000_000_000,
}


def unsigned(text: str) -> int:
    """A reader for numbers from 0."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise ValueError(f"expected a non-negative integer, got `{text}`")
    return int(text)


def one_of(*allowed: str) -> Reader:
    """A reader for one of some words."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be {', '.join(allowed[:-1])} or {allowed[-1]}, got `{text}`")
        return text

    return read


def read_time(text: str) -> int:
    """Unix nanoseconds from a number of them, an RFC 3339 time, or a span before now."""
    if text.isascii() and text.isdigit():
        return int(text)
    span = _SPAN.fullmatch(text)
    if span:
        return time.time_ns() - int(span[1]) * _SPAN_NS[span[2]]
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.astimezone()
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000


def read_status(text: str) -> bool:
    if text not in ("ok", "failed"):
        raise ValueError("status must be ok|failed")
    return text == "ok"


def read_limit(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("invalid limit")
    return int(text)


def read_ttl(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("--ttl requires seconds")
    if int(text) == 0:
        raise ValueError("--ttl must be greater than 0")
    return int(text)
