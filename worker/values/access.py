"""Direct fields, indexing, and the structured output of outcomes (chapter 20 §4.1 to §4.4).

These are the parts that need no evaluator: the fallback from a field to a method, and the file
fields of a path (`read`, `size`, ...), are the caller's, on `field_missing`.

Failure: `field_missing` for an unknown field, `index_range` outside a list or str, `type_error` for
a pair that cannot be indexed, `cmd_failed` for the output of a failed outcome, `overflow` for a
duration that leads outside the years of datetimes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from worker.errors import Raised, field_missing, raised, type_error
from worker.values import paths, temporal
from worker.values.json_codec import from_json
from worker.values.types import (
    MISSING,
    DateTime,
    Duration,
    ErrorValue,
    Glob,
    LazyBytes,
    Outcome,
    Path,
    Value,
    type_name,
)

NowNs = Callable[[], int]


def missing_field(value: Value, name: str) -> Raised:
    """The error of a field that does not exist."""
    if type(value) is dict:
        return field_missing(f"missing field `{name}`")
    return field_missing(f"{type_name(value)} has no field `{name}`")


# --- outcomes -------------------------------------------------------------------------------------


def command_failure(outcome: Outcome) -> Raised:
    """The `cmd_failed` error of reading the output of an outcome that is not ok. Status and stderr
    stay on the outcome; the hint is the trimmed stderr text (chapter 30 §4)."""
    if outcome.signal is not None:
        what = f"died from {outcome.signal}"
    elif outcome.status is not None:
        what = f"exited with status {outcome.status}"
    else:
        what = "failed"
    hint = outcome.stderr.decode("utf-8", "replace").strip()
    return raised("cmd_failed", f"`{outcome.cmd}` {what}", hint=hint)


def stdout_text(outcome: Outcome) -> str:
    """The resident stdout as lossy text without one trailing newline. Loads nothing."""
    stdout = outcome.stdout
    data = stdout.preview if isinstance(stdout, LazyBytes) else stdout
    return data.decode("utf-8", "replace").removesuffix("\n")


def _decode(outcome: Outcome) -> Value:
    text = stdout_text(outcome)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return from_json(text, "stdout")
        except Raised:
            return text
    return text


def decoded_out(outcome: Outcome) -> Value:
    """`out` whether or not the outcome is ok: the structured value, else the decoded stdout."""
    if outcome.structured is not MISSING:
        return outcome.structured
    if outcome.decoded is MISSING:
        outcome.decoded = _decode(outcome)
    return outcome.decoded


def outcome_out(outcome: Outcome) -> Value:
    """`out` of an ok outcome. Raises cmd_failed for any other."""
    if not outcome.ok:
        raise command_failure(outcome)
    return decoded_out(outcome)


def _outcome_err(outcome: Outcome) -> bytes:
    if not outcome.ok:
        raise command_failure(outcome)
    return outcome.stderr


# --- fields ---------------------------------------------------------------------------------------

_Fields = dict[str, Callable[[Any], Value]]

_OUTCOME: Final[_Fields] = {
    "status": lambda outcome: outcome.status,
    "ok": lambda outcome: outcome.ok,
    "signal": lambda outcome: outcome.signal,
    "dur": lambda outcome: Duration(outcome.dur_ns),
    "pid": lambda outcome: outcome.pid,
    "cmd": lambda outcome: outcome.cmd,
    "stdout": lambda outcome: outcome.stdout,
    "stderr": lambda outcome: outcome.stderr,
    "out": outcome_out,
    "err": _outcome_err,
}
_ERROR: Final[_Fields] = {
    "code": lambda error: error.code,
    "msg": lambda error: error.msg,
    "hint": lambda error: error.hint,
    "stderr": lambda error: error.stderr,
    "status": lambda error: error.status,
}
_DATETIME: Final[_Fields] = {
    "year": lambda moment: temporal.fields(moment).year,
    "month": lambda moment: temporal.fields(moment).month,
    "day": lambda moment: temporal.fields(moment).day,
    "hour": lambda moment: temporal.fields(moment).hour,
    "minute": lambda moment: temporal.fields(moment).minute,
    "second": lambda moment: temporal.fields(moment).second,
}


def _parent(path: Path) -> Path | None:
    raw = paths.parent(path.raw)
    return None if raw is None else Path(raw)


_PATH: Final[_Fields] = {
    "name": lambda path: paths.name(path.raw),
    "stem": lambda path: paths.stem(path.raw),
    "ext": lambda path: paths.ext(path.raw),
    "parent": _parent,
}
_GLOB: Final[_Fields] = {"pattern": lambda glob: glob.pattern}

_FIELDS: Final[dict[type, _Fields]] = {
    Outcome: _OUTCOME,
    ErrorValue: _ERROR,
    DateTime: _DATETIME,
    Path: _PATH,
    Glob: _GLOB,
}


def _duration_field(value: Duration, name: str, now_ns: NowNs) -> Value:
    if name == "ago":
        return temporal.datetime_at(now_ns() - value.ns, temporal.system_zone())
    if name == "from_now":
        return temporal.datetime_at(now_ns() + value.ns, temporal.system_zone())
    raise missing_field(value, name)


def direct_field(value: Value, name: str, now_ns: NowNs = time.time_ns) -> Value:
    """The field of a value, without method fallback. `now_ns` is the clock of `ago`."""
    kind = type(value)
    if kind is dict:
        found = value.get(name, MISSING)
        if found is MISSING:
            raise missing_field(value, name)
        return found
    if kind is Duration:
        return _duration_field(value, name, now_ns)
    getters = _FIELDS.get(kind)
    getter = None if getters is None else getters.get(name)
    if getter is not None:
        return getter(value)
    if kind is Outcome:
        # Any other name is looked up in the output, which a failed outcome does not give.
        return direct_field(outcome_out(value), name, now_ns)
    raise missing_field(value, name)


# --- indexing -------------------------------------------------------------------------------------


def index_value(value: Value, index: Value) -> Value:
    """`value[index]` for list and str by int (negative from the end), record by str."""
    kind = type(value)
    if kind is list or kind is str:
        if type(index) is int:
            try:
                return value[index]
            except IndexError:
                what = "list" if kind is list else "string"
                raise raised("index_range", f"{what} index out of range") from None
    elif kind is dict and type(index) is str:
        return direct_field(value, index)
    raise type_error(f"cannot index {type_name(value)} with {type_name(index)}")
