"""Replays: a bookmark subscription on its way from the log to the present.

The log is read piece by piece, as fast as the client takes it, and told by the subscription's own
feeds, so filters, select lists and conflation mean what they mean live; windows of a conflated
replay are cut on the times of the log. Having reached the end, the feeds join their routers within
one step of the engine: no change is missed and none comes twice.

Only publishes are told: what had been told before a bookmark is not known, so there are neither
deltas nor out-of-focus messages.
"""

from collections.abc import Callable, Mapping

from sow.changes import Changes
from sow.delivery.feeds import Feed
from sow.delivery.strands import Strand
from sow.encodings import Frames
from sow.engine.engine import Engine
from sow.errors import ClientError, SowError
from sow.history.bookmarks import Span
from sow.store.protocols import Journal, LogEntry
from sow.topic.batch import Batch

RECORDS_AT_ONCE = 2_000
"""So much of the log is read for one frame, wanted or not."""


class Replay:
    """What a strand is told by the log, while its feeds hear nothing yet."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        strand: Strand,
        feeds: Mapping[str, Feed],
        span: Span,
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._strand = strand
        self._feeds = feeds
        self._reached = span.after
        self._until = span.until
        self._lines: list[bytes] = []
        self._stopped = False

    def stop(self) -> None:
        """Read no more: nobody follows it."""
        self._stopped = True

    def frames(self, on_live: Callable[[], None], on_failure: Callable[[SowError], None]) -> Frames:
        """Frames of what the log holds. At its end, or that of the span, `on_live` is called,
        which for a span without end has to join the feeds to their routers.
        """
        try:
            while not self._stopped:
                read = self._read()
                yield self._frame()
                if self._is_over():
                    on_live()
                    if self._until is not None:
                        self._release_all()
                        yield self._frame()
                    return
                if not read:
                    # What is missing is on its way to the disk.
                    yield b"", 0
        except SowError as error:
            on_failure(error)

    def _frame(self) -> tuple[bytes, int]:
        """What was gathered; possibly nothing, which lets others have their turn."""
        lines, self._lines = self._lines, []
        return (self._strand.encoding.frame(lines), len(lines)) if lines else (b"", 0)

    def _is_over(self) -> bool:
        """Whether everything was heard, what is on its way to the disk included."""
        if self._until is not None:
            return self._reached >= self._until
        if self._reached < self._journal.last_seq:
            return False
        for entry in self._engine.in_flight():
            if entry.seq <= self._reached + 1:
                self._hear(entry)
        return self._reached == self._engine.seq

    def _read(self) -> int:
        """Let the feeds hear the next piece of the log; returns how many records that were."""
        read = 0
        if self._journal.first_seq > self._reached + 1:
            # Held back for one slow client, the log would grow for as long as it does not read.
            raise ClientError(
                f"the log has been trimmed up to {self._journal.first_seq - 1} and this replay had "
                f"come to {self._reached}",
                reason="invalid bookmark",
            )
        if self._reached < self._journal.last_seq and not self._is_past():
            for entry in self._journal.read(self._reached):
                read += self._hear(entry, RECORDS_AT_ONCE)
                self._lines += self._strand.collect()
                if read >= RECORDS_AT_ONCE or self._is_past():
                    break
        return read

    def _is_past(self) -> bool:
        return self._until is not None and self._reached >= self._until

    def _hear(self, entry: LogEntry, at_most: int | None = None) -> int:
        """Tell the feed of an entry's topic what the strand has not heard yet, or so much of it."""
        start = max(0, self._reached + 1 - entry.seq)
        stop = len(entry)
        if self._until is not None:
            stop = min(stop, self._until + 1 - entry.seq)
        if at_most is not None:
            stop = min(stop, start + at_most)
        if start >= stop:
            return 0
        due_us = self._strand.due_us()
        if due_us is not None and due_us <= entry.ts_us:
            self._strand.release(entry.ts_us)
        heard = self._feeds.get(entry.topic)
        is_its_own = heard is not None and heard.topic.has_logged(entry)
        if heard is not None and is_its_own and entry.op == "publish":
            heard.hear(_batch(heard, entry, start, stop), entry.ts_us)
        self._reached = entry.seq + stop - 1
        return stop - start

    def _release_all(self) -> None:
        self._strand.release_all()
        self._lines += self._strand.collect()


def _batch(feed: Feed, entry: LogEntry, start: int, stop: int) -> Batch:
    """Records of a log entry as changes of which nobody knows what was before."""
    topic, bodies = feed.topic, list(entry.bodies[start:stop])
    identities = (
        topic.identities_of(bodies)
        if entry.identities is None
        else list(entry.identities[start:stop])
    )
    changes = Changes(
        topic.name,
        identities,
        (),
        [None] * len(bodies),
        bodies,
        range(entry.seq + start, entry.seq + stop),
        [entry.ts_us] * len(bodies),
    )
    return topic.batch(changes, {})
