"""Instants, zones, calendar and datetime texts (chapter 20 §1.1, §5.6, §6.5).

An instant is a count of nanoseconds since 1970-01-01T00:00:00Z. The proleptic Gregorian calendar
here covers the years -9999 .. 9999, more than Python's `datetime`, which is used only to ask a zone
for its offset.

Failure: `datetime_at` raises `overflow` outside those years; `parse_datetime_text` returns None for
text that is no datetime.
"""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from worker.errors import overflow
from worker.values.types import DateTime

NS_PER_S: Final = 10**9
_DAY_S: Final = 86_400
_CYCLE_DAYS: Final = 146_097  # days of 400 Gregorian years, after which the calendar repeats
_CYCLE_S: Final = _CYCLE_DAYS * _DAY_S
YEAR_MIN: Final = -9999
YEAR_MAX: Final = 9999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Python's datetimes must keep a day of distance from the ends of their range (years 1 .. 9999).
_PYTHON_MIN_S: Final = -62_135_596_800 + 2 * _DAY_S
_PYTHON_MAX_S: Final = 253_402_300_799 - 2 * _DAY_S


class CivilTime(NamedTuple):
    """Calendar fields of an instant in one zone."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a Gregorian date of any year."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _CYCLE_DAYS + day_of_era - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """The Gregorian (year, month, day) of a count of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, _CYCLE_DAYS)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + (3 if shifted_month < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day


NS_MIN: Final = days_from_civil(YEAR_MIN, 1, 1) * _DAY_S * NS_PER_S
NS_MAX: Final = (days_from_civil(YEAR_MAX + 1, 1, 1) * _DAY_S) * NS_PER_S - 1


def days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def datetime_at(ns: int, zone: tzinfo) -> DateTime:
    """The datetime of an instant, checked against the supported years."""
    if NS_MIN <= ns <= NS_MAX:
        return DateTime(ns, zone)
    raise overflow(f"datetime out of range (years {YEAR_MIN} to {YEAR_MAX})")


# --- zones ----------------------------------------------------------------------------------------


def offset_s(seconds: int, zone: tzinfo) -> int:
    """The zone's offset from UTC, in seconds, at an instant given in Unix seconds.

    Beyond Python's years the rules of the same day in another 400-year cycle answer.
    """
    if zone is UTC:
        return 0
    while seconds > _PYTHON_MAX_S:
        seconds -= _CYCLE_S
    # Every zone has local mean time before 1800, so any early instant answers for all earlier ones.
    seconds = max(seconds, _PYTHON_MIN_S)
    moment = (_EPOCH + timedelta(seconds=seconds)).astimezone(zone)
    offset = moment.utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


def _local_offset_s(local_seconds: int, zone: tzinfo) -> int:
    """The offset in force at a wall-clock time, given as if it were UTC.

    A time that occurs twice takes the earlier instant; one that is skipped moves forward.
    """
    if zone is UTC:
        return 0
    while local_seconds > _PYTHON_MAX_S:
        local_seconds -= _CYCLE_S
    local_seconds = max(local_seconds, _PYTHON_MIN_S)
    wall = (_EPOCH + timedelta(seconds=local_seconds)).replace(tzinfo=zone)
    offset = wall.utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


@lru_cache(maxsize=64)
def _zone_named(name: str) -> tzinfo | None:
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def fixed_zone(offset_seconds: int) -> tzinfo:
    return UTC if offset_seconds == 0 else timezone(timedelta(seconds=offset_seconds))


def _system_zone_name() -> str | None:
    setting = os.environ.get("TZ")
    if setting is not None:
        name = setting.removeprefix(":")
        return name.partition("zoneinfo/")[2] if name.startswith("/") else name or "UTC"
    try:
        target = os.path.realpath("/etc/localtime")
        if "zoneinfo/" in target:
            return target.partition("zoneinfo/")[2]
        return FilePath("/etc/timezone").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def system_zone() -> tzinfo:
    """The zone of the machine: `TZ`, else /etc/localtime; UTC when neither names a known zone."""
    name = _system_zone_name()
    return (_zone_named(name) if name else None) or UTC


def zone_name(zone: tzinfo, at_ns: int) -> str:
    """The name of a zone as written in brackets: `UTC`, `Asia/Tokyo`, `+05:30`."""
    if zone is UTC:
        return "UTC"
    key = getattr(zone, "key", None)
    return key if isinstance(key, str) else _offset_text(offset_s(at_ns // NS_PER_S, zone))


def now(now_ns: int | None = None) -> DateTime:
    """The current instant (or the given one) in the system zone."""
    return DateTime(time.time_ns() if now_ns is None else now_ns, system_zone())


def midnight(moment: DateTime) -> DateTime:
    """The start of the day of `moment` in its own zone."""
    local = moment.ns // NS_PER_S + offset_s(moment.ns // NS_PER_S, moment.zone)
    local -= local % _DAY_S
    return DateTime((local - _local_offset_s(local, moment.zone)) * NS_PER_S, moment.zone)


def today(now_ns: int | None = None) -> DateTime:
    """Midnight of the current day in the system zone."""
    return midnight(now(now_ns))


# --- fields and texts -----------------------------------------------------------------------------


def civil(seconds: int) -> CivilTime:
    """Calendar fields of Unix seconds, in UTC."""
    days, rest = divmod(seconds, _DAY_S)
    hour, rest = divmod(rest, 3600)
    minute, second = divmod(rest, 60)
    return CivilTime(*civil_from_days(days), hour, minute, second)


def fields(moment: DateTime) -> CivilTime:
    """Calendar fields of a datetime, read in its zone."""
    seconds = moment.ns // NS_PER_S
    return civil(seconds + offset_s(seconds, moment.zone))


def _civil_text(seconds: int, nanos: int) -> str:
    at = civil(seconds)
    year = f"{at.year:04}" if at.year >= 0 else f"-{-at.year:06}"
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{year}-{at.month:02}-{at.day:02}T{at.hour:02}:{at.minute:02}:{at.second:02}{fraction}"


def rfc3339(ns: int) -> str:
    """The instant in UTC with `Z` and the shortest fraction: `2031-01-02T03:04:05.25Z`."""
    seconds, nanos = divmod(ns, NS_PER_S)
    return _civil_text(seconds, nanos) + "Z"


def _offset_text(offset: int) -> str:
    sign = "-" if offset < 0 else "+"
    hours, rest = divmod(abs(offset), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{sign}{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")


def zoned_text(moment: DateTime) -> str:
    """Wall-clock time, offset and zone: `2031-05-04T09:30:00+09:00[Asia/Tokyo]`."""
    seconds, nanos = divmod(moment.ns, NS_PER_S)
    offset = offset_s(seconds, moment.zone)
    zone = zone_name(moment.zone, moment.ns)
    return f"{_civil_text(seconds + offset, nanos)}{_offset_text(offset)}[{zone}]"


_DATETIME: Final = re.compile(
    r"""(?P<year>[0-9]{4}|[+-][0-9]{6})
        (?:-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})|(?P<month_b>[0-9]{2})(?P<day_b>[0-9]{2}))
        (?:[Tt\x20]
           (?P<hour>[0-9]{2})
           (?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?
             |(?P<minute_b>[0-9]{2})(?:(?P<second_b>[0-9]{2})(?:[.,](?P<fraction_b>[0-9]{1,9}))?)?
           )?
           (?P<offset>[Zz]|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?)?
        )?
        (?:\[(?P<zone>[^\[\]]+)\])?\Z""",
    re.VERBOSE | re.ASCII,
)
_OFFSET: Final = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?\Z", re.ASCII)


def _parse_offset(text: str) -> int | None:
    match = _OFFSET.match(text)
    if match is None:
        return None
    hours, minutes, seconds = int(match[2]), int(match[3] or 0), int(match[4] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    total = hours * 3600 + minutes * 60 + seconds
    return -total if match[1] == "-" else total


class _Parsed(NamedTuple):
    """A datetime text taken apart. `local_s` is the wall-clock time read as if it were UTC."""

    local_s: int
    nanos: int
    date_s: int
    zulu: bool
    offset: int | None
    zone: str | None


def _take_apart(text: str) -> _Parsed | None:
    match = _DATETIME.match(text)
    if match is None:
        return None
    part = match.groupdict()
    year_text = part["year"]
    year = int(year_text)
    month, day = int(part["month"] or part["month_b"]), int(part["day"] or part["day_b"])
    if year_text == "-000000" or not YEAR_MIN <= year <= YEAR_MAX:
        return None
    if not 1 <= month <= 12 or not 1 <= day <= days_in_month(year, month):
        return None
    hour = int(part["hour"] or 0)
    minute = int(part["minute"] or part["minute_b"] or 0)
    second = int(part["second"] or part["second_b"] or 0)
    if hour > 23 or minute > 59 or second > 60:
        return None
    date_s = days_from_civil(year, month, day) * _DAY_S
    offset_text = part["offset"]
    zulu = offset_text in ("Z", "z")
    offset = 0 if zulu else None
    if offset_text and not zulu:
        offset = _parse_offset(offset_text)
        if offset is None:
            return None
    return _Parsed(
        local_s=date_s + hour * 3600 + minute * 60 + min(second, 59),
        nanos=int((part["fraction"] or part["fraction_b"] or "0").ljust(9, "0")),
        date_s=date_s,
        zulu=zulu,
        offset=offset,
        zone=part["zone"],
    )


def _in_bracketed_zone(parsed: _Parsed) -> DateTime | None:
    """Form 1: the zone in brackets reads the wall clock, unless the text contradicts it."""
    if parsed.zone is None:
        return None
    bracket_offset = _parse_offset(parsed.zone)
    if bracket_offset is not None:
        zone: tzinfo | None = fixed_zone(bracket_offset)
    else:
        zone = _zone_named(parsed.zone)
    if zone is None:
        return None
    if parsed.zulu:
        seconds = parsed.local_s
    elif parsed.offset is None:
        seconds = parsed.local_s - _local_offset_s(parsed.local_s, zone)
    else:
        seconds = parsed.local_s - parsed.offset
        if offset_s(seconds, zone) != parsed.offset:
            return None
    ns = seconds * NS_PER_S + parsed.nanos
    return DateTime(ns, zone) if NS_MIN <= ns <= NS_MAX else None


def parse_datetime_text(text: str) -> DateTime | None:
    """The three forms of chapter 20 §5.6, tried in order: zoned, with an offset, a date."""
    parsed = _take_apart(text)
    if parsed is None:
        return None
    zoned = _in_bracketed_zone(parsed)
    if zoned is not None:
        return zoned
    if parsed.offset is not None:
        ns = (parsed.local_s - parsed.offset) * NS_PER_S + parsed.nanos
        return DateTime(ns, UTC) if NS_MIN <= ns <= NS_MAX else None
    return DateTime(parsed.date_s * NS_PER_S, UTC)
