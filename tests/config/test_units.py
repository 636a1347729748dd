import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.config.diagnostics import MistakeError
from sow.config.units import count, duration_us, size_bytes
from tests.cases import all_cases


@all_cases(
    ("text", "us"),
    [
        ("500us", 500),
        ("5ms", 5_000),
        ("1s", 1_000_000),
        ("1.5s", 1_500_000),
        ("30m", 1_800_000_000),
        ("2h", 7_200_000_000),
        ("1d", 86_400_000_000),
        ("1w", 604_800_000_000),
        ("0", 0),
        ("10 ms", 10_000),
    ],
)
def test_an_interval_is_read_as_microseconds(text, us):
    assert duration_us(text) == us


def test_nanoseconds_round_up_so_that_no_interval_becomes_nothing():
    assert duration_us("1ns") == 1
    assert duration_us("1001ns") == 2


@given(st.integers(0, 10**9), st.sampled_from(["us", "ms", "s"]))
def test_a_unit_is_a_thousand_times_the_one_below(number, unit):
    below = {"us": "ns", "ms": "us", "s": "ms"}[unit]
    assert duration_us(f"{number}{unit}") == duration_us(f"{number * 1000}{below}")


def test_a_bare_interval_is_refused_with_units_to_choose_from():
    with pytest.raises(MistakeError) as caught:
        duration_us("5")
    assert caught.value.message == "'5' has no unit"
    assert "5s, 5ms" in caught.value.instead


@pytest.mark.parametrize("text", ["5S", "5 parsecs", "-1s", "s", "1e3s", "", "1..2s", "٣s"])
def test_what_is_no_interval_is_refused(text):
    with pytest.raises(MistakeError):
        duration_us(text)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("100", 100),
        ("1K", 1024),
        ("1KB", 1024),
        ("1kb", 1024),
        ("1KiB", 1024),
        ("16MB", 16 * 1024**2),
        ("1.5G", 3 * 1024**3 // 2),
        ("2TiB", 2 * 1024**4),
        ("7B", 7),
    ],
)
def test_sizes_count_in_powers_of_1024(text, bytes_):
    assert size_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["1.5", "5XB", "-1", "MB", "1 2", "iB", "1iB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(MistakeError):
        size_bytes(text)


def test_counts_take_thousands_and_millions_in_either_case():
    assert [count(text) for text in ("7", "10k", "10K", "2M", "0.5m")] == [
        7,
        10_000,
        10_000,
        2_000_000,
        500_000,
    ]


@pytest.mark.parametrize("read", [duration_us, size_bytes, count])
def test_numbers_that_would_not_fit_are_refused(read):
    for text in ("9" * 30, "9" * 30 + "s", "9" * 5000):
        with pytest.raises(MistakeError):
            read(text)


@pytest.mark.parametrize("read", [duration_us, size_bytes, count])
@given(text=st.text() | st.from_regex(r"[0-9]{1,50}\.?[0-9]*[a-zA-Z]{0,3}", fullmatch=True))
def test_no_text_raises_anything_but_a_mistake(read, text):
    with contextlib.suppress(MistakeError):
        assert 0 <= read(text) <= 2**62
