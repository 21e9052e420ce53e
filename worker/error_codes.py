"""Every code an error of the language can have, with what it means (chapter 30 §16.2).

Programs branch on codes, so the list is closed: a test looks at everything in this package that
raises, and fails for a code that is not here and for one here that nothing raises.

Failure: none; this is data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CODES: Final[Mapping[str, Mapping[str, str]]] = {
    "Names, types and arguments": {
        "undefined_var": "A name that is bound to nothing, in an expression.",
        "type_error": (
            "A value of the wrong type for an operator, a method, an argument, a condition or an "
            "assignment."
        ),
        "arg_error": (
            "Too many, too few, unknown or unreadable arguments; text that cannot be parsed; a "
            "directory that cannot be entered."
        ),
        "field_missing": "A value has no such field, method or member.",
        "index_range": "An index lies outside of the list or string.",
    },
    "Numbers and control": {
        "div_zero": "Division of an int, size or duration by zero, or its remainder.",
        "overflow": "A number, size, duration or point in time left its range.",
        "recursion_limit": "Too many calls, or programs, inside each other.",
        "assert_failed": "An assertion did not hold.",
        "cancelled": "The evaluation was cancelled; no program can catch this one.",
    },
    "Commands, files and text": {
        "cmd_failed": (
            "A command failed where nothing looks at its outcome, or the output of a failed one "
            "was read."
        ),
        "not_found": "A program, file, directory, plan, secret or content does not exist.",
        "spawn_denied": "The program is none of those this principal may start.",
        "leash_denied": "The policy does not grant what was about to happen.",
        "lost_value": "A value did not survive the end of the worker that held it.",
        "permission": "The secret store or the name of a secret cannot be used.",
        "io_error": "A script, module, watched file or stored content cannot be read.",
        "parse_error": "Sourced, loaded or explained text is not of the language.",
        "utf8_error": "Bytes that had to be text are not valid UTF-8.",
        "no_matches": "Nothing is left to remove.",
        "feed_error": "A value that never goes to the input of a program was fed to one.",
        "runner_not_found": "Nothing knows how to run a script file.",
        "stale_undo": "What should be undone has changed since.",
        "net_error": "An HTTP exchange failed.",
    },
    "Streams and channels": {
        "stream_consumed": "Another stage or sink has taken the stream already.",
        "stream_unbounded": "A stream without end was to be read to its end.",
        "timeout": "No event came in time.",
        "channel_closed": "The session ended while an event was awaited.",
    },
    "Tools": {
        "reef_unlocked": "A constrained tool has no lock entry.",
        "reef_drift": "The file of a locked tool has changed.",
        "reef_conflict": "Scopes disagree about a tool or a provider.",
        "reef_not_found": "Nothing provides a constrained tool, or there is no manifest.",
        "reef_provider": "A provider failed, or a manifest cannot be read.",
    },
    "Everything else": {
        "custom": (
            "What the system refused, control flow outside of its construct, memory that ran out, "
            "and whatever has no code of its own."
        ),
    },
}

ALL: Final = frozenset(code for group in CODES.values() for code in group)
