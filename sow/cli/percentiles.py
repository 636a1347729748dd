"""How long something took many times: the shortest, the middle, and what 99 of 100 kept to."""

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
    """Times in seconds, of so many `times` that were measured."""

    times: int
    min_s: float
    median_s: float
    p99_s: float

    @classmethod
    def of(cls, taken_s: Sequence[float]) -> Self:
        """Of at least one time."""
        sorted_s = sorted(taken_s)
        return cls(len(sorted_s), sorted_s[0], _rank(sorted_s, 0.5), _rank(sorted_s, 0.99))

    def row(self, what: str) -> dict[str, str]:
        """A row of a table with `SPREAD_COLUMNS`."""
        cells = map(duration, (self.median_s, self.p99_s, self.min_s))
        return {"what": what, "times": f"{self.times:,}"} | dict(
            zip(("median", "p99", "min"), cells, strict=True)
        )

    def document(self) -> dict[str, float]:
        """The same for programs."""
        figures_ms = {
            "min_ms": self.min_s * 1000,
            "median_ms": self.median_s * 1000,
            "p99_ms": self.p99_s * 1000,
        }
        return {"count": self.times} | {name: round(ms, 3) for name, ms in figures_ms.items()}


def _rank(sorted_s: Sequence[float], fraction: float) -> float:
    """The shortest time that so much of all do not exceed."""
    return sorted_s[max(0, math.ceil(fraction * len(sorted_s)) - 1)]
