"""What a conflated topic or a view has sent, once more: a subscription on its way to the present
from a place in it.

The log has only what it is made of. A second engine (`sow.engine.replay`) processes that again, so
each turn has the content and the bookmark that it had, and goes to the subscription's own feed:
filter, select list and conflation mean the same as live. What that engine holds, the subscriber
holds.

A start of the server may end windows that are open: then copies and views begin with what there
is. A subscriber that goes on over it is sent the difference. So it is at the end: both engines
should hold the same, but neither one that is late nor a mistake may leave a subscriber with
something else for ever. They are compared in steps, and in the last one, in which the feed joins
its router, what differs is sent.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.queries import place_of
from sow.engine.replay import Replay as SecondEngine
from sow.engine.running_topics import CopyTopic, LiveTopic, ViewTopic
from sow.errors import NotKept, StoreError
from sow.history.bookmarks import Moment, last_before
from sow.history.snapshot import Snapshot
from sow.protocol.replies import Frames
from sow.sessions.queries.past_states import PastStates
from sow.store.protocols import Journal, Log
from sow.streaming.channel import ChangeChannel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ChangeFeed
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.batch import Batch, Changes, Reason
from sow.topic.records import Records

COMPARED_AT_ONCE = 1_000
"""Records that one step compares, some half a microsecond each."""
FEW = 1_000
"""So many records are left for the last step, of those that change while others are compared, and
of the log: a client that reads slowly lets much come. Where more have, it catches up once more."""
ROUNDS_MAX = 5
"""Where very many change all the time, the last step takes them all."""


class SentReplay:
    """The replay of one topic's feed up to the present, where it joins its router. `hold` is called
    with the bytes that it takes, and with minus that at the end."""

    goes_by_states = True
    """It depends on what the subscriber holds."""
    holds_records = True

    def __init__(
        self, engine: Engine, journal: Journal, topic: LiveTopic, hold: Callable[[int], object]
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._topic = topic
        self._hold = hold
        self._held_bytes = 0
        self._log: Log = journal
        self._second: SecondEngine | None = None
        self._lives = 0
        self._held: Records | None = None
        """What the subscriber holds; None before it was sent anything."""
        self._feed: ChangeFeed | None = None
        self._stopped = False

    def beginning(self, past: PastStates, moment: Moment) -> Task[None]:
        """Come to the moment after which the subscriber is sent everything."""
        self._log = past.log
        steps = past.replay_to(self._topic, moment, self._count)
        self._second = second = yield from steps
        second.listen(self._on_sent)
        self._lives, self._held = second.lives, self._present()

    @property
    def second(self) -> SecondEngine:
        """The engine that processes the log once more."""
        assert self._second is not None
        return self._second

    def state(self) -> Task[Snapshot]:
        """The records that it has come to."""
        then = yield from self.second.state(self._topic.name)
        return replace(then, topic=self._topic.records)

    def place(self, seq: int) -> int:
        """The place of these in what the topic has sent, when `seq` was the newest change."""
        topics = self.second.engine.topics
        topic = topics.get(self._topic.name)
        return seq if topic is None else place_of(topic, topics, seq, self.second.now_us)

    def follow(self, feed: ChangeFeed) -> None:
        """Send what comes from now on to a feed."""
        self._feed = feed

    def _present(self) -> Records | None:
        """The topic's records as they are in the second engine."""
        found = self.second.engine.topics.get(self._topic.name)
        return None if found is None else found.records

    def _count(self, second: SecondEngine | None) -> None:
        taken = 0 if second is None else second.engine.catalog.usage.bytes
        self._hold(taken - self._held_bytes)
        self._held_bytes = taken

    def say_all(self, _as_seen: Callable[[UpdateEncoder, bytes], UpdateEncoder | None]) -> None:
        """It is ended where permissions change."""

    def stop(self) -> None:
        """Stop: nothing follows it any more."""
        self._stopped = True
        second, self._second = self._second, None
        self._count(None)
        if second is not None and self._engine.timers.go_on(second.emptying()):
            self._engine.notify_work()

    # Frames.

    def frames(
        self,
        on_live: Callable[[], None],
        on_failure: Callable[[Exception], None],
        _again: Callable[[], None],
    ) -> Frames:
        """Frames of what was sent. At the end, `on_live` is called, which has to join the feed to
        its router if that is the present."""
        steps = self._telling()
        try:
            while not self._stopped and next(steps, self) is not self:
                self._count(self._second)
                yield self._frame()
            if not self._stopped:
                # What is left in the channel is sent with the open group, once that is durable.
                on_live()
        except Exception as error:
            on_failure(self._overtaken(error))
        finally:
            if not self._stopped:
                self.stop()

    def _overtaken(self, error: Exception) -> Exception:
        """What has ended it: the log is not held back for a client that reads slowly."""
        oldest = self._journal.first_seq - 1
        if isinstance(error, StoreError) and oldest > (reached := self.second.seq):
            return NotKept(
                f"the log has been trimmed up to {oldest} and this replay had come to {reached}"
            )
        return error

    @property
    def _channel(self) -> ChangeChannel:
        assert self._feed is not None
        channel = self._feed.channel
        assert isinstance(channel, ChangeChannel)
        return channel

    def _frame(self) -> tuple[bytes, int]:
        """What has gathered; what is on its way to the disk waits in the channel until it is
        live."""
        if self._stopped or self.second.seq > self._journal.last_seq:
            return b"", 0
        lines = self._channel.collect()
        return (self._channel.encoding.frame(lines), len(lines)) if lines else (b"", 0)

    def _telling(self) -> Task[None]:
        # A server that is late has not sent yet what another one of its log has.
        while self._now().time_us < self.second.now_us:
            yield
        for _ in range(ROUNDS_MAX):
            changed: dict[str, None] = {}
            with self._engine.on_changes(partial(self._note, changed)):
                until = self._now()
                yield from self._advancing(until)
                yield from self._comparing(changed)
                while (now := self._now()).seq - until.seq > FEW:
                    until = now
                    yield from self._advancing(until)
                # In the middle of a turn views have not taken in what is in the log.
                while self._engine.views.is_dirty:
                    yield
                if len(changed) <= FEW:
                    break
        for _ in self._advancing(self._now()):
            pass
        self._tell([*changed])

    def _note(self, changed: dict[str, None], records: Records, identities: Sequence[str]) -> None:
        if records is self._topic.records:
            changed.update(dict.fromkeys(identities))

    def _now(self) -> Moment:
        """The moment that the topic shows now."""
        now_us = self._engine.now_us
        for one in self._copies(self._topic.name):  # one may be late
            now_us = min(now_us, one.copy.place(now_us).time_us)
        if now_us < self._engine.now_us:
            return Moment(last_before(now_us, self._log), now_us)
        return Moment(self._log.last_seq, now_us)

    def _copies(self, name: str) -> Iterator[CopyTopic]:
        """The conflated topics that a topic is, or is made of."""
        topic = self._engine.topics.get(name)
        if isinstance(topic, CopyTopic):
            yield topic
            yield from self._copies(topic.underlying)
        elif isinstance(topic, ViewTopic):
            for source in topic.view.sources:
                yield from self._copies(source)

    def _advancing(self, until: Moment) -> Task[None]:
        """Process the log up to a moment, and send what the topic does."""
        self.second.learn(self._engine.configurations.all())
        for _ in self.second.advance(until):
            yield from self._over_a_start()
            self._let_time_pass()
            yield
        yield from self._over_a_start()
        self._let_time_pass()

    def _let_time_pass(self) -> None:
        """End the subscription's own windows, at the times of the log."""
        channel, now_us = self._channel, self.second.now_us
        if isinstance(channel, ConflatedChannel):
            while (due_us := channel.due_us()) is not None and due_us <= now_us:
                channel.advance(now_us)

    def _on_sent(self, topic: LiveTopic, batch: Batch) -> None:
        """The topic has sent something, then."""
        if topic.name == self._topic.name and self._feed is not None:
            self._let_time_pass()
            # Slots are those of another table.
            self._pass_on(replace(batch.changes, slots=(), stood=None), [*batch.marks])

    def _pass_on(self, changes: Changes, marks: list[int]) -> None:
        assert self._feed is not None
        own = self._feed.topic.batch(changes, {})
        own.be_sent_at(*marks)
        self._feed.on_batch(own, self.second.now_us)

    # Differences.

    def _over_a_start(self) -> Task[None]:
        """Send what is otherwise since the topic was made again."""
        present = self._present()
        if self.second.is_beginning:
            return
        if self._lives == self.second.lives and (present is self._held or present is None):
            return
        before, self._held = self._held, present
        self._lives = self.second.lives
        changed: dict[str, None] = {}
        yield from _differing(before, present, changed)
        place = self.place(self.second.engine.seq)
        for one in _differences(before, present, [*changed], self._topic.records):
            self._pass_on(one, [place] * len(one))

    def _comparing(self, changed: dict[str, None]) -> Task[None]:
        yield from _differing(self._held, self._topic.records, changed)

    def _tell(self, identities: list[str]) -> None:
        """Send what is otherwise than in the second engine."""
        engine, present = self._engine, self._topic.records
        place = place_of(self._topic, engine.topics, engine.seq, engine.now_us)
        for changes in _differences(self._held, present, identities, present):
            self._pass_on(changes, [place] * len(changes))


