"""Chapter 20 §1.1, §5.6, §6.5: calendar, zones, datetime texts."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.values.samples import SECOND, moment
from worker.errors import Raised
from worker.values import temporal
from worker.values.temporal import (
    NS_MAX,
    NS_MIN,
    civil_from_days,
    datetime_at,
    days_from_civil,
    days_in_month,
    fields,
    midnight,
    parse_datetime_text,
    rfc3339,
    zoned_text,
)
from worker.values.types import DateTime

# Text, the instant in UTC, the zone of the fields.
TEXTS: list[tuple[str, str, str]] = [
    ("2031-05-04T09:30[Asia/Tokyo]", "2031-05-04T00:30:00Z", "Asia/Tokyo"),
    ("2031-05-04T09:30+09:00[Asia/Tokyo]", "2031-05-04T00:30:00Z", "Asia/Tokyo"),
    ("2031-05-04T09:30Z[Asia/Tokyo]", "2031-05-04T09:30:00Z", "Asia/Tokyo"),
    ("2031-05-04[Asia/Tokyo]", "2031-05-03T15:00:00Z", "Asia/Tokyo"),
    ("2031-05-04T09:30[+05:30]", "2031-05-04T04:00:00Z", "+05:30"),
    ("2031-05-04T09:30[UTC]", "2031-05-04T09:30:00Z", "UTC"),
    ("2031-05-04T09:30+02:00[Asia/Tokyo]", "2031-05-04T07:30:00Z", "UTC"),
    ("2031-05-04T09:30Z[No/Such]", "2031-05-04T09:30:00Z", "UTC"),
    ("2031-05-04T09:30[No/Such]", "2031-05-04T00:00:00Z", "UTC"),
    ("2031-05-04T09:30Z", "2031-05-04T09:30:00Z", "UTC"),
    ("2031-05-04T09:30z", "2031-05-04T09:30:00Z", "UTC"),
    ("2031-05-04 09:30+02:00", "2031-05-04T07:30:00Z", "UTC"),
    ("2031-05-04t09:30:15-0330", "2031-05-04T13:00:15Z", "UTC"),
    ("2031-05-04T09:30:15+02", "2031-05-04T07:30:15Z", "UTC"),
    ("20310504T093015Z", "2031-05-04T09:30:15Z", "UTC"),
    ("20310504T0930Z", "2031-05-04T09:30:00Z", "UTC"),
    ("2031-05-04T09:30:15.5Z", "2031-05-04T09:30:15.5Z", "UTC"),
    ("2031-05-04T09:30:15,000000001Z", "2031-05-04T09:30:15.000000001Z", "UTC"),
    ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z", "UTC"),
    ("2031-05-04", "2031-05-04T00:00:00Z", "UTC"),
    ("20310504", "2031-05-04T00:00:00Z", "UTC"),
    ("2031-05-04T09:30", "2031-05-04T00:00:00Z", "UTC"),
    ("2028-02-29", "2028-02-29T00:00:00Z", "UTC"),
    ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z", "UTC"),
    ("-009999-01-01", "-009999-01-01T00:00:00Z", "UTC"),
    ("+002031-05-04", "2031-05-04T00:00:00Z", "UTC"),
    ("0000-03-01", "0000-03-01T00:00:00Z", "UTC"),
    # A time that is skipped moves forward, one that occurs twice is the earlier.
    ("2030-03-31T02:30[Europe/Berlin]", "2030-03-31T01:30:00Z", "Europe/Berlin"),
    ("2030-10-27T02:30[Europe/Berlin]", "2030-10-27T00:30:00Z", "Europe/Berlin"),
    ("2030-10-27T02:30+01:00[Europe/Berlin]", "2030-10-27T01:30:00Z", "Europe/Berlin"),
]


@pytest.mark.parametrize(("text", "instant", "zone"), TEXTS)
def test_datetime_texts(text: str, instant: str, zone: str) -> None:
    value = parse_datetime_text(text)
    assert value is not None
    assert rfc3339(value.ns) == instant
    assert temporal.zone_name(value.zone, value.ns) == zone


@pytest.mark.parametrize(
    "text",
    [
        "", "yesterday", "2031", "2031-05", "2031-5-4", "2031-13-01", "2031-00-01", "2031-02-29",
        "2031-04-31", "2031-05-04T", "2031-05-04T24:00Z", "2031-05-04T09:60Z", "2031-05-04T9:30Z",
        "2031-05-04T09:30:61Z", "2031-05-04T09:30:15.Z", "2031-05-04T09:30:15.1234567890Z",
        "2031-05-04T09:30+24:00", "2031-05-04T09:30+2:00", "2031-05-04Z", "2031-05-04T09:30Zx",
        "2031-05-04T09:30Z ", " 2031-05-04", "2031-05-04T09:30[]", "2031-05-04T09:30[UTC",
        "-000000-01-01", "+010000-01-01", "9999-12-31T23:59-01:00", "２031-05-04",
        "2031-05-04\n",
    ],
)  # fmt: skip
def test_texts_that_are_no_datetime(text: str) -> None:
    assert parse_datetime_text(text) is None


def test_fields_are_read_in_the_zone_of_the_value() -> None:
    value = moment("2031-05-04T23:30Z[Asia/Tokyo]")
    assert fields(value) == (2031, 5, 5, 8, 30, 0)
    assert fields(DateTime(value.ns, UTC)) == (2031, 5, 4, 23, 30, 0)


def test_zoned_text_shows_wall_clock_offset_and_zone() -> None:
    assert zoned_text(moment("2030-07-01T12:00[Europe/Berlin]")) == (
        "2030-07-01T12:00:00+02:00[Europe/Berlin]"
    )
    assert zoned_text(moment("2030-07-01T12:00:00.1Z")) == "2030-07-01T12:00:00.1+00:00[UTC]"


@pytest.mark.parametrize("text", ["-005000-06-15T12:00[Europe/Berlin]", "0001-01-01[Asia/Tokyo]"])
def test_zones_work_before_the_years_of_python(text: str) -> None:
    value = moment(text)
    assert f"{fields(value).year:05}" in (f"{-5000:05}", "00001")
    assert fields(value)[1:3] in ((6, 15), (1, 1))


def test_zones_work_at_the_end_of_the_years() -> None:
    value = moment("9999-07-01T12:00[Europe/Berlin]")
    assert rfc3339(value.ns) == "9999-07-01T10:00:00Z"
    assert fields(value).hour == 12


def test_the_supported_years_end_sharply() -> None:
    assert datetime_at(NS_MAX, UTC).ns == NS_MAX
    assert datetime_at(NS_MIN, UTC).ns == NS_MIN
    for ns in (NS_MAX + 1, NS_MIN - 1):
        with pytest.raises(Raised, match="datetime out of range") as caught:
            datetime_at(ns, UTC)
        assert caught.value.error.code == "overflow"


def test_midnight_is_the_start_of_the_local_day() -> None:
    assert midnight(moment("2031-05-04T23:30Z[Asia/Tokyo]")).ns == moment("2031-05-04T15:00Z").ns
    # The day of a clock change starts before the change.
    changed = moment("2030-03-31T12:00[Europe/Berlin]")
    assert rfc3339(midnight(changed).ns) == "2030-03-30T23:00:00Z"


def test_now_and_today_read_the_given_clock_in_the_system_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    now = temporal.now(20 * 3600 * SECOND)
    assert temporal.zone_name(now.zone, now.ns) == "Asia/Tokyo"
    assert rfc3339(temporal.today(20 * 3600 * SECOND).ns) == "1970-01-01T15:00:00Z"


@pytest.mark.parametrize(
    ("setting", "name"),
    [("", "UTC"), (":Asia/Tokyo", "Asia/Tokyo"), ("No/Such", "UTC"),
     ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo")],
)  # fmt: skip
def test_the_zone_variable_is_understood(
    setting: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", setting)
    assert temporal.zone_name(temporal.system_zone(), 0) == name


@given(st.dates())
def test_the_calendar_agrees_with_python_in_its_years(day: date) -> None:
    days = (day - date(1970, 1, 1)).days
    assert days_from_civil(day.year, day.month, day.day) == days
    assert civil_from_days(days) == (day.year, day.month, day.day)


@given(st.integers(-4_500_000, 3_000_000))
def test_the_calendar_is_consistent_in_all_years(days: int) -> None:
    year, month, day = civil_from_days(days)
    assert days_from_civil(year, month, day) == days
    assert 1 <= day <= days_in_month(year, month)


@given(st.integers(NS_MIN, NS_MAX))
def test_every_instant_reads_back_from_its_text(ns: int) -> None:
    value = parse_datetime_text(rfc3339(ns))
    assert value is not None
    assert value.ns == ns


@given(
    st.datetimes(min_value=datetime(1900, 1, 1)),
    st.sampled_from(["Asia/Tokyo", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"]),
)
def test_a_zoned_text_reads_back_with_its_zone(at: datetime, zone: str) -> None:
    text = at.replace(microsecond=0).isoformat() + f"[{zone}]"
    value = parse_datetime_text(text)
    assert value is not None
    again = parse_datetime_text(zoned_text(value))
    assert again is not None
    assert (again.ns, temporal.zone_name(again.zone, 0)) == (value.ns, zone)


def test_a_day_is_always_24_hours_of_nanoseconds() -> None:
    assert moment("2030-01-02").ns - moment("2030-01-01").ns == (
        timedelta(days=1) // timedelta(microseconds=1) * 1000
    )
