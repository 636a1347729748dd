"""The embedded engine and the vectorised core say the same of the same log (Spark: tests/spark)."""

import pytest

from tests.conflated_topics.engines import (
    ROWS,
    book_levels,
    bus_positions,
    embedded,
    random_logs,
    recorded,
)


@pytest.mark.parametrize("interval_us", [100_000, 250_000, 1_000_000, 3_333_333])
def test_they_agree_on_random_logs(interval_us):
    log = random_logs(300)
    said = recorded(log, interval_us)
    assert said == embedded(log, interval_us)
    assert len(said) > 500


@pytest.mark.parametrize("interval_us", [100_000, 1_000_000])
def test_they_agree_on_recorded_order_books(recordings, interval_us):
    log = book_levels(recordings, ROWS)
    assert recorded(log, interval_us) == embedded(log, interval_us)


def test_they_agree_on_recorded_bus_positions(recordings):
    log = bus_positions(recordings)
    said = recorded(log, 600_000_000)
    assert said == embedded(log, 600_000_000)
    assert len(said) < len(log)
