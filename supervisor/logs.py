"""Structured logs of the router: text or JSON lines with the keys of chapter 81 §11.

Text lines carry a timestamp unless the service manager adds one (then they start with the syslog
level). Source text and payloads never reach a record. Files rotate by size.

Failure: a log that cannot be written loses lines, never work.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, MutableMapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

_SYSLOG: Final = {"error": 3, "critical": 2, "warning": 4, "info": 6, "debug": 7}
_NAMES: Final = {"warning": "warn", "critical": "error"}
_LEVELS: Final = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}
Event = MutableMapping[str, Any]


class Sink:
    """Where lines go, and from which level on; both may change while the daemon runs."""

    # `_handler` is None for standard error. Replaced in `reopen` only.

    def __init__(self) -> None:
        self.level = logging.INFO
        self.format = "text"
        self._handler: RotatingFileHandler | None = None
        self._managed = bool(os.environ.get("JOURNAL_STREAM"))
        # Gets every record that is written, as its level and members.
        self.observer: Callable[[str, dict[str, Any]], None] | None = None

    def reopen(self, file: str | None, max_bytes: int, keep: int) -> None:
        old, self._handler = self._handler, None
        if file:
            handler = RotatingFileHandler(file, maxBytes=max_bytes, backupCount=keep)
            Path(file).chmod(0o600)
            handler.setFormatter(logging.Formatter("%(message)s"))
            self._handler = handler
        if old is not None:
            old.close()

    def write(self, line: str) -> None:
        if self._handler is not None:
            self._handler.emit(logging.makeLogRecord({"msg": line.replace("%", "%%"), "args": ()}))
            return
        try:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    def render(self, _logger: Any, method: str, event: Event) -> str:
        """The last processor: one line."""
        level = "error" if method == "exception" else method
        if self.observer is not None:
            self.observer(_NAMES.get(level, level), {"ts": _timestamp(), **event})
        fields = {key: value for key, value in event.items() if key != "event"}
        trace = fields.pop("exception", None)
        if trace is not None:
            fields["err"] = str(trace).strip().rsplit("\n", 1)[-1]
        if self.format == "json":
            record = {
                "ts": _timestamp(),
                "level": _NAMES.get(level, level),
                "event": event.get("event"),
                "pid": os.getpid(),
                "role": "router",
                **fields,
            }
            return msgspec.json.encode(record, enc_hook=str).decode()
        head = f"<{_SYSLOG[level]}>" if self._managed else f"{_timestamp()} "
        if not self._managed:
            head += f"{_NAMES.get(level, level).upper():<5} "
        return head + " ".join(
            [str(event.get("event"))]
            + [f"{key}={_text(value)}" for key, value in fields.items() if value is not None]
        )


SINK: Final = Sink()


def _timestamp() -> str:
    now = time.time_ns()
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1_000_000_000))
    return f"{whole}.{now // 1_000_000 % 1000:03d}Z"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    if text and all(char.isalnum() or char in "._-:/@%+" for char in text):
        return text
    return msgspec.json.encode(text).decode()


class _Printer:
    """What structlog hands finished lines to."""

    def msg(self, line: str) -> None:
        SINK.write(line)

    debug = info = warning = error = critical = exception = log = msg


def _drop_below(_logger: Any, method: str, event: Event) -> Event:
    level = getattr(logging, "ERROR" if method == "exception" else method.upper(), logging.INFO)
    if level < SINK.level:
        raise structlog.DropEvent
    return event


def configure(level: str, line_format: str, file: str | None, max_bytes: int, keep: int) -> None:
    """Set up logging, or change it on reload. Raises OSError for a file that cannot be opened."""
    SINK.reopen(file, max_bytes, keep)
    SINK.level = _LEVELS[level]
    SINK.format = line_format
    factory: Callable[..., _Printer] = lambda *_args: _Printer()  # noqa: E731
    structlog.configure(
        processors=[_drop_below, structlog.processors.format_exc_info, SINK.render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )


def toggle_debug(configured: str) -> None:
    """SIGUSR2: between debug and the configured level."""
    SINK.level = _LEVELS[configured] if SINK.level == logging.DEBUG else logging.DEBUG
