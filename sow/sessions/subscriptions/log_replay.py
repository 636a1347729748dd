"""Replays: a bookmark subscription on its way from the log to the present.

The log is read in pieces, as fast as the client takes it, and encoded by the subscription's own
feeds, so filters, select lists and conflation mean the same as live; windows of a conflated replay
follow the times of the log. Entries that are still on their way to the disk are fed after it, and
sent once durable. At the end the feeds join their routers within one step of the engine: no change
is missed or repeated.

A client that requests only publishes is sent nothing else, and nothing has to be known of what it
held. With `oof` or deltas it is taken to hold what its filter passed at the start. The state there
is computed first (`sow.history.snapshot_as_of`) and moved along the log with the replay
(`KnownStates`), so that each change has an old state, as a live one does.

`ReplayControl` says when a replay may go on: not while its client has paused it, and at most so
many messages a second. One that may not hands its session's queue back, so that everything else of
the session is sent meanwhile, and is queued again later: by `resume`, or by a timer of the engine.
It keeps its place in the log, and no entries of it while it is paused; the log is not held back for
it, so one that has waited for too long ends as any late one does. A rate is kept in turns, each of
a tenth of what is sent in a second, or of one message: after a turn the replay waits for as long as
its messages take at the rate. What was not sent in time is not made up for.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from sow.core.clock import SECOND_US
from sow.core.containers import ShardedDict
from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.timers import Deadline
from sow.errors import ClientError, invalid_bookmark, invalid_options, shown
from sow.history.bookmarks import Span
from sow.protocol.replies import Frames
from sow.store.protocols import Journal, LogEntry, Op
from sow.streaming.channel import ChangeChannel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ChangeFeed
from sow.streaming.queue_memory import ENTRY_BYTES
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.batch import Batch, Changes, Edit, Reason, Update
from sow.topic.records import Records

TURNS_PER_SECOND = 10
"""Often enough to look steady, and seldom enough that a timer costs nothing."""

AHEAD_MIN = 100
"""Records that are read ahead at least, whatever the rate: a look into the log costs as much as
some hundreds. Thousands of slow replays would hold more for a client than it may have."""


class ReplayControl:
    """Of one replay. `rate`: so many messages a second, None: as fast as its client reads."""

    def __init__(self, engine: Engine, rate: int | None = None, is_paused: bool = False) -> None:
        self._engine = engine
        self._rate = rate
        self.is_paused = is_paused
        self._left = 0
        """Messages that may still be sent in this turn."""
        self._free_us = 0
        """When the messages of this turn have taken their time."""
        self._again: Callable[[], None] | None = None
        """Queues the replay again, while it is paused."""
        self._deadline: Deadline | None = None

    def room(self, at_most: int) -> int:
        """How many messages may be sent now."""
        return at_most if self._rate is None else min(at_most, self._left)

    def ahead(self, at_most: int) -> int:
        """How many records may be read ahead: those of a second."""
        return at_most if self._rate is None else min(at_most, max(AHEAD_MIN, self._rate))

    def note_sent(self, count: int) -> None:
        """So many messages were sent."""
        if self._rate is not None:
            self._left -= count
            begun_us = max(self._free_us, self._engine.now_us)
            self._free_us = begun_us - (-count * SECOND_US // self._rate)

    def waits(self, again: Callable[[], None]) -> bool:
        """Whether the replay has to wait; if so, `again` is called when it may go on."""
        if self.is_paused:
            self._again = again
            return True
        if self._rate is None or self._left > 0:
            return False
        if self._engine.now_us >= self._free_us:
            self._left = max(1, self._rate // TURNS_PER_SECOND)
            return False
        self._wait_for_turn(again)
        return True

    def _wait_for_turn(self, again: Callable[[], None]) -> None:
        def act() -> None:
            self.stop()
            again()

        self._deadline = Deadline(lambda: self._free_us, act)
        self._engine.timers.add(self._deadline)
        self._engine.notify_work()

    def pause(self) -> None:
        """Wait until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on; nothing happens to one that is not paused."""
        self.is_paused = False
        again, self._again = self._again, None
        if again is not None:
            again()

    def stop(self) -> None:
        """Wait no more: the replay has ended, or its turn has come."""
        self._again = None
        if self._deadline is not None:
            self._engine.timers.remove(self._deadline)
            self._deadline = None


def held_by_pause(what: str) -> ClientError:
    """It is not paused for a long time, since it keeps more than a place in the log."""
    return invalid_options(
        f"{what} goes by records that a pause would hold in memory; unsubscribe, and subscribe "
        "later with the bm of the last line"
    )


def not_controlled(topic: str) -> ClientError:
    """What a conflated topic or a view has sent is neither paused nor held to a rate."""
    return invalid_options(
        f"what {shown(topic)} has sent is computed from the log again, in turns of its own; leave "
        "out pause and rate, or subscribe to the topic that it is made of"
    )


RECORDS_AT_ONCE = 250
"""Records processed in one step, matching or not: a millisecond or two."""
READ_AHEAD = 2_000
"""Records fetched from the log at once and buffered: a seek in the log costs as much as processing
some hundreds. A client that does not read holds this many, or a block."""
LAST_RECORDS = 1_000
"""A rest this small is processed in one step, so that a replay catches up with continuous
publishers."""
REASONS: dict[Op, Reason] = {"delete": "deleted", "expire": "expired"}


class KnownStates:
    """The records of one topic as a subscriber holds them, moved along the log with its replay.

    What they take is reported to `hold`: an entry for each, and the bodies that the topic does not
    have.
    """

    def __init__(
        self, topic: Records, bodies: ShardedDict[str, bytes], hold: Callable[[int], object]
    ) -> None:
        self.topic = topic
        self._bodies = bodies
        self._own: dict[str, int] = {}
        """The sizes of bodies that the topic did not have when they came."""
        self._hold = hold
        self._held_bytes = 0
        self._count(ENTRY_BYTES * len(self._bodies))

    def _count(self, size: int) -> None:
        self._held_bytes += size
        self._hold(size)

    def put(self, identities: Sequence[str], bodies: Sequence[bytes]) -> list[bytes | None]:
        """Records were published; returns what each was before."""
        states, table, own = self._bodies, self.topic.table, self._own
        olds: list[bytes | None] = []
        grown = 0
        for identity, body in zip(identities, bodies, strict=True):
            old = states.get(identity)
            olds.append(old)
            grown += (ENTRY_BYTES if old is None else 0) - own.pop(identity, 0)
            slot = table.slots.get(identity)
            there = None if slot is None else table.bodies[slot]
            if there == body:
                body = there
            else:
                own[identity] = len(body)
                grown += len(body)
            states[identity] = body
        self._count(grown)
        return olds

    def drop(self, identities: Sequence[str]) -> list[bytes | None]:
        """Records have left; returns what each was."""
        olds = [self._bodies.pop(identity, None) for identity in identities]
        sizes = [self._own.pop(identity, 0) for identity in identities]
        self._count(-sum(sizes) - ENTRY_BYTES * (len(olds) - olds.count(None)))
        return olds

    def __len__(self) -> int:
        return len(self._bodies)

    def emptying(self) -> Task[None]:
        """Let go of them, in steps; none counts from the first one on."""
        self._count(-self._held_bytes)
        yield from self._bodies.emptying()


Known = dict[str, KnownStates]
"""What a subscriber holds of topics, by their names."""


class LogReplay:
    """The replay of a channel from the log, while its feeds have not joined their routers yet.

    `feed_of` gives the feed of a topic by its name; None for one that is not followed. `hold` is
    called with the bytes that are read ahead, and with minus that once they are processed. `known`
    is what the subscriber held at the start, None where that makes no difference; `free` frees it
    in steps. `control` says when it has to wait.
    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        channel: ChangeChannel,
        feed_of: Callable[[str], ChangeFeed | None],
        span: Span,
        hold: Callable[[int], object],
        known: Known | None,
        control: ReplayControl | None = None,
    ) -> None:
        self._engine = engine
        self._control = control
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
        self._known = known
        self._stopped = False

    @property
    def goes_by_states(self) -> bool:
        """It depends on what the subscriber holds."""
        return self._known is not None

    @property
    def holds_records(self) -> bool:
        """It keeps more than its place in the log."""
        return self._known is not None or self._windows is not None

    def stop(self) -> None:
        """Stop reading: nothing follows it any more."""
        self._stopped = True
        if self._control is not None:
            self._control.stop()
        self._let_go()

    def pause(self) -> None:
        """Send nothing more until `resume`."""
        if self._control is None:
            self._control = ReplayControl(self._engine)
        self._control.pause()

    def resume(self) -> None:
        """Go on, where it is paused."""
        if self._control is not None:
            self._control.resume()

    def _let_go(self) -> None:
        """Hold nothing any more."""
        if self._known:
            forget(self._known, self._engine)
            self._known = {}
        self._drop_ahead()

    def say_all(self, as_seen: Callable[[UpdateEncoder, bytes], UpdateEncoder | None]) -> None:
        """Flush what waits, before the feeds change. `as_seen` encodes a record in a state that was
        read, or returns None if it may not be sent."""
        self._kept += self._channel.gathered()
        seen = [(as_seen(encoder, said.new or b""), said) for encoder, said in self._kept]
        self._kept = [(encoder, said) for encoder, said in seen if encoder is not None]

    def frames(
        self,
        on_live: Callable[[], None],
        on_failure: Callable[[Exception], None],
        again: Callable[[], None],
    ) -> Frames:
        """Frames of what the log holds. At its end, or that of the span, `on_live` is called,
        which for a span without end has to join the feeds to their routers. Where it has to wait,
        for an atomic change or as its control says, there are no more frames, until `again` is
        called.
        """
        waits = False
        try:
            while not self._stopped:
                waits = self._has_to_wait(again)
                if waits:
                    return
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
                    waits = self._is_amid_change()
                    if waits:
                        # Its client is sent other things meanwhile.
                        self._engine.atomic.when_over(again)
                        return
                    # What is missing of a range is on its way to the disk.
                    yield b"", 0
        except Exception as error:
            on_failure(error)
        finally:
            if not waits:
                self._let_go()

    def _has_to_wait(self, again: Callable[[], None]) -> bool:
        if self._control is None or not self._control.waits(again):
            return False
        if self._control.is_paused:
            self._drop_ahead()
        return True

    def _drop_ahead(self) -> None:
        while self._ahead:
            self._drop_first()

    def _drop_first(self) -> None:
        self._hold(-_size(self._ahead.popleft()))

    def _frame(self) -> tuple[bytes, int]:
        """What was gathered; possibly nothing, which lets others have their turn."""
        durable = 0
        while durable < len(self._kept) and self._is_durable(self._kept[durable][1]):
            durable += 1
        said = [encoder.line(update) for encoder, update in self._kept[:durable]]
        del self._kept[:durable]
        lines = [line for line in said if line is not None] + self._lines
        self._lines = []
        if self._control is not None:
            self._control.note_sent(len(lines))
        return (self._channel.encoding.frame(lines), len(lines)) if lines else (b"", 0)

    def _is_durable(self, update: Update) -> bool:
        return update.seq <= self._journal.last_seq

    def _is_over(self) -> bool:
        """Whether everything was processed, entries on their way to the disk included."""
        if self._is_past():
            return True
        if self._reached != self._engine.seq or self._is_amid_change():
            return False
        # What was kept comes before what is live.
        return all(self._is_durable(update) for _, update in self._kept)

    def _is_amid_change(self) -> bool:
        """Whether what is logged, but not stored yet, would be heard again by who is live."""
        changing = self._engine.atomic.topic
        return (
            changing is not None
            and self._engine.atomic.shows_half((changing.name,))
            and self._feed_of(changing.name) is not None
        )

    def _is_past(self) -> bool:
        return self._until is not None and self._reached >= self._until

    def _feed_some(self) -> int:
        """Feed the next entries; returns the number of records."""
        left = self._engine.seq - self._reached
        most = left if left <= LAST_RECORDS else RECORDS_AT_ONCE
        if self._control is not None:
            most = self._control.room(most)
        room = most
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
        count, most = 0, READ_AHEAD if self._control is None else self._control.ahead(READ_AHEAD)
        for entry in self._stored() if self._reached < self._journal.last_seq else self._unstored():
            self._ahead.append(entry)
            self._hold(_size(entry))
            count += len(entry)
            if count >= most:
                break
        return count > 0

    def _stored(self) -> Iterator[LogEntry]:
        if self._journal.first_seq > self._reached + 1:
            # Held back for one slow client, the log would grow for as long as it does not read.
            raise invalid_bookmark(
                f"the log has been trimmed up to {self._journal.first_seq - 1} and this replay had "
                f"come to {self._reached}"
            )
        return self._journal.read(self._reached)

    def _unstored(self) -> Iterator[LogEntry]:
        """Entries on their way to the disk; a range is read from the log alone."""
        if self._until is None:
            for entry in self._engine.sequencer.in_flight():
                if entry.load is not None:
                    return  # it has none of its records
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
        batch = None
        if feed is not None and feed.topic.has_logged(entry):
            batch = self._batch(feed.topic, entry, start, stop)
        if feed is not None and batch is not None:
            if batch.edit is None:
                feed.on_batch(batch, entry.ts_us)
            else:
                feed.on_edit(batch, batch.edit, entry.ts_us)
        self._reached = entry.seq + stop - 1
        return stop - start

    def _batch(self, topic: Records, entry: LogEntry, start: int, stop: int) -> Batch | None:
        """Records of a log entry as changes; None where they change nothing that is known."""
        known = self._known_of(topic)
        if entry.op in ("publish", "edit"):
            bodies = list(entry.bodies[start:stop])
            identities = (
                topic.identities_of(bodies)
                if entry.identities is None
                else list(entry.identities[start:stop])
            )
            if known is None or entry.op == "edit":  # which is no change of the record
                olds: Sequence[bytes | None] = [None] * len(bodies)
            else:
                olds = known.put(identities, bodies)
            seqs: Sequence[int] = range(entry.seq + start, entry.seq + stop)
            batch = _changes(topic, entry, identities, seqs, olds, bodies)
            if entry.origin is not None and entry.origin.edits:
                batch.be_edit(Edit(entry.origin.edits, entry.op == "publish"))
            return batch
        if known is None or entry.identities is None:
            return None
        olds = known.drop(entry.identities[start:stop])
        there = [at for at, old in enumerate(olds, start) if old is not None]
        if not there:
            return None
        left = [entry.identities[at] for at in there]
        seqs = [entry.seq + at for at in there]
        return _changes(topic, entry, left, seqs, [old for old in olds if old is not None], None)

    def _known_of(self, topic: Records) -> KnownStates | None:
        """What is known of a topic; of one that came into being after the start, all that the log
        has of it."""
        if self._known is None or not topic.retains:
            return None
        known = self._known.get(topic.name)
        if known is None or known.topic is not topic:
            known = self._known[topic.name] = KnownStates(topic, ShardedDict(), self._hold)
        return known

    def _release_all(self) -> None:
        if self._windows is not None:
            self._windows.release_all()
        self._lines += self._channel.collect()


def _size(entry: LogEntry) -> int:
    """What the records of an entry take."""
    return sum(map(len, entry.bodies)) + ENTRY_BYTES * len(entry)


def forget(known: Known, engine: Engine) -> None:
    """Let go of what is known of records, in steps."""
    for states in known.values():
        if engine.timers.go_on(states.emptying()):
            engine.notify_work()


def _changes(
    topic: Records,
    entry: LogEntry,
    identities: Sequence[str],
    seqs: Sequence[int],
    olds: Sequence[bytes | None],
    bodies: Sequence[bytes] | None,
) -> Batch:
    """Records of a log entry as changes; None of an old state where it is not known."""
    stamps, reason = [entry.ts_us] * len(identities), REASONS.get(entry.op)
    changes = Changes(topic.name, identities, (), olds, bodies, seqs, stamps, reason)
    return topic.batch(changes, {})
