"""How much is measured: the real sizes, a quick look, and a hint of one for the smoke test."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """`messages` is what one repetition publishes in frames of many, `singles` in frames of one.

    `restarts` are so many records of topics that a server is started with, one after the other.
    `fan_out` pairs a number of subscribers with how many frames of 100 each of them is sent.
    """

    name: str
    repetitions: int
    keys: int
    messages: int
    singles: int
    frame_sizes: tuple[int, ...]
    records: int
    fan_out: tuple[tuple[int, int], ...]
    filters: tuple[int, ...]
    conflated_updates: int
    pattern_topics: int
    restarts: tuple[int, ...]


FULL = Sizes(
    name="full",
    repetitions=5,
    keys=100_000,
    messages=200_000,
    singles=40_000,
    frame_sizes=(1, 100, 1000),
    records=1_000_000,
    fan_out=((1, 1000), (100, 200), (1000, 50)),
    filters=(1000, 5000),
    conflated_updates=500_000,
    pattern_topics=100_000,
    restarts=(1_000_000, 2_000_000, 4_000_000),
)
QUICK = Sizes(
    name="quick",
    repetitions=3,
    keys=10_000,
    messages=40_000,
    singles=5_000,
    frame_sizes=(1, 100, 1000),
    records=100_000,
    fan_out=((1, 200), (100, 50), (1000, 10)),
    filters=(1000, 5000),
    conflated_updates=100_000,
    pattern_topics=10_000,
    restarts=(100_000, 200_000),
)
TINY = Sizes(
    name="tiny",
    repetitions=1,
    keys=200,
    messages=200,
    singles=20,
    frame_sizes=(1, 100),
    records=500,
    fan_out=((3, 4),),
    filters=(10,),
    conflated_updates=1_000,
    pattern_topics=100,
    restarts=(500, 1_000),
)
