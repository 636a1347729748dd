"""Replays: a bookmark subscription on its way from the log to the present.

The log is read piece by piece, as fast as the client takes it, and told by the subscription's own
feeds, so filters, select lists and conflation mean what they mean live; windows of a conflated
replay are cut on the times of the log. What is still on its way to the disk is heard after it, and
said when it is there. Having reached the end, the feeds join their routers within one step of the
engine: no change is missed and none comes twice.

Only publishes are told: what had been told before a bookmark is not known, so there are neither
deltas nor out-of-focus messages.
"""

from collections import deque
from collections.abc import Callable, Iterator

from sow.core.changes import Changes
from sow.engine.engine import Engine
from sow.errors import ClientError
from sow.history.bookmarks import Span
from sow.protocol.encodings import Frames
from sow.store.protocols import Journal, LogEntry
from sow.streaming.channel import Channel
from sow.streaming.feeds import Feed
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.batch import Batch
from sow.topic.updates import Update

RECORDS_AT_ONCE = 250
"""So many records are heard in one step, wanted or not: a millisecond or two."""
READ_AHEAD = 2_000
"""Records that are fetched from the log at once and kept until they are heard: finding a place in
it costs as much as hearing some hundreds. A client that does not read holds so many, or a block."""
LAST_RECORDS = 1_000
"""When so few are left they are heard at once: who publishes all the time is caught up with."""


class Replay:
    """What a strand is told by the log, while its feeds hear nothing yet.

    `feed_of` gives the feed of a topic by its name; None for one that is not followed.
    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        channel: Channel,
        feed_of: Callable[[str], Feed | None],
        span: Span,
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._channel = channel
        self._feed_of = feed_of
        self._reached = span.after
        self._until = span.until
        self._lines: list[bytes] = []
        self._kept: list[tuple[UpdateEncoder, Update]] = []
        """What was heard by other rights, as it may be told by those of now."""
        self._ahead: deque[LogEntry] = deque()
        self._stopped = False

    def stop(self) -> None:
        """Read no more: nobody follows it."""
        self._stopped = True

    def say_all(self, as_seen: Callable[[UpdateEncoder, bytes], UpdateEncoder | None]) -> None:
        """Let nothing wait of what was heard: from now on it is heard otherwise. `as_seen` words
        a record in a state that was heard of, or says that it may not be told."""
        self._channel.release_all()
        self._kept += self._channel.gathered()
        seen = [(as_seen(lines, said.new or b""), said) for lines, said in self._kept]
        self._kept = [(lines, said) for lines, said in seen if lines is not None]

    def frames(
        self, on_live: Callable[[], None], on_failure: Callable[[Exception], None]
    ) -> Frames:
        """Frames of what the log holds. At its end, or that of the span, `on_live` is called,
        which for a span without end has to join the feeds to their routers.
        """
        try:
            while not self._stopped:
                heard = self._hear_some()
                is_over = self._is_over()
                if is_over:
                    # In the step in which the last was heard; what it hands out stands behind.
                    on_live()
                    if self._until is not None:
                        self._release_all()
                yield self._frame()
                if is_over:
                    return
                if not heard:
                    for _ in self._engine.atomic.finish_any():
                        yield b"", 0
                    # What is missing of a range is on its way to the disk.
                    yield b"", 0
        except Exception as error:
            on_failure(error)

    def _frame(self) -> tuple[bytes, int]:
        """What was gathered; possibly nothing, which lets others have their turn."""
        kept, self._kept = self._kept, []
        said = [lines.line(update) for lines, update in kept]
        lines = [line for line in said if line is not None] + self._lines
        self._lines = []
        return (self._channel.encoding.frame(lines), len(lines)) if lines else (b"", 0)

    def _is_over(self) -> bool:
        """Whether everything was heard, what is on its way to the disk included."""
        if self._is_past():
            return True
        # What is logged, but not stored yet, would be heard again by who is live.
        return self._reached == self._engine.seq and self._engine.atomic.topic is None

    def _is_past(self) -> bool:
        return self._until is not None and self._reached >= self._until

    def _hear_some(self) -> int:
        """Let the feeds hear what comes next; returns how many records that were."""
        left = self._engine.seq - self._reached
        room = most = left if left <= LAST_RECORDS else RECORDS_AT_ONCE
        while room > 0 and not self._is_past():
            if not self._ahead and not self._fetch():
                break
            entry = self._ahead[0]
            room -= self._hear(entry, room)
            if self._reached >= entry.seq + len(entry) - 1:
                self._ahead.popleft()
        if self._reached <= self._journal.last_seq:
            self._lines += self._channel.collect()
        return most - room

    def _fetch(self) -> bool:
        """Have the next entries at hand; False if there are none."""
        count = 0
        for entry in self._stored() if self._reached < self._journal.last_seq else self._unstored():
            self._ahead.append(entry)
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
        """What is on its way to the disk; a range is told from the log alone."""
        if self._until is None:
            for entry in self._engine.in_flight():
                if entry.seq + len(entry) - 1 > self._reached:
                    yield entry

    def _hear(self, entry: LogEntry, at_most: int) -> int:
        """Tell the feed of an entry's topic what the strand has not heard yet, or so much of it."""
        start = max(0, self._reached + 1 - entry.seq)
        stop = len(entry)
        if self._until is not None:
            stop = min(stop, self._until + 1 - entry.seq)
        stop = min(stop, start + at_most)
        if start >= stop:
            return 0
        due_us = self._channel.due_us()
        if due_us is not None and due_us <= entry.ts_us:
            self._channel.release(entry.ts_us)
        heard = self._feed_of(entry.topic)
        is_its_own = heard is not None and heard.topic.has_logged(entry)
        if heard is not None and is_its_own and entry.op == "publish":
            heard.hear(_batch(heard, entry, start, stop), entry.ts_us)
        self._reached = entry.seq + stop - 1
        return stop - start

    def _release_all(self) -> None:
        self._channel.release_all()
        self._lines += self._channel.collect()


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
