"""The state hash: one number for all logged records of an engine, equal on every node of a log.

It is the xor of a hash of each record: of its topic, its key and the number of its last change. So
two nodes that have applied the same changes have the same hash, and a record that one of them lost,
kept or changed otherwise shows in it.

It is computed only when somebody asks, of the columns that tables have anyway: ten nanoseconds a
record. Topics that have not changed since the last time keep their part. Nobody who publishes pays
for it before the first question, and after that one entry of a dictionary a batch.

    bookmark, digits = yield from hashes.at_now()     # of one moment, in steps
"""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import CatchUpPacer, Task
from sow.core.keys import sow_keys
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic, SourceTopic

Hashes = NDArray[np.uint64]

TOPICS_AT_ONCE = 50
"""Topics that are looked at in one step, some ten microseconds each."""
ROWS_AT_ONCE = 5_000
"""Records that are hashed in one step: a tenth of a millisecond, five where keys are texts."""
FACTORS = tuple(
    np.uint64(one) for one in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
"""Odd numbers that spread bits, those of splitmix64."""
HALF, THIRD = np.uint64(32), np.uint64(29)


class _Held:
    """The records of one topic as of a moment: what has to be hashed of them."""

    def __init__(self, topic: SourceTopic) -> None:
        table = topic.records.table
        slots = table.occupied()
        self.topic = topic
        self.seqs: Hashes = table.seqs[slots].view(np.uint64)
        self.keys = table.sow_key_numbers(slots)
        # The publisher's own keys are texts, and are read in steps.
        self.names: Iterator[list[str]] | None = None
        if self.keys is None:
            self.names = table.held_names(ROWS_AT_ONCE)

    def parts(self) -> Iterator[tuple[Hashes, Hashes]]:
        """Keys and numbers of some records at a time."""
        for start in range(0, len(self.seqs), ROWS_AT_ONCE):
            seqs = self.seqs[start : start + ROWS_AT_ONCE]
            if self.names is not None:
                names = next(self.names)
                yield np.frombuffer(sow_keys("", names), np.uint64), seqs
            elif self.keys is not None:
                yield self.keys[start : start + ROWS_AT_ONCE], seqs


class StateHash:
    """The state hash of one engine, for one question at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed: dict[LiveTopic, None] | None = None
        """Topics whose part is not known; None: it was never queried."""
        self._parts: dict[LiveTopic, int] = {}
        self._all = 0
        self._noting = ExitStack()

    def at_now(self) -> Task[tuple[int, str]]:
        """The newest bookmark, and the state hash at it as 16 hexadecimal digits; of the last step
        but those that only compute."""
        if self._changed is None:
            self._changed = self._noting.enter_context(self._engine.noting())
            self._changed.update(dict.fromkeys(self._engine.catalog))
        changed, atomic, pace = self._changed, self._engine.atomic, CatchUpPacer(TOPICS_AT_ONCE)
        while len(changed) > pace.share or atomic.topic is not None:
            yield from atomic.finish_any()
            pace.begin(len(changed))
            taken = self._taken(pace.share)
            pace.end(len(changed))
            yield from self._fold(taken)
            yield
        seq, taken = self._engine.seq, self._taken(len(changed))
        yield from self._fold(taken)
        return seq, f"{self._all:016x}"

    def _taken(self, count: int) -> list[_Held]:
        """What some topics that have changed hold now; those that are gone hold nothing."""
        assert self._changed is not None
        found = []
        for topic in [*self._changed][:count]:
            del self._changed[topic]
            if self._engine.topics.get(topic.name) is not topic:
                self._all ^= self._parts.pop(topic, 0)
            elif isinstance(topic, SourceTopic) and topic.is_logged:
                found.append(_Held(topic))
        return found

    def _fold(self, held: list[_Held]) -> Task[None]:
        for one in held:
            folded, seed = 0, sow_keys(one.topic.name, [""])[0]
            for keys, seqs in one.parts():
                folded ^= _folded(keys, seqs, seed)
                yield
            self._all ^= self._parts.get(one.topic, 0) ^ folded
            self._parts[one.topic] = folded

    def close(self) -> None:
        """Note changes no more."""
        self._noting.close()
        self._changed = None


def _folded(keys: Hashes, seqs: Hashes, seed: int) -> int:
    """The xor of the hashes of some records of the topic with this seed."""
    spread, other, last = FACTORS
    mixed = (keys ^ np.uint64(seed)) * spread
    mixed ^= seqs * other
    mixed ^= mixed >> HALF
    mixed *= last
    mixed ^= mixed >> THIRD
    return int(np.bitwise_xor.reduce(mixed)) if len(mixed) else 0
