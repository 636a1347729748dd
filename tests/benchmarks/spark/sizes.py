"""How much is measured: the real sizes, a quick look, and a hint of one that shows that it runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """`rows` are read and written, `rows_one_by_one` where each is a Python object.

    `log_rows` of `keys` keys are conflated in a batch, `stream_rows` as fast as a stream can, and
    for `live_s` seconds a stream follows `live_rate` rows a second.
    """

    name: str
    repetitions: int
    rows: int
    rows_one_by_one: int
    keys: int
    log_rows: int
    stream_rows: int
    live_s: float
    live_rate: int

    @property
    def described(self) -> str:
        """For the report, where figures of all sizes have the same names."""
        return (
            f"{self.name}, {self.repetitions} repetitions, {self.rows:,} rows read and written "
            f"({self.rows_one_by_one:,} row by row), {self.log_rows:,} conflated in a log and "
            f"{self.stream_rows:,} in a stream, {self.keys:,} keys, live {self.live_rate:,} "
            f"rows/s for {self.live_s:.0f} s"
        )


FULL = Sizes("full", 5, 1_000_000, 500_000, 10_000, 10_000_000, 2_000_000, 30.0, 20_000)
QUICK = Sizes("quick", 3, 1_000_000, 200_000, 10_000, 1_000_000, 1_000_000, 15.0, 20_000)
TINY = Sizes("tiny", 1, 2_000, 500, 20, 5_000, 5_000, 2.0, 500)