def _differing(before: Records | None, after: Records | None, found: dict[str, None]) -> Task[None]:
    """Find the records that are not the same in two states, in steps."""
    for one, other in ((before, after), (after, before)):
        if one is None:
            continue
        table, slots = one.table, one.table.live()
        for start in range(0, len(slots), COMPARED_AT_ONCE):
            for slot in slots[start : start + COMPARED_AT_ONCE].tolist():
                identity = table.identities[slot]
                if identity is not None and table.bodies[slot] != body_of(other, identity):
                    found[identity] = None
            yield


def body_of(records: Records | None, identity: str) -> bytes | None:
    """A record's body; None if there is none."""
    slot = None if records is None else records.table.slots.get(identity)
    return None if records is None or slot is None else records.table.bodies[slot]


def _differences(
    before: Records | None, after: Records | None, identities: list[str], topic: Records
) -> Iterator[Changes]:
    """From one state of some records to another, as changes of `topic`."""
    pairs = [(one, body_of(before, one), body_of(after, one)) for one in identities]
    there = [(one, old, new) for one, old, new in pairs if new is not None and new != old]
    if there:
        assert after is not None
        names, olds, news = zip(*there, strict=True)
        slots = [after.table.slots[name] for name in names]
        stamps = after.table.seqs[slots].tolist(), after.table.ts_us[slots].tolist()
        yield Changes(topic.name, list(names), (), list(olds), list(news), *stamps)
    gone = [(one, old) for one, old, new in pairs if new is None and old is not None]
    if gone:
        assert before is not None
        names, olds = zip(*gone, strict=True)
        slots = [before.table.slots[name] for name in names]
        stamps = before.table.seqs[slots].tolist(), before.table.ts_us[slots].tolist()
        reason: Reason = "deleted"
        yield Changes(topic.name, list(names), (), list(olds), None, *stamps, reason)
