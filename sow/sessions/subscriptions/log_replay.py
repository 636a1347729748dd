"""Replays: a bookmark subscription on its way from the log to the present.

The log is read in pieces, as fast as the client takes it, and encoded by the subscription's own
feeds, so filters, select lists and conflation mean the same as live; windows of a conflated replay
follow the times of the log. Entries that are still on their way to the disk are fed after it, and
sent once durable. At the end the feeds join their routers within one step of the engine: no change
is missed or repeated.

Only publishes are sent: what the client knew at its bookmark is not known, so there are neither
deltas nor out-of-focus messages.
"""

from collections import deque
from collections.abc import Callable, Iterator

from sow.engine.engine import Engine
from sow.errors import ClientError
from sow.history.bookmarks import Span
from sow.protocol.encodings import Frames
from sow.store.protocols import Journal, LogEntry
from sow.streaming.channel import ChangeChannel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ChangeFeed
from sow.streaming.queue_memory import ENTRY_BYTES
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.batch import Batch, Changes, Edit
from sow.topic.updates import Update

RECORDS_AT_ONCE = 250
"""Records processed in one step, matching or not: a millisecond or two."""
READ_AHEAD = 2_000
"""Records fetched from the log at once and buffered: a seek in the log costs as much as processing
some hundreds. A client that does not read holds this many, or a block."""
LAST_RECORDS = 1_000
"""A rest this small is processed in one step, so that a replay catches up with continuous
publishers."""


