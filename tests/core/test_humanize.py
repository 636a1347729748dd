"""Quantities in a word or two."""

import pytest

from sow.core.humanize import counted, duration, size


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 records"), (1, "1 record"), (2000, "2,000 records")]
)
def test_counts(count, said):
    assert counted(count, "record") == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (20 * 1024**2, "20 MiB"),
     (5000 * 1024**4, "5,000 TiB")],
)  # fmt: skip
def test_sizes(count, said):
    assert size(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 ms"), (0.00034, "0.34 ms"), (0.035, "35 ms"), (2.5, "2.5 s"), (90, "90.0 s"),
     (180, "3 min"), (7200, "2 h"), (3 * 86400, "3 d")],
)  # fmt: skip
def test_durations(seconds, said):
    assert duration(seconds) == said
