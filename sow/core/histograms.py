"""Histograms: how long things took, as whole numbers of how many took at most so long.

Counted where something ends, a batch or a turn at a time and never a message at a time: a look
among sixteen bounds, two additions. The Prometheus form is made at each scrape. Nothing here reads
a clock.
"""

from bisect import bisect_left

BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
)  # fmt: skip
"""Bounds for everything measured here: from a dictionary lookup to a timeout. The same everywhere,
so that two figures can be compared."""


class Histogram:
    """How many took at most as long as each bound, and how long all of them took."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """By the first bound that is not less; the last is of those over all bounds."""
        self.sum_s = 0.0

    def note(self, took_s: float, times: int = 1) -> None:
        """So many took `took_s` seconds each."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += times
        self.sum_s += took_s * times

    def cumulative(self) -> list[tuple[str, float]]:
        """How many took at most so long, by the bound as Prometheus writes it."""
        total, found = 0, []
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
