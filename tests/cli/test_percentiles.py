"""What many times come to."""

from sow.cli.percentiles import Percentiles


def test_of_a_hundred_times_99_keep_to_the_last_but_one():
    found = Percentiles.of([number / 1000 for number in range(100, 0, -1)])
    assert found == (100, 0.001, 0.05, 0.099)


def test_one_time_is_all_of_them():
    assert Percentiles.of([0.25]) == (1, 0.25, 0.25, 0.25)


def test_for_people_and_for_programs():
    found = Percentiles.of([0.0012])
    assert found.row("durable") == {
        "what": "durable", "median": "1.2 ms", "p99": "1.2 ms", "min": "1.2 ms", "times": "1",
    }  # fmt: skip
    assert found.document() == {"count": 1, "min_ms": 1.2, "median_ms": 1.2, "p99_ms": 1.2}
