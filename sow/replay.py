"""Replays: a bookmark subscription on its way from the log to the present.

The log is read piece by piece, as fast as the client takes it, and told by the subscription's own
feeds, so filters, select lists and conflation mean what they mean live; windows of a conflated
replay are cut on the times of the log. Having reached the end, the feeds join their routers within
one step of the engine: no change is missed and none comes twice.

Only publishes are told: what had been told before a bookmark is not known, so there are neither
deltas nor out-of-focus messages.
"""

from collections.abc import Callable, Iterator, Mapping

from sow.batch import Batch
from sow.changes import Changes
from sow.engine import Engine
from sow.errors import SowError
from sow.feeds import Feed
from sow.outbox import Frames
from sow.pacing import PacedFeed
from sow.store.protocols import Entry, Journal

RECORDS_AT_ONCE = 2_000
"""So much of the log is read for one frame, wanted or not."""


class Replay:
    """From bookmark `after` on, of some topics' feeds that nobody hears yet."""

    def __init__(
        self, engine: Engine, journal: Journal, feeds: Mapping[str, Feed], after: int
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._feeds = feeds
        self._reached = after
        self.stopped = False

    def frames(
        self, until: int | None, on_live: Callable[[], None], on_failure: Callable[[SowError], None]
    ) -> Frames:
        """Frames of what the log holds; at the end of it `on_live` is called, and has to join the
        feeds to their routers. With `until` it is called there instead.
        """
        try:
            while not self.stopped:
                read = self._read(until)
                yield from self._collected()
                if self._is_over(until):
                    on_live()
                    if until is not None:
                        yield from self._collected(to_the_end=True)
                    return
                if not read:
                    # What is missing is on its way to the disk.
                    yield b"", 0
        except SowError as error:
            on_failure(error)

    def _is_over(self, until: int | None) -> bool:
        if until is not None:
            return self._reached >= until
        if self._reached < self._journal.last_seq:
            return False
        for entry in self._engine.in_flight():
            self._hear(entry, None)
        return self._reached == self._engine.seq

    def _read(self, until: int | None) -> int:
        """Let the feeds hear the next piece of the log; returns how many records that were."""
        read = 0
        if self._reached < self._journal.last_seq:
            for entry in self._journal.read(self._reached):
                read += self._hear(entry, until)
                if read >= RECORDS_AT_ONCE or self._is_past(until):
                    break
        return read

    def _is_past(self, until: int | None) -> bool:
        return until is not None and self._reached >= until

    def _hear(self, entry: Entry, until: int | None) -> int:
        """Tell the feed of an entry's topic what it has not heard yet."""
        last = entry.seq + len(entry) - 1
        if last <= self._reached:
            return 0
        start = max(0, self._reached + 1 - entry.seq)
        stop = len(entry) if until is None else min(len(entry), until + 1 - entry.seq)
        if entry.seq > self._reached + 1 and entry.seq > self._journal.last_seq + 1:
            return 0
        feed = self._feeds.get(entry.topic)
        for other in self._feeds.values():
            if isinstance(other, PacedFeed):
                _release(other, entry.ts_us)
        if feed is not None and entry.op == "publish" and start < stop:
            feed.hear(_batch(feed, entry, start, stop), entry.ts_us)
        self._reached = entry.seq + stop - 1
        return stop - start

    def _collected(self, to_the_end: bool = False) -> Iterator[tuple[bytes, int]]:
        for feed in self._feeds.values():
            if to_the_end and isinstance(feed, PacedFeed):
                feed.release_all()
            frame = feed.collect()
            if frame is not None:
                yield frame


def _release(feed: PacedFeed, ts_us: int) -> None:
    due_us = feed.due_us()
    if due_us is not None and due_us <= ts_us:
        feed.release(ts_us)


def _batch(feed: Feed, entry: Entry, start: int, stop: int) -> Batch:
    """Records of a log entry as changes of which nobody knows what was before."""
    topic, bodies = feed.topic, list(entry.bodies[start:stop])
    names = (
        topic.identities_of(bodies)
        if entry.identities is None
        else list(entry.identities[start:stop])
    )
    changes = Changes(
        topic.name,
        names,
        (),
        [None] * len(bodies),
        bodies,
        range(entry.seq + start, entry.seq + stop),
        [entry.ts_us] * len(bodies),
    )
    return Batch(topic, changes, {})
