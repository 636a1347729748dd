"""The shortest, median and 99th percentile of repeated times."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

from sow.cli.tables import Column
from sow.core.humanize import duration

SPREAD_COLUMNS = (
    Column("what"),
    Column("median", is_number=True),
    Column("p99", is_number=True),
    Column("min", is_number=True),
    Column("times", is_number=True),
)


class Percentiles(NamedTuple):
    """A summary of `times` measured times, in seconds."""

    times: int
    min_s: float
    median_s: float
    p99_s: float

    @classmethod
    def of(cls, taken_s: Sequence[float]) -> Self:
        """The summary of at least one time."""
        sorted_s = sorted(taken_s)
        return cls(len(sorted_s), sorted_s[0], _rank(sorted_s, 0.5), _rank(sorted_s, 0.99))

    def row(self, what: str) -> dict[str, str]:
        """This summary as a row of a table with `SPREAD_COLUMNS`."""
        cells = map(duration, (self.median_s, self.p99_s, self.min_s))
        return {"what": what, "times": f"{self.times:,}"} | dict(
            zip(("median", "p99", "min"), cells, strict=True)
        )

    def document(self) -> dict[str, float]:
        """This summary as JSON."""
        figures_ms = {
            "min_ms": self.min_s * 1000,
            "median_ms": self.median_s * 1000,
            "p99_ms": self.p99_s * 1000,
        }
        return {"count": self.times} | {name: round(ms, 3) for name, ms in figures_ms.items()}


def _rank(sorted_s: Sequence[float], fraction: float) -> float:
    """The shortest time that this share of all does not exceed."""
    return sorted_s[max(0, math.ceil(fraction * len(sorted_s)) - 1)]
