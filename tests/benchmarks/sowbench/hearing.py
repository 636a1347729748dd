"""What a follower heard, beside what was published: nothing lost, twice, out of order or altered.

Lateness counts from the moment that was meant for an update, whether the publisher could keep to
it or not. Under conflation it is that of the first update that a line stands for.
"""

from collections.abc import Sequence
from itertools import repeat
from math import inf
from typing import NamedTuple

from tests.benchmarks.sowbench.load import RECORD, RECORD_BYTES_MAX, Load

QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.99": 0.9999}


class Verdict(NamedTuple):
    """What is wrong: updates never heard, heard twice, older than one heard before, unlike what was
    published, and records whose last state is not the last that was published."""

    missing: int = 0
    repeated: int = 0
    disordered: int = 0
    altered: int = 0
    stale: int = 0

    def words(self) -> str:
        """In words; nothing if all is well."""
        return ", ".join(f"{count} {name}" for name, count in self._asdict().items() if count)


class Heard:
    """Of one follower, which wants all records or those of some symbols."""

    def __init__(self, load: Load, symbols: Sequence[str] = ()) -> None:
        self._load = load
        self._bodies = [body for _, body in load.records()]
        numbers = {int(symbol[1:]) for symbol in symbols}
        self._wanted = {
            key: n
            for key, n in load.newest().items()
            if not numbers or key % load.symbols in numbers
        }
        self._last = dict.fromkeys(self._wanted, -1)
        self._rest = b""
        self.numbers: list[int] = []
        self.heard_s: list[float] = []
        self.bytes = self.altered = 0

    def take(self, piece: bytes, now_s: float) -> None:
        """Bytes as they came; a record may be cut."""
        data, end = self._rest + piece if self._rest else piece, 0
        self.bytes += len(piece)
        last, bodies, first = self._last, self._bodies, self._load.first
        before = len(self.numbers)
        for found in RECORD.finditer(data):
            key, n, end = int(found[1]), int(found[2]), found.end()
            is_older = n < first  # as a snapshot has them
            if not is_older and (n - first >= len(bodies) or found[0] != bodies[n - first]):
                self.altered += 1
            elif key in last:
                last[key] = n
                if not is_older:
                    self.numbers.append(n)
            else:
                self.altered += not is_older
        self.heard_s += repeat(now_s, len(self.numbers) - before)
        self._rest = data[max(end, len(data) - RECORD_BYTES_MAX) :]

    def forget_cut(self) -> None:
        """The connection is another one: what was cut will not be completed."""
        self._rest = b""

    def is_current(self) -> bool:
        """Whether the last state of each record is the last that was published."""
        return self._last == self._wanted

    def complete_s(self) -> float:
        """When every record had come once; the end of time if one never came."""
        unheard = set(self._wanted)
        for n, heard_s in zip(self.numbers, self.heard_s, strict=True):
            unheard.discard(n % self._load.keys)
            if not unheard:
                return heard_s
        return inf

    def verdict(self, snapshot: bool = False) -> Verdict:
        """Beside every update, after a snapshot every one since it."""
        keys, first = self._load.keys, self._load.first
        newest: dict[int, int] = {}
        oldest: dict[int, int] = {}
        seen: set[int] = set()
        repeated = disordered = 0
        for n in self.numbers:
            key = n % keys
            if n in seen:
                repeated += 1
            elif n < newest.get(key, n):
                disordered += 1
            seen.add(n)
            newest[key] = max(n, newest.get(key, n))
            oldest[key] = min(n, oldest.get(key, n))
        if not snapshot:
            oldest = {key: first + (key - first) % keys for key in self._wanted}
        missing = sum((n - oldest.get(key, n)) // keys + 1 for key, n in self._wanted.items())
        stale = sum(self._last[key] != n for key, n in self._wanted.items())
        return Verdict(missing - len(seen), repeated, disordered, self.altered, stale)

    def late_ms(self, begin_s: float, step_s: float, since: int = 0) -> list[float]:
        """How late each line was, of those from record `since` on."""
        load, found = self._load, []
        told = dict.fromkeys(self._wanted, load.first - 1)
        for n, heard_s in zip(self.numbers, self.heard_s, strict=True):
            key = n % load.keys
            # The first update of this key that the follower had not been told of.
            first = told[key] + 1 + (key - told[key] - 1) % load.keys
            told[key] = max(n, told[key])
            due_s = begin_s + min(first, n) // load.size * step_s
            if n >= since:
                found.append((heard_s - due_s) * 1000)
        return found


def in_quantiles(late_ms: Sequence[float]) -> dict[str, float]:
    """p50 to p99.99, and the longest."""
    ordered = sorted(late_ms)
    if not ordered:
        return {}
    last = len(ordered) - 1
    found = {name: ordered[min(last, int(len(ordered) * at))] for name, at in QUANTILES.items()}
    return {**found, "max": ordered[-1]}
