"""A message queue: what waits, who holds what until when, and who gets the next message.

A message waits until it is *leased* to a consumer. Its holder acknowledges it, and it is gone;
cancels, and it waits again; or lets the lease end. One that comes back after `deliveries_max`
deliveries is *dead*. A delivery counts when a message is leased, and a cancel takes it back.

Messages go by priority, then in the order of their bookmarks. A *barrier* is a message that waits
until all before it are acknowledged, and holds up all after it: so messages are in segments.
The first alone is given out, and a barrier is one of its own.

Consumers with room stand in a heap, ranked by the fairness model: by age, by turn, or by how much
of its backlog each uses. Nothing here costs more for what waits, nor for consumers that are full.
Times are parameters, and nothing is stored: `changed` has what the caller has to
(`sow.engine.queues`).
"""

from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from heapq import heappop, heappush
from typing import NamedTuple

from sow.core.containers import LazyHeap, sharded_if_long
from sow.core.definitions import QueueSettings

Rank = tuple[float, int, int]


class LeaseState(NamedTuple):
    """What is kept of a message beside its body."""

    deliveries: int = 0
    holder: str = ""
    until_us: int = 0


UNLEASED = LeaseState()
"""Of a message that nobody has had."""


class QueueSegment:
    """Messages that may be given out in any order, or the one barrier."""

    __slots__ = ("count", "is_barrier", "waiting")

    def __init__(self, is_barrier: bool) -> None:
        self.is_barrier = is_barrier
        self.count = 0
        """Those that are not acknowledged."""
        self.waiting: list[tuple[float, int, QueuedMessage]] = []


class QueuedMessage:
    """One message: its `bookmark`, which names it, and the `identity` of its record. `holder` has
    leased it until `until_us`; without one it waits."""

    __slots__ = (
        "bookmark", "consumer", "deliveries", "holder", "identity", "priority", "segment",
        "until_us",
    )  # fmt: skip

    def __init__(
        self, bookmark: int, identity: str, priority: float, segment: QueueSegment
    ) -> None:
        self.bookmark = bookmark
        self.identity = identity
        self.priority = priority
        self.segment = segment
        self.deliveries = 0
        self.holder = ""
        self.until_us = 0
        self.consumer: QueueConsumer | None = None
        """The consumer that has it, while there is one."""


