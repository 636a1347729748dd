"""The state hash: one number for all logged records of an engine, equal on every node of a log.

It is the xor of one hash per record, made of its topic, its key and the number of its last change.
Nodes that have applied the same changes have the same hash. If one node has lost, kept or changed a
record that the others have not, its hash differs.

It is computed on request, from columns that the tables keep anyway: ten nanoseconds a record. A
topic that has not changed since the last request keeps its part. Before the first request
publishers pay nothing, and after it one entry of a dictionary per batch.

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
"""Topics that one step reads, some ten microseconds each."""
ROWS_AT_ONCE = 5_000
"""Records that one step hashes: a tenth of a millisecond; five milliseconds if keys are texts."""
FACTORS = tuple(
    np.uint64(one) for one in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
"""Odd numbers that spread bits, those of splitmix64."""
HALF, THIRD = np.uint64(32), np.uint64(29)


class _Held:
    """Keys and numbers of the records of one topic, as of a moment."""

    def __init__(self, topic: SourceTopic) -> None:
        table = topic.records.table
        slots = table.occupied()
        self.topic = topic
        self.seqs: Hashes = table.seqs[slots].view(np.uint64)
        self.keys = table.sow_key_numbers(slots)
        # Keys that publishers give are texts; they are read in steps.
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
    """The state hash of one engine, for one request at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed: dict[LiveTopic, None] | None = None
        """Topics whose part is out of date; None before the first request."""
        self._parts: dict[LiveTopic, int] = {}
        self._all = 0
        self._noting = ExitStack()

    def at_now(self) -> Task[tuple[int, str]]:
        """The newest bookmark and the state hash at it, as 16 hexadecimal digits: both of the step
        before the last parts are computed."""
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
        """The records of some changed topics; removed topics leave the hash."""
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
        """Stop noting changes."""
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
