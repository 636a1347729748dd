"""How much of edges and followers is measured: on two cores all of it ends in a quarter of an hour.

What takes longest is to connect thousands of clients, and to publish a million records.
"""

from typing import NamedTuple


class Sizes(NamedTuple):
    """`screens` follow over one edge and over two, the first of them being what the others are
    compared with; `frames` of a hundred messages are one repetition, one each `step_s` where a pace
    is kept. `crowd` connections are made over two edges. A follower copies `records`, and catches
    up with `updates`."""

    name: str
    repetitions: int
    screens: tuple[int, ...]
    frames: int
    step_s: float
    crowd: int
    crowd_frames: int
    rates: tuple[int, ...]
    seconds: float
    records: int
    updates: int
    ask_s: float
    """So long a query is asked again and again in one repetition."""


FULL = Sizes(
    "full",
    3,
    (10, 100, 500, 2000),
    40,
    0.04,
    10_000,
    10,
    (1000, 5000),
    4.0,
    1_000_000,
    400_000,
    0.2,
)
QUICK = Sizes("quick", 2, (10, 100, 500), 10, 0.04, 1000, 4, (1000,), 1.5, 100_000, 100_000, 0.05)
TINY = Sizes("tiny", 1, (2, 4), 2, 0.01, 6, 2, (500,), 0.2, 300, 300, 0.0)
