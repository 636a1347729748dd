"""Replay places: when what is open is kept, so that a replay of a conflated topic need not begin
with the log (`sow.engine.replay_places`).

So much is logged between two of them that a replay of it takes a second or so, and so much more
than the topics hold that all places together are a part of the log: what they take follows from
what is published. What is open is pinned in one step, behind a flush, and written in a thread.
Where nothing is conflated that the log has, nothing is kept.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sow.core.definitions import Configuration, ConflatedTopic, Topic, is_persistent
from sow.engine.following import Windows, count_waiting, pinned_windows
from sow.engine.replay import Reach
from sow.server.loop.runtime import ServerRuntime
from sow.store.protocols import Checkpoint, OpenWindows

RECORDS_MIN = 50_000
"""Records of the log between two places: some tenths of a second of a replay."""
RECORDS_FACTOR = 5
"""And so many for each record that the topics hold: each place is a copy of them."""
KEPT_MAX = 200
"""Places with records that are kept: each is a copy of them, and ten million changes are enough."""
WAITING_MAX = 50_000
"""Records in open windows, beyond which nothing is kept: to pin so many takes some 20 ms."""
PATIENCE_S = 5.0
"""How long a moment between two turns is waited for: where the server is late so long, what is open
is kept later."""
NAME = "keeping open windows"


class _Pinned(NamedTuple):
    """What is open after record `seq` at a time; None where it is too much."""

    seq: int
    time_us: int
    make: Callable[[], list[Windows]] | None


class ReplayPlaces:
    """The places that one server keeps. `is_reloading` says whether topics are being changed."""

    def __init__(
        self,
        runtime: ServerRuntime,
        checkpoints: Mapping[str, Checkpoint],
        is_reloading: Callable[[], bool] = lambda: False,
    ) -> None:
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._windows = runtime.journal.windows
        self._is_reloading = is_reloading
        self._known: Configuration | None = None
        self._names: Sequence[str] = ()
        places = self._windows.places
        self._seq = places[-1].seq if places else 0

    @property
    def names(self) -> Sequence[str]:
        """The stored definitions that conflated topics are made of."""
        configuration = self._runtime.engine.configuration
        if configuration is not self._known:
            self._known, self._names = configuration, _conflated(configuration)
        return [name for name in self._names if name in self._checkpoints]

    def is_due(self) -> bool:
        """Whether so much has been logged that another one is to be kept."""
        if not (names := self.names):
            return False
        rows = sum(self._checkpoints[name].records for name in names)
        return self._runtime.engine.seq - self._seq > max(RECORDS_MIN, RECORDS_FACTOR * rows)

    def needed(self, name: str) -> int:
        """How many checkpoints of a definition are kept for places, the newest ones."""
        return KEPT_MAX if name in self.names else 0

    async def keep(self) -> None:
        """Keep what is open now, once checkpoints have the records; raises StoreError."""
        runtime = self._runtime
        self._seq = runtime.engine.seq
        found: asyncio.Future[_Pinned] = runtime.loop.create_future()

        def look(_now_us: int) -> None:
            if not found.done() and self._is_between_turns():
                found.set_result(self._pinned())

        runtime.flush_work[NAME] = look
        try:
            runtime.wake()
            async with asyncio.timeout(PATIENCE_S):
                seq, time_us, make = await found
        except TimeoutError:
            return
        finally:
            del runtime.flush_work[NAME]
        if make is not None:
            await runtime.durable()
            await asyncio.to_thread(lambda: self._windows.put(OpenWindows(seq, time_us, make())))

    def _is_between_turns(self) -> bool:
        engine = self._runtime.engine
        is_changing = engine.atomic.topic is not None or any(
            topic.records.is_changing for topic in engine.catalog
        )
        return not (self._is_reloading() or engine.has_work or is_changing)

    def _pinned(self) -> _Pinned:
        engine = self._runtime.engine
        make = None if count_waiting(engine) > WAITING_MAX else pinned_windows(engine)
        return _Pinned(engine.seq, engine.now_us, make)


def _conflated(configuration: Configuration) -> list[str]:
    """The stored definitions that some conflated topic is made of."""
    copies = {one.name for one in configuration.topics if isinstance(one, ConflatedTopic)}
    reach = Reach([configuration], copies)
    return [
        one.name
        for one in configuration.topics
        if isinstance(one, Topic) and one.name in reach.definitions and is_persistent(one)
    ]
