"""The load: orders in batches, always the same ones, and what must hold afterwards."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

from tests.benchmarks.records import record

Batch = Sequence[tuple[int, bytes]]
"""Keys with the newest states of their records."""


class Load(NamedTuple):
    """`count` updates of orders drawn from `keys`, `size` to a batch; or each key once."""

    keys: int
    count: int
    size: int
    seed: int = 1
    each_once: bool = False

    def batches(self) -> Sequence[Batch]:
        """All of it, made once."""
        return _made(self)


@lru_cache(maxsize=2)
def _made(load: Load) -> Sequence[Batch]:
    draw = Random(load.seed)
    found = []
    for start in range(0, load.count, load.size):
        end = min(start + load.size, load.count)
        keys: Iterable[int] = range(start, end)
        if not load.each_once:
            keys = [draw.randrange(load.keys) for _ in keys]
        found.append([(key, record(key, draw)) for key in keys])
    return found


def final(batches: Sequence[Batch]) -> dict[int, bytes]:
    """What each record is, when all have been taken."""
    return {key: body for batch in batches for key, body in batch}


def lost(batches: Sequence[Batch], acknowledged: int, held: Mapping[int, bytes]) -> int:
    """Records whose state is older than what was acknowledged with the first so many batches.

    What was sent after it may have been taken or not.
    """
    allowed: dict[int, set[bytes | None]] = {
        key: {body} for key, body in final(batches[:acknowledged]).items()
    }
    for batch in batches[acknowledged:]:
        for key, body in batch:
            allowed.setdefault(key, {None}).add(body)
    wrong = [key for key, bodies in allowed.items() if held.get(key) not in bodies]
    return len(wrong) + len(held.keys() - allowed.keys())
