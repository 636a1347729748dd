"""The load: orders that follow from their numbers, so that everybody knows what must hold.

Record `n` is always the same bytes. Keys come in turn, so that the update of a key before record
`n` is record ``n - keys``, which is what lateness under conflation is counted from.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

REGIONS = "ABCDEFGH"
BODY = (
    '{"id":%d,"n":%d,"symbol":"S%d","px":%.3f,"qty":%d,"region":"%s","side":"buy","ccy":"EUR",'
    '"acct":"acct-%d","status":"partially filled","note":"text to the usual length of an order"}'
)
RECORD = re.compile(rb'\{"id":(\d+),"n":(\d+),"symbol"[^}]*\}')
"""One of them, wherever it stands in what was received."""
RECORD_BYTES_MAX = 320
"""What one takes at most, so what has to be kept of one that a read has cut."""
MIX = 2654435761
"""Fibonacci hashing (Knuth 6.4): neighbours are spread over all of 32 bits."""

Record = tuple[int, bytes]
"""A key with a state of its record."""


def record(n: int, key: int, symbols: int) -> bytes:
    """Record `n`: its symbol is of the key, price, quantity and region are of the number."""
    mixed = n * MIX % 2**32
    region = REGIONS[mixed >> 7 & 7]
    px, qty = mixed % 1_000_000 / 1000, mixed >> 12 & 1023
    return (BODY % (key, n, key % symbols, px, qty, region, key % 1000)).encode()


class Load(NamedTuple):
    """Records `first` and `count - 1` more of `keys` in turn, `size` to a batch."""

    keys: int
    count: int
    size: int
    first: int = 0
    symbols: int = 5000
    topic: str = "orders"

    def records(self) -> Sequence[Record]:
        """All of them, made once."""
        return _made(self._replace(size=1))

    def batches(self) -> list[Sequence[Record]]:
        """The same in batches."""
        found = self.records()
        return [found[at : at + self.size] for at in range(0, self.count, self.size)]

    def final(self, batches: int | None = None) -> dict[int, bytes]:
        """What each record is when all batches, or the first so many, have been taken."""
        count = self.count if batches is None else min(self.count, batches * self.size)
        return dict(self.records()[max(0, count - self.keys) : count])

    def newest(self) -> dict[int, int]:
        """The number of the last record of each key."""
        last = self.first + self.count
        return {n % self.keys: n for n in range(max(self.first, last - self.keys), last)}

    def closing(self) -> "Load":
        """Each key once more."""
        return self._replace(count=self.keys, first=self.first + self.count)


@lru_cache(maxsize=4)
def _made(load: Load) -> Sequence[Record]:
    numbers = range(load.first, load.first + load.count)
    return [(n % load.keys, record(n, n % load.keys, load.symbols)) for n in numbers]


def lost(
    load: Load, acknowledged: int, held: Mapping[int, bytes], before: Mapping[int, bytes] = {}
) -> int:
    """Records whose state is older than what was acknowledged with the first so many batches, or
    was never sent. What was sent after these may have been taken or not; `before` is what there
    was before the load."""
    allowed: dict[int, set[bytes | None]] = {
        key: {body} for key, body in load.final(acknowledged).items()
    }
    for key, body in load.records()[acknowledged * load.size :]:
        allowed.setdefault(key, {before.get(key)}).add(body)
    wrong = [key for key, bodies in allowed.items() if held.get(key) not in bodies]
    return len(wrong) + len(held.keys() - allowed.keys() - before.keys())
