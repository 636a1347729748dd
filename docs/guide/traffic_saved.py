"""What conflation saves: a recorded log beside its conflated copies, as bars of text.

    python docs/guide/traffic_saved.py LOG.parquet DIRECTORY

LOG is a recorded file with a column `ts`; each directory inside DIRECTORY holds the output of a
pipeline that conflated it, named by its interval. `sow pipeline run` makes them from
docs/guide/recorded.xml. Needs nothing but what the server needs.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

WIDTH = 50
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 1_000, "ns": 1}
UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


class Traffic(NamedTuple):
    """What was sent: rows in all, and in the busiest second."""

    name: str
    rows: int
    peak: int


def traffic(name: str, files: list[Path], time: str) -> Traffic:
    """The traffic in some Parquet files by their column of times."""
    counts: dict[int, int] = {}
    for file in files:
        column = pyarrow.parquet.read_table(file, columns=[time])[time]
        second = 10**9 // NANOSECONDS[column.type.unit]
        found, rows = np.unique(np.asarray(column.cast(pa.int64())) // second, return_counts=True)
        for at, count in zip(found.tolist(), rows.tolist(), strict=True):
            counts[at] = counts.get(at, 0) + count
    return Traffic(name, sum(counts.values()), max(counts.values(), default=0))


def length_s(interval: str) -> float:
    """How long an interval such as 100ms is, to sort by."""
    number = interval.rstrip("abcdefghijklmnopqrstuvwxyz")
    return float(number) * UNITS_S[interval.removeprefix(number)]


def chart(log: Traffic, copies: list[Traffic]) -> str:
    """A bar for each, as long as its share of the log."""
    lines = [f"{'':>8}  {'rows':>10}  {'peak/s':>7}   saved"]
    for one in (log, *copies):
        bar = "█" * max(1, round(WIDTH * one.rows / log.rows))
        saved = 1 - one.rows / log.rows
        lines.append(f"{one.name:>8}  {one.rows:>10,}  {one.peak:>7,}  {saved:>6.1%}  {bar}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the chart."""
    if len(arguments) != 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    log, directory = map(Path, arguments)
    outputs = {
        copy.name: sorted(copy.glob("*.parquet")) for copy in directory.iterdir() if copy.is_dir()
    }
    copies = [
        traffic(name, outputs[name], "window_end")
        for name in sorted(outputs, key=length_s)
        if outputs[name]
    ]
    sys.stdout.write(f"{chart(traffic('log', [log], 'ts'), copies)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
