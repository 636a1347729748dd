"""The part `capacity` of docs/scaling.md: figures of docs/performance.md that size a system."""

import re
from pathlib import Path

PERFORMANCE = Path(__file__).parents[2] / "docs" / "performance.md"
ROWS = {
    "ingest, frames of 100": "all that one primary takes, without followers of its own",
    "fan-out to 1,000": "a screen, of those with equal subscriptions, for a frame of 30 KB",
    "500 follow 10,000 keys at 1 s": "500 screens of 10,000 rows at 10,000 updates a second",
    "10,000 follow 100 keys at 1 s": "10,000 screens of 100 rows, all equal",
    "an idle session": "memory of a connection",
    "memory": "memory of a record, on the primary and on each follower",
    "restart, journal only": "a start of 1,000,000 records without a checkpoint",
    "restart of 2,000,000 beside 1,000,000": "a start with one, for each record",
}
"""Rows of the page, and what they size."""


def table() -> str:
    """What was measured of each row, beside what it is without."""
    lines = [_row(row, meaning) for row, meaning in ROWS.items()]
    return "\n".join(["| what | row | measured | beside |", "| --- | --- | ---: | ---: |", *lines])


def _row(row: str, meaning: str) -> str:
    found = re.search(rf"^\| {re.escape(row)} \| (.*) \|$", PERFORMANCE.read_text(), re.M)
    assert found is not None, f"docs/performance.md has no row {row}"
    measured, _aim, floor, *_ = found[1].split(" | ")
    return f"| {meaning} | {row} | {measured} | {floor} |"