class Replay:
    """The replay of a channel from the log, while its feeds have not joined their routers yet.

    `feed_of` gives the feed of a topic by its name; None for one that is not followed. `hold` is
    called with the bytes that are read ahead, and with minus that once they are processed.
    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        channel: ChangeChannel,
        feed_of: Callable[[str], ChangeFeed | None],
        span: Span,
        hold: Callable[[int], object],
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._channel = channel
        self._windows = channel if isinstance(channel, ConflatedChannel) else None
        self._feed_of = feed_of
        self._reached = span.after
        self._until = span.until
        self._lines: list[bytes] = []
        self._kept: list[tuple[UpdateEncoder, Update]] = []
        """What was read under previous permissions, restricted to the current ones."""
        self._ahead: deque[LogEntry] = deque()
        self._hold = hold
        self._stopped = False

    def stop(self) -> None:
        """Stop reading: nothing follows it any more."""
        self._stopped = True

    def say_all(self, as_seen: Callable[[UpdateEncoder, bytes], UpdateEncoder | None]) -> None:
        """Flush what waits, before the feeds change. `as_seen` encodes a record in a state that was
        read, or returns None if it may not be sent."""
        self._kept += self._channel.gathered()
        seen = [(as_seen(encoder, said.new or b""), said) for encoder, said in self._kept]
        self._kept = [(encoder, said) for encoder, said in seen if encoder is not None]

    def frames(
        self, on_live: Callable[[], None], on_failure: Callable[[Exception], None]
    ) -> Frames:
        """Frames of what the log holds. At its end, or that of the span, `on_live` is called,
        which for a span without end has to join the feeds to their routers.
        """
        try:
            while not self._stopped:
                fed = self._feed_some()
                is_over = self._is_over()
                if is_over:
                    # In the step that processed the last entry; what this yields comes after it.
                    on_live()
                    if self._until is not None:
                        self._release_all()
                yield self._frame()
                if is_over:
                    return
                if not fed:
                    for _ in self._engine.atomic.finish_any():
                        yield b"", 0
                    # What is missing of a range is on its way to the disk.
                    yield b"", 0
        except Exception as error:
            on_failure(error)
        finally:
            while self._ahead:
                self._drop_first()

    def _drop_first(self) -> None:
        self._hold(-_size(self._ahead.popleft()))

    def _frame(self) -> tuple[bytes, int]:
        """What was gathered; possibly nothing, which lets others have their turn."""
        kept, self._kept = self._kept, []
        said = [encoder.line(update) for encoder, update in kept]
        encoder = [line for line in said if line is not None] + self._lines
        self._lines = []
        return (self._channel.encoding.frame(encoder), len(encoder)) if encoder else (b"", 0)

    def _is_over(self) -> bool:
        """Whether everything was processed, entries on their way to the disk included."""
        if self._is_past():
            return True
        # What is logged, but not stored yet, would be heard again by who is live.
        return self._reached == self._engine.seq and self._engine.atomic.topic is None

    def _is_past(self) -> bool:
        return self._until is not None and self._reached >= self._until

    def _feed_some(self) -> int:
        """Feed the next entries; returns the number of records."""
        left = self._engine.seq - self._reached
        room = most = left if left <= LAST_RECORDS else RECORDS_AT_ONCE
        while room > 0 and not self._is_past():
            if not self._ahead and not self._fetch():
                break
            entry = self._ahead[0]
            room -= self._feed_entry(entry, room)
            if self._reached >= entry.seq + len(entry) - 1:
                self._drop_first()
        if self._reached <= self._journal.last_seq:
            self._lines += self._channel.collect()
        return most - room

    def _fetch(self) -> bool:
        """Have the next entries at hand; False if there are none."""
        count = 0
        for entry in self._stored() if self._reached < self._journal.last_seq else self._unstored():
            self._ahead.append(entry)
            self._hold(_size(entry))
            count += len(entry)
            if count >= READ_AHEAD:
                break
        return count > 0

    def _stored(self) -> Iterator[LogEntry]:
        if self._journal.first_seq > self._reached + 1:
            # Held back for one slow client, the log would grow for as long as it does not read.
            raise ClientError(
                f"the log has been trimmed up to {self._journal.first_seq - 1} and this replay had "
                f"come to {self._reached}",
                reason="invalid bookmark",
            )
        return self._journal.read(self._reached)

    def _unstored(self) -> Iterator[LogEntry]:
        """Entries on their way to the disk; a range is read from the log alone."""
        if self._until is None:
            for entry in self._engine.sequencer.in_flight():
                if entry.seq + len(entry) - 1 > self._reached:
                    yield entry

    def _feed_entry(self, entry: LogEntry, at_most: int) -> int:
        """Pass the unprocessed part of an entry to its topic's feed, at most `at_most` records."""
        start = max(0, self._reached + 1 - entry.seq)
        stop = len(entry)
        if self._until is not None:
            stop = min(stop, self._until + 1 - entry.seq)
        stop = min(stop, start + at_most)
        if start >= stop:
            return 0
        due_us = None if self._windows is None else self._windows.due_us()
        if self._windows is not None and due_us is not None and due_us <= entry.ts_us:
            self._windows.advance(entry.ts_us)
        feed = self._feed_of(entry.topic)
        is_its_own = feed is not None and feed.topic.has_logged(entry)
        if feed is not None and is_its_own and entry.op in ("publish", "edit"):
            batch = _batch(feed, entry, start, stop)
            if batch.edit is None:
                feed.on_batch(batch, entry.ts_us)
            else:
                feed.on_edit(batch, batch.edit, entry.ts_us)
        self._reached = entry.seq + stop - 1
        return stop - start

    def _release_all(self) -> None:
        if self._windows is not None:
            self._windows.release_all()
        self._lines += self._channel.collect()


def _size(entry: LogEntry) -> int:
    """What the records of an entry take."""
    return sum(map(len, entry.bodies)) + ENTRY_BYTES * len(entry)


def _batch(feed: ChangeFeed, entry: LogEntry, start: int, stop: int) -> Batch:
    """Records of a log entry as changes without a known old state."""
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
    batch, origin = topic.batch(changes, {}), entry.origin
    if origin is not None and origin.edits:
        batch.be_edit(Edit(origin.edits, entry.op == "publish"))
    return batch