class QueueConsumer:
    """Takes messages: `backlog_max` at a time, while it `is_open`. `name_lease` returns the holder
    of a message that it gets, by its bookmark."""

    __slots__ = ("backlog_max", "held", "is_open", "name_lease", "number", "rank", "turn")

    def __init__(
        self,
        backlog_max: int,
        name_lease: Callable[[int], str],
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self.backlog_max = backlog_max
        self.name_lease = name_lease
        self.is_open = is_open
        self.held: dict[int, QueuedMessage] = {}
        self.number = self.turn = 0
        self.rank: Rank | None = None
        """Its valid place among those with room."""


class MessageQueue:
    """The messages of one queue by their bookmarks, and its consumers."""

    def __init__(self, definition: QueueSettings) -> None:
        self.definition = definition
        self.messages: MutableMapping[int, QueuedMessage] = {}
        self._leased: dict[int, QueuedMessage] = {}
        """Those of them that are held."""
        self.consumers: dict[QueueConsumer, None] = {}
        self.changed: dict[int, QueuedMessage] = {}
        """Messages whose lease or deliveries have changed; the caller empties it."""
        self.dead: deque[QueuedMessage] = deque()
        """Messages that are delivered no more; the caller removes them."""
        self._segments: deque[QueueSegment] = deque()
        self._ready: LazyHeap[tuple[Rank, QueueConsumer]] = LazyHeap()
        self._ends: LazyHeap[tuple[int, int]] = LazyHeap()
        self._turns = 0

    def go_by(self, definition: QueueSettings) -> None:
        """Go by other settings from now on; what is leased stays so until its end."""
        self.definition = definition

    def take_changed(self) -> list[QueuedMessage]:
        """Empty `changed`, and return what it had."""
        changed, self.changed = self.changed, {}
        return [*changed.values()]

    # Messages.

    @property
    def leased(self) -> int:
        """How many messages are held."""
        return len(self._leased)

    def add(
        self,
        bookmark: int,
        identity: str,
        priority: float,
        is_barrier: bool,
        known: LeaseState = UNLEASED,
    ) -> None:
        """A message has come, behind all there are; of a restored one its lease may be `known`."""
        segments = self._segments
        if not segments or is_barrier or segments[-1].is_barrier:
            segments.append(QueueSegment(is_barrier))
        message = QueuedMessage(bookmark, identity, priority, segments[-1])
        message.segment.count += 1
        self.messages = sharded_if_long(self.messages)
        self.messages[bookmark] = message
        message.deliveries = known.deliveries
        if known.holder:
            self._hold(message, known.holder, known.until_us)
        else:
            self._go_back(message)

    def _wait(self, message: QueuedMessage) -> None:
        heappush(message.segment.waiting, (-message.priority, message.bookmark, message))

    def forget(self, message: QueuedMessage) -> None:
        """A leased message is gone: acknowledged, dead, or delivered at most once."""
        self._let_go(message)
        del self.messages[message.bookmark]
        self.changed[message.bookmark] = message
        message.segment.count -= 1
        while self._segments and not self._segments[0].count:
            self._segments.popleft()

    def _hold(self, message: QueuedMessage, holder: str, until_us: int) -> None:
        message.holder, message.until_us = holder, until_us
        self._leased[message.bookmark] = message
        self._note_end(message)

    def _note_end(self, message: QueuedMessage) -> None:
        heappush(self._ends, (message.until_us, message.bookmark))
        if self._ends.is_stale(self.leased):
            self._ends.rebuild((one.until_us, one.bookmark) for one in self._leased.values())

    def _let_go(self, message: QueuedMessage) -> None:
        """It has no holder any more, who has room for another one."""
        if message.holder:
            del self._leased[message.bookmark]
        consumer, message.consumer, message.holder = message.consumer, None, ""
        if consumer is not None:
            del consumer.held[message.bookmark]
            self.offer(consumer)

    # Consumers.

    def join(self, consumer: QueueConsumer) -> None:
        """A consumer takes messages from now on."""
        self._turns += 1
        consumer.number, consumer.turn = self._turns, 0
        self.consumers[consumer] = None
        self.offer(consumer)

    def offer(self, consumer: QueueConsumer) -> None:
        """A consumer may have room: rank it among those that have."""
        consumer.rank = None
        used = len(consumer.held)
        if consumer not in self.consumers or used >= consumer.backlog_max:
            return
        match self.definition.fairness:
            case "fast":
                consumer.rank = 0.0, 0, consumer.number
            case "round-robin":
                consumer.rank = 0.0, consumer.turn, consumer.number
            case _:
                consumer.rank = used / consumer.backlog_max, consumer.turn, consumer.number
        heappush(self._ready, (consumer.rank, consumer))
        if self._ready.is_stale(len(self.consumers)):
            self._ready.rebuild((one.rank, one) for one in self.consumers if one.rank is not None)

    def leave(self, consumer: QueueConsumer) -> None:
        """A consumer takes no more; what it holds stays leased."""
        self.consumers.pop(consumer, None)
        consumer.rank = None
        for message in consumer.held.values():
            message.consumer = None
        consumer.held = {}

    # Giving out.

    @property
    def can_give(self) -> bool:
        """There is a message for a consumer with room."""
        if not (self._segments and self._segments[0].waiting):
            return False
        most = self.definition.backlog_max
        return (most is None or self.leased < most) and self._next_consumer() is not None

    def _next_consumer(self) -> QueueConsumer | None:
        ready = self._ready
        while (first := ready.first(lambda one: one[1].rank is one[0])) is not None:
            if first[1].is_open():
                return first[1]
            first[1].rank = None  # until it is offered again
        return None

    def give(self, now_us: int, most: int) -> Iterator[tuple[QueueConsumer, QueuedMessage]]:
        """Lease up to so many messages, each to the consumer whose turn it is."""
        for _ in range(most):
            if not self.can_give:
                return
            consumer = self._next_consumer()
            assert consumer is not None
            _, _, message = heappop(self._segments[0].waiting)
            if self._is_worn(message):
                self.dead.append(message)  # by settings that were changed
                continue
            message.deliveries += 1
            message.consumer = consumer
            self._hold(
                message, consumer.name_lease(message.bookmark), now_us + self.definition.lease_us
            )
            consumer.held[message.bookmark] = message
            self._turns += 1
            consumer.turn = self._turns
            self.changed[message.bookmark] = message
            self.offer(consumer)
            yield consumer, message

    # What holders do.

    def held(self, bookmark: int, holder: str, now_us: int) -> QueuedMessage | None:
        """The message of a bookmark, while this is its holder."""
        message = self._leased.get(bookmark)
        if message is None or message.holder != holder or message.until_us <= now_us:
            return None
        return message

    def cancel(self, message: QueuedMessage, counts: bool = False) -> None:
        """Its holder gives a message back; unless the delivery `counts`, it is as if it had not
        been delivered."""
        message.deliveries -= not counts
        self._give_back(message)

    def extend(self, message: QueuedMessage, until_us: int) -> None:
        """Its holder has a message until another time."""
        message.until_us = until_us
        self._note_end(message)
        self.changed[message.bookmark] = message

    def _give_back(self, message: QueuedMessage) -> None:
        self._let_go(message)
        self.changed[message.bookmark] = message
        self._go_back(message)

    def _is_worn(self, message: QueuedMessage) -> bool:
        """It was delivered as often as it may be."""
        most = self.definition.deliveries_max
        return most is not None and message.deliveries >= most

    def _go_back(self, message: QueuedMessage) -> None:
        """It waits, unless it is dead."""
        if self._is_worn(message):
            self.dead.append(message)
        else:
            self._wait(message)

    # Time.

    def due_us(self) -> int | None:
        """When the next lease ends."""
        first = self._ends.first(self._is_held)
        return None if first is None else first[0]

    def _is_held(self, end: tuple[int, int]) -> bool:
        message = self._leased.get(end[1])
        return message is not None and message.until_us == end[0]

    def end_leases(self, now_us: int, most: int) -> list[QueuedMessage]:
        """End up to so many leases whose time has come; returns their messages."""
        ended: list[QueuedMessage] = []
        while len(ended) < most:
            first = self._ends.first(self._is_held)
            if first is None or first[0] > now_us:
                break
            heappop(self._ends)
            ended.append(self.messages[first[1]])
            self._give_back(ended[-1])
        return ended

    def check(self) -> None:
        """Assert what is always true of a queue, between two steps."""
        held = [one for one in self.messages.values() if one.holder]
        waiting = [entry[2] for segment in self._segments for entry in segment.waiting]
        assert {id(one) for one in held} == {id(one) for one in self._leased.values()}
        assert {*map(id, held)}.isdisjoint(map(id, waiting)), "a held message waits"
        assert len(held) + len(waiting) + len(self.dead) == len(self.messages)
        for consumer in self.consumers:
            assert all(one.consumer is consumer for one in consumer.held.values())
            assert len(consumer.held) <= consumer.backlog_max
        for one in held:
            assert one.consumer is None or one.consumer.held[one.bookmark] is one
            assert (one.until_us, one.bookmark) in self._ends, "its lease never ends"
        assert all(segment.count for segment in self._segments)
        assert sum(segment.count for segment in self._segments) == len(self.messages)
