"""The moments of an `Every`: of cron by its rules, of an interval from 1970 on, and never by a
clock."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.config.diagnostics import MistakeError
from sow.config.moments import moments
from tests.cases import all_cases

SECOND = 1_000_000


def us(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


@all_cases(
    ("every", "after", "next_"),
    [
        ("4h", "2026-03-05 01:00:00", "2026-03-05 04:00:00"),
        ("1s", "2026-03-05 01:00:00", "2026-03-05 01:00:01"),
        ("23:30", "2026-03-05 23:29:59", "2026-03-05 23:30:00"),
        ("23:30", "2026-03-05 23:30:00", "2026-03-06 23:30:00"),
        ("7:05", "2026-12-31 08:00:00", "2027-01-01 07:05:00"),
        ("Saturday at 00:30", "2026-03-05 08:00:00", "2026-03-07 00:30:00"),
        ("sun at 7:05", "2026-03-08 07:05:00", "2026-03-15 07:05:00"),
        ("*/15 * * * *", "2026-03-05 10:15:00", "2026-03-05 10:30:00"),
        ("5/20 * * * *", "2026-03-05 10:46:00", "2026-03-05 11:05:00"),
        ("0 9-17 * * MON-FRI", "2026-03-06 17:00:00", "2026-03-09 09:00:00"),
        ("0 0 1 jan *", "2026-03-05 00:00:00", "2027-01-01 00:00:00"),
        ("0 0 * * 7", "2026-03-05 00:00:00", "2026-03-08 00:00:00"),
        ("0 0 13 * 5", "2026-03-05 00:00:00", "2026-03-06 00:00:00"),
        ("0 0 29 2 *", "2096-03-01 00:00:00", "2104-02-29 00:00:00"),
    ],
)
def test_the_next_moment_is_the_first_after_a_time(every, after, next_):
    assert moments(every)(us(after)) == us(next_)


@all_cases(
    ("every", "said"),
    [
        ("sometimes", "names no moments"),
        ("Someday at 23:59", "names no moments"),
        ("Satur at 23:59", "names no moments"),
        (" at 23:59", "names no moments"),
        ("Saturday at 24:00", "names no moments"),
        ("MON,TUE at 23:59", "names no moments"),
        ("24:00", "names no moments"),
        ("500ms", "below the shortest interval"),
        ("0", "below the shortest interval"),
        ("60 * * * *", "is no minute"),
        ("* * 0 * *", "is no day of the month"),
        ("* * * foo *", "is no month"),
        ("*/0 * * * *", "is no minute"),
        ("5-1 * * * *", "is no minute"),
        ("0 0 31 2 *", "never comes"),
        ("* * * *", "names no moments"),
    ],
)
def test_what_names_no_moments_gets_a_sentence(every, said):
    with pytest.raises(MistakeError) as failure:
        moments(every)
    assert said in failure.value.message
    assert failure.value.instead


@given(st.sampled_from(["7s", "3:00", "*/7 3 * * *", "0 0 1,15 * 2"]), st.integers(0, 2**52))
def test_moments_rise_and_do_not_depend_on_where_one_begins(every, after_us):
    find = moments(every)
    next_us = find(after_us)
    assert next_us > after_us
    assert find((after_us + next_us) // 2) == next_us
    assert find(next_us - 1) == next_us
