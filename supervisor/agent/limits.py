"""Limits of the agent endpoint that no configuration changes (chapter 70 §3.2).

Failure: none.
"""

from __future__ import annotations

from typing import Final

FRAME_BYTES_MAX: Final = 8_388_608
FRAME_TIME_S: Final = 30.0
INITIALIZE_TIME_S: Final = 30.0
WRITE_STALL_S: Final = 30.0
REFUSAL_NOTICES_MAX: Final = 16
OUTGOING_FRAMES_MAX: Final = 64
SERVER_REQUESTS_MAX: Final = 64
PARKED_FRAMES_MAX: Final = 256

QUEUED_TURNS_MAX: Final = 32
SLOT_WAIT_S: Final = 30.0
CANCEL_GRACE_S: Final = 5.0
DRAIN_S: Final = 5.5
RELOAD_PAUSE_S: Final = 0.2
LIST_ROWS_MAX: Final = 1000
LIST_ROWS_DEFAULT: Final = 100

CHUNK_TEXT_BYTES_MAX: Final = 64 * 1024
RAW_OUTPUT_BYTES_MAX: Final = 256 * 1024
STORED_TOOL_BYTES_MAX: Final = 16 * 1024
SUMMARY_CHARS_MAX: Final = 500
APPROVAL_S: Final = 120

FILE_BYTES_MAX: Final = 10_485_760
FILES_BYTES_MAX: Final = 20_971_520
FILE_NAME_BYTES_MAX: Final = 255
UPLOAD_CHUNK_BYTES: Final = 1_048_576
UPLOADS_PER_CONNECTION_MAX: Final = 4
STAGING_BYTES_MAX: Final = 256 * 1024 * 1024
UPLOAD_IDLE_S: Final = 300.0
UPLOAD_SWEEP_S: Final = 60.0
DIR_ENTRIES_MAX: Final = 10_000
SETS_MAX: Final = 256

LOG_SUBSCRIPTIONS_MAX: Final = 8
LOG_RING_EVENTS_MAX: Final = 2048
LOG_RING_BYTES_MAX: Final = 4 * 1024 * 1024

TRUNCATED: Final = "…[truncated]"


def cut(text: str, limit: int) -> str:
    """The text within `limit` UTF-8 bytes, cut at a code point, with the mark at its end."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    room = limit - len(TRUNCATED.encode())
    return data[:room].decode("utf-8", "ignore") + TRUNCATED
