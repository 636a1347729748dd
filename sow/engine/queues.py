"""Queues at work: a topic of messages, which the publishes to another topic fill.

    publish ──> stored in its topic ──> a record of the queue ──> leased ──> delivered
                                    acknowledged: the record is deleted <──┘

All of it is in the step of its cause, and so in one group: a crash leaves a message with its
publish, and no delivery that the journal does not know. A message is a record of the queue's own
topic, under the bookmark of its publish and the SowKey of its record, logged like any other; that
it is leased is a record of the server's own (`LEASES`), written when the group is closed. Queries
pass over leased messages (`Indexes.hidden`).

Which consumer gets which message is decided by `sow.topic.message_queue`; how consumers come to be,
and what is sent to them, by `sow.sessions.commands.queue_commands` and the routes of leases.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import orjson

from sow.core.cooperative import Task
from sow.core.definitions import LEASES, QueueSettings, Topic
from sow.core.humanize import counted
from sow.core.paths import Path, parse_path
from sow.engine.engine import Engine
from sow.engine.running_topics import SourceTopic
from sow.errors import SowError, TooLarge
from sow.expressions import Filter
from sow.indexes.sorting import sorting
from sow.messages.json import json_text
from sow.topic.message_queue import UNLEASED, LeaseState, MessageQueue, QueueConsumer, QueuedMessage
from sow.topic.records import CheckedMessages

GIVEN_AT_ONCE = 500
"""Messages that one step gives out, or whose leases it ends: some twenty microseconds each."""
BYTES_AT_ONCE = 4 * 1024**2
"""Bytes of bodies that one step gives out: copied into lines, some milliseconds."""
RESTORED_AT_ONCE = 5_000
"""Names of messages, or leases, that one step reads: some two microseconds each."""
COMMITTED_MAX = 10_000
"""Rows of one batch commit to a topic with a queue: they become messages in one step, some
microseconds each."""
AGAIN_US = 50_000
"""What could not be done, since a disk was full or a consumer had not read, is tried again after
this: nobody notices it, and twenty times a second cost nothing."""


class DeliveredMessage(NamedTuple):
    """What a consumer gets of a message."""

    bookmark: int
    key: str
    """The SowKey of the record that was published."""
    body: bytes
    deliveries: int
    lease: str
    until_us: int


class ReceivingConsumer(QueueConsumer):
    """A consumer whose messages are handed to `deliver`, all that it gets in one step together."""

    __slots__ = ("deliver",)

    def __init__(
        self,
        backlog_max: int,
        name_lease: Callable[[int], str],
        deliver: Callable[[list[DeliveredMessage]], None],
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(backlog_max, name_lease, is_open)
        self.deliver = deliver


class RunningQueue:
    """One queue: `topic` has its messages, as records. A timer of its engine."""

    def __init__(
        self,
        engine: Engine,
        topic: SourceTopic,
        definition: QueueSettings,
        write: Callable[[], None],
        report: Callable[[str], None],
    ) -> None:
        self.topic = topic
        self.queue = MessageQueue(definition)
        self._hidden: set[int] = set()
        topic.records.indexes.hide(self._hidden)
        self.acknowledged = self.expired = self.dead = self.dropped = 0
        """Messages acknowledged, leases that have ended, and what MaxDeliveries has taken out, to
        the topic of dead letters or to nowhere; since the server started."""
        self._engine = engine
        self._write = write
        self._report = report
        self._source: SourceTopic | None = None
        """What it is fed by, while it works."""
        self._priority: Path | None = None
        self._barrier: Filter | None = None
        self._go_by(definition)
        self._again_us: int | None = None
        """When messages are given out again that the disk did not take, or consumers."""
        self._bury_us: int | None = None
        """When dead messages are tried again."""
        self._returning: deque[tuple[QueuedMessage, str, bool]] = deque()
        """Messages of consumers that are gone, with their holders, and whether that counts."""

    def _go_by(self, definition: QueueSettings) -> None:
        self.definition = definition
        self.queue.go_by(definition)
        self._priority = None if definition.priority is None else parse_path(definition.priority)
        text = definition.barrier
        self._barrier = None if text is None else self._engine.filter(text)

    @property
    def available(self) -> int:
        """How many messages wait."""
        return len(self.queue.messages) - self.queue.leased - len(self.queue.dead)

    @property
    def is_at_most_once(self) -> bool:
        """A message leaves the queue when it is delivered."""
        return self.definition.semantics == "at-most-once"

    # Messages.

    def check_room(self, rows: int) -> None:
        """Raise TooLarge where a batch has more rows than one step makes messages of."""
        if rows > COMMITTED_MAX:
            raise TooLarge(
                f"the batch has {rows} rows, each a message of the queue {self.topic.name}, and "
                f"{COMMITTED_MAX} are the most of one: write it in several batches"
            )

    def take(
        self, keys: Sequence[str], bodies: Sequence[bytes], seqs: Sequence[int], now_us: int
    ) -> None:
        """Messages have been published, to records of these SowKeys."""
        names = [f"{seq}-{key}" for seq, key in zip(seqs, keys, strict=True)]
        records = self.topic.records
        self._engine.put(self.topic, records.stored(bodies, names), now_us)
        for seq, name, priority, is_barrier in zip(
            seqs, names, self._priorities(bodies), self._barriers(bodies), strict=True
        ):
            self.queue.add(seq, name, priority, is_barrier)
        self.settle(now_us)

    def _priorities(self, bodies: Sequence[bytes]) -> list[float]:
        if self._priority is None:
            return [0.0] * len(bodies)
        (column,) = self.topic.records.decoder((self._priority,)).columns(list(bodies))
        return [*map(_number, column)]

    def _barriers(self, bodies: Sequence[bytes]) -> Sequence[bool]:
        condition = self._barrier
        if condition is None:
            return [False] * len(bodies)
        columns = self.topic.records.decoder(condition.paths).columns(list(bodies))
        return condition.matches(columns, len(bodies))

    def restoring(self, known: dict[int, LeaseState]) -> Task[None]:
        """Go on with the messages and leases that were stored, in steps, between which nothing may
        change."""
        slots = self.topic.records.table.slots
        left, names, bookmarks = iter(slots), list[str](), np.empty(len(slots))
        while some := [*islice(left, RESTORED_AT_ONCE)]:
            start = len(names)
            names += some
            bookmarks[start : len(names)] = [float(one.partition("-")[0]) for one in some]
            yield
        order = yield from sorting(np.arange(len(names)), [lambda rows: bookmarks[rows]])
        for start in range(0, len(order), GIVEN_AT_ONCE):
            self._restore([names[at] for at in order[start : start + GIVEN_AT_ONCE]], known)
            yield

    def _restore(self, names: Sequence[str], known: dict[int, LeaseState]) -> None:
        table = self.topic.records.table
        bodies = [table.bodies[table.slots[name]] or b"" for name in names]
        columns = self._priorities(bodies), self._barriers(bodies)
        for name, priority, is_barrier in zip(names, *columns, strict=True):
            bookmark = int(name.partition("-")[0])
            state = known.pop(bookmark, UNLEASED)
            self.queue.add(bookmark, name, priority, is_barrier, state)
            if state.holder:
                self._hide(self.queue.messages[bookmark])

    def begin(self) -> None:
        """Take what is published from now on, and let leases end."""
        self._be_fed()
        self.topic.hold(self)
        self._engine.timers.add(self)
        self._note(self._engine.now_us)

    def _be_fed(self) -> None:
        source = self._engine.catalog.topics[self.definition.underlying]
        assert isinstance(source, SourceTopic)
        source.feed(self)
        self._source = source

    def change(self, definition: QueueSettings) -> None:
        """Go by other settings: what is leased stays so until its end, and consumers that are there
        keep their backlogs."""
        if self._source is not None and definition.underlying != self.definition.underlying:
            self._source.feed_no_more(self)
            self._go_by(definition)
            self._be_fed()
        self._go_by(definition)
        self.settle(self._engine.now_us)

    def stop(self) -> None:
        """Nothing is a message of it any more: it is being removed."""
        if self._source is not None:
            self._source.feed_no_more(self)
            self._source = None
        self._engine.timers.remove(self)

    # Giving out.

    def settle(self, now_us: int) -> None:
        """Something has changed: give out what can be, and see to what is left in time."""
        self._take_back()
        self._bury(now_us)
        if self.queue.can_give and self._may_log(now_us):
            self._give(now_us)
        self._note(now_us)

    def _may_log(self, now_us: int) -> bool:
        """Whether the disk takes leases; else they are tried again."""
        try:
            self._engine.disk.check_removal([self.topic.name] * GIVEN_AT_ONCE)
        except SowError:
            self._again_us = now_us + AGAIN_US
            return False
        return True

    def _give(self, now_us: int) -> None:
        given: dict[QueueConsumer, list[DeliveredMessage]] = {}
        gone: list[QueuedMessage] = []
        left_bytes = BYTES_AT_ONCE
        for consumer, message in self.queue.give(now_us, GIVEN_AT_ONCE):
            delivered = self._delivered(message)
            given.setdefault(consumer, []).append(delivered)
            self._hide(message)
            if self.is_at_most_once:
                gone.append(message)
            left_bytes -= len(delivered.body)
            if left_bytes <= 0:
                break
        for message in gone:
            self.queue.forget(message)
        self._remove(gone, now_us)
        for consumer, messages in given.items():
            assert isinstance(consumer, ReceivingConsumer)
            consumer.deliver(messages)

    def _delivered(self, message: QueuedMessage) -> DeliveredMessage:
        return DeliveredMessage(
            message.bookmark,
            message.identity.partition("-")[2],
            self.topic.records.body(message.identity) or b"",
            message.deliveries,
            message.holder,
            message.until_us,
        )

    def _hide(self, message: QueuedMessage) -> None:
        self._hidden.add(self.topic.records.table.slots[message.identity])

    def _show(self, message: QueuedMessage) -> None:
        self._hidden.discard(self.topic.records.table.slots[message.identity])

    def _remove(self, messages: Sequence[QueuedMessage], now_us: int) -> None:
        if messages:
            for message in messages:
                self._show(message)
            names = [message.identity for message in messages]
            self._engine.remove(self.topic, names, "delete", now_us)

    def _note(self, now_us: int) -> None:
        """Have leases written with the open group, and come back in time."""
        engine, queue = self._engine, self.queue
        if queue.changed:
            self._write()
        is_due = self._again_us is not None or queue.can_give
        if self.is_at_most_once and self.available and queue.consumers and not is_due:
            self._again_us = now_us + AGAIN_US  # a consumer that has read by then
        engine.timers.note(self)
        engine.notify_work()

    # Consumers.

    def join(self, consumer: ReceivingConsumer, now_us: int) -> None:
        """A consumer takes messages from now on."""
        self.queue.join(consumer)
        self.settle(now_us)

    def leave(self, consumer: ReceivingConsumer) -> None:
        """A consumer takes no more, and what it holds stays leased."""
        self.queue.leave(consumer)

    def end(self, consumer: ReceivingConsumer, counts: bool = True) -> None:
        """A consumer is gone, and what it holds goes to others, some in each step; whether its
        deliveries count is for `MessageQueue.cancel`."""
        held = [*consumer.held.values()]
        self.queue.leave(consumer)
        self._returning += [(message, message.holder, counts) for message in held]
        self.settle(self._engine.now_us)

    def _take_back(self) -> None:
        for _ in range(min(len(self._returning), GIVEN_AT_ONCE)):
            message, holder, counts = self._returning.popleft()
            if message.holder == holder and self.queue.messages.get(message.bookmark) is message:
                self.queue.cancel(message, counts)
                self._show(message)

    def offer(self, consumer: ReceivingConsumer) -> None:
        """A consumer may be open again."""
        self.queue.offer(consumer)
        self.settle(self._engine.now_us)

    # What holders do; each returns how many of these bookmarks were held, and is to be settled.

    def acknowledge(self, bookmarks: Sequence[int], holder: str, now_us: int) -> int:
        """Messages are done."""
        held = self._held(bookmarks, holder, now_us)
        self._engine.disk.check_removal([message.identity for message in held])
        for message in held:
            self.queue.forget(message)
        self._remove(held, now_us)
        self.acknowledged += len(held)
        return len(held)

    def cancel(self, bookmarks: Sequence[int], holder: str, now_us: int) -> int:
        """Messages are given back, as if they had not been delivered."""
        held = self._held(bookmarks, holder, now_us)
        for message in held:
            self.queue.cancel(message)
            self._show(message)
        return len(held)

    def extend(self, bookmarks: Sequence[int], holder: str, until_us: int, now_us: int) -> int:
        """Messages are held until another time."""
        held = self._held(bookmarks, holder, now_us)
        for message in held:
            self.queue.extend(message, until_us)
        return len(held)

    def _held(self, bookmarks: Sequence[int], holder: str, now_us: int) -> list[QueuedMessage]:
        found = (self.queue.held(one, holder, now_us) for one in dict.fromkeys(bookmarks))
        return [message for message in found if message is not None]

    # Time.

    def due_us(self) -> int | None:
        """When a lease ends, or something is to be done again; 0: there is more to give out."""
        queue = self.queue
        has_more = queue.can_give and self._again_us is None
        if has_more or self._returning or (queue.dead and self._bury_us is None):
            return 0
        dues = (queue.due_us(), self._again_us, self._bury_us)
        return min((due_us for due_us in dues if due_us is not None), default=None)

    def advance(self, now_us: int) -> None:
        """End leases whose time has come, some of them, and give out what waits."""
        if self._again_us is not None and self._again_us <= now_us:
            self._again_us = None
            for consumer in [*self.queue.consumers]:
                self.queue.offer(consumer)
        if self._bury_us is not None and self._bury_us <= now_us:
            self._bury_us = None
        for message in self.queue.end_leases(now_us, GIVEN_AT_ONCE):
            self.expired += 1
            self._show(message)
        self.settle(now_us)

    # Dead letters.

    def _bury(self, now_us: int) -> None:
        dead, why = self.queue.dead, ""
        if self._bury_us is not None:
            return
        for _ in range(min(len(dead), GIVEN_AT_ONCE)):
            try:
                self._engine.disk.check_removal([dead[0].identity])
                if not self._is_buried(dead[0], now_us):
                    self._bury_us = now_us + AGAIN_US
                    return
            except SowError as error:
                why = error.detail
                dead.rotate(-1)  # others may be taken
                continue
            message = dead.popleft()
            self.queue.forget(message)
            self._remove([message], now_us)
        if why:
            letters = self.definition.dead_letters or "the disk"
            self._report(
                f"queue {self.topic.name}: {letters} does not take "
                f"{counted(len(dead), 'dead message')}: {why}; this is tried again"
            )
            self._bury_us = now_us + self.definition.lease_us

    def _is_buried(self, message: QueuedMessage, now_us: int) -> bool:
        """Publish a message as a dead letter, or count it as dropped; False: not yet."""
        name, engine = self.definition.dead_letters, self._engine
        if name is None:
            self.dropped += 1
            return True
        if not engine.is_free(name):
            return False
        topic = engine.publishable(name)
        letter = self._delivered(message)
        has_keys = topic.records.keys or topic.chain is not None
        keys = None if has_keys else [letter.key]
        read = engine.read(topic, [letter.body], keys, now_us=now_us)
        engine.publications.put_slice(topic, read, now_us, topic.expiry_us(None, now_us))
        self.dead += 1
        return True

    def check(self) -> None:
        """Assert that messages, records and what queries see agree."""
        self.queue.check()
        table = self.topic.records.table
        names = {message.identity for message in self.queue.messages.values()}
        assert names == set(table.slots), "a message without a record, or the reverse"
        leased = [one.identity for one in self.queue.messages.values() if one.holder]
        assert self.topic.records.indexes.hidden == {table.slots[name] for name in leased}


class Queues:
    """The queues of one engine, by their names. Of one that follows another server there are none
    before it leads: its log says what becomes of messages. `report` is called with sentences for
    the operator."""

    def __init__(self, engine: Engine, report: Callable[[str], None]) -> None:
        self._engine = engine
        self._report = report
        self.by_name: dict[str, RunningQueue] = {}
        self.names: set[str] = set()
        """Also of those that are not here yet."""
        self._name()
        self._is_marked = False
        engine.on_lead(self.restoring, self.begin)

    def _name(self) -> None:
        topics = self._engine.configuration.topics
        self.names = {one.name for one in topics if isinstance(one, Topic) and one.queue}

    def look(self) -> None:
        """Go by the configuration that is in force since a reload: let queues work that are new,
        and forget those that are gone."""
        self._name()
        if self._engine.primary:
            return
        if self.by_name.keys() - self.names:
            self._write_changed()
        for name in self.by_name.keys() - self.names:
            del self.by_name[name]
        for name in self.names - self.by_name.keys():
            topic = self._engine.catalog.topics[name]
            assert isinstance(topic, SourceTopic)
            one = self.by_name[name] = self._made(topic)
            one.begin()

    def _made(self, topic: SourceTopic) -> RunningQueue:
        settings = topic.definition.queue
        assert settings is not None
        return RunningQueue(self._engine, topic, settings, self._mark, self._report)

    def restoring(self) -> Task[None]:
        """Go on with the messages and leases that the engine has, in steps."""
        found = dict[str, RunningQueue]()
        known = (yield from self._known()) if self.names else {}
        for topic in [*self._engine.catalog]:
            if isinstance(topic, SourceTopic) and topic.definition.queue is not None:
                one = self._made(topic)
                yield from one.restoring(known.pop(topic.name, {}))
                found[topic.name] = one
        self.by_name.update(found)

    def begin(self) -> None:
        """Let them work."""
        for one in self.by_name.values():
            one.begin()

    def _known(self) -> Task[dict[str, dict[int, LeaseState]]]:
        """What is stored of leases, by queue and bookmark; in steps."""
        table = self._engine.catalog.account(LEASES).records.table
        found: dict[str, dict[int, LeaseState]] = {}
        for at, (_, slot) in enumerate(table.slots.items(), 1):
            if at % RESTORED_AT_ONCE == 0:
                yield
            noted = orjson.loads(table.bodies[slot] or b"")
            state = LeaseState(noted["deliveries"], noted["holder"], noted["until"])
            found.setdefault(noted["queue"], {})[int(noted["bm"])] = state
        return found

    def _mark(self) -> None:
        """Write what has changed when the open group is closed."""
        if not self._is_marked:
            self._is_marked = True
            self._engine.output.at_close.append(self._write_changed)

    def _write_changed(self) -> None:
        self._is_marked = False
        engine, put, gone = self._engine, list[bytes](), list[bytes]()
        for name, one in self.by_name.items():
            for message in one.queue.take_changed():
                is_there = one.queue.messages.get(message.bookmark) is message
                is_known = is_there and (message.holder or message.deliveries)
                (put if is_known else gone).append(_noted(name, message))
        topic = engine.catalog.account(LEASES)
        records = topic.records
        if put:
            names = records.identities_of(put)
            engine.put(topic, CheckedMessages(put, names, {}), engine.now_us)
        names = [name for name in records.identities_of(gone) if name in records.table]
        if names:
            engine.remove(topic, names, "delete", engine.now_us)

    def check(self) -> None:
        """Assert what is always true of queues, between two steps."""
        for one in self.by_name.values():
            one.check()


def _noted(queue: str, message: QueuedMessage) -> bytes:
    """What is stored of a lease."""
    return json_text(
        {
            "queue": queue,
            "bm": str(message.bookmark),
            "deliveries": message.deliveries,
            "holder": message.holder,
            "until": message.until_us,
        }
    )


def _number(value: object) -> float:
    """A priority: a number, or what reads as one; 0 for anything else."""
    try:
        number = float(value) if isinstance(value, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return number if number == number else 0.0
