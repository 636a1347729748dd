"""What is late, and its turns: no client makes others wait for what it alone has ordered.

Channels and views that are late (`sow.streaming.channel`) catch up in turns: of clients, in one
circle, and within a client of its channels. A client's fifteen hundred subscriptions have together
what another's one has.

A publisher waits for those who are late because of it. That slows a publisher down to the pace of
its followers, and with it all other followers. So it does not wait for a client whose subscriptions
take more than `ORDERED_US` of a record: such a client is behind, and others go on. What it has
still to process counts for it as queue memory, like a window of its own. A channel that several
clients share is always waited for, and has turns of its own.

Each channel that is late has a part: a feed, and the batches that concern it (`LateFeeds`). Very
many channels may be late with the same batches, and stay so for long where nobody waits for their
client. So the next batch is added once for all whose last part this is: it costs each of them
nothing.
"""

from collections.abc import Iterator, Sequence

from sow.streaming.channel import CatchUpTurn, Late, Latecomer
from sow.streaming.feeds import ChangeFeed
from sow.streaming.queue_memory import UNFOLDED_BYTES, Holders, QueueShare, resize
from sow.streaming.session_memory import SessionMemory
from sow.topic.batch import Batch
from sow.topic.records import Records

ORDERED_US = 500
"""What a record may take all channels of a client that are late, to be waited for: a thousand a
second are half of a processor. That is 25 select lists of deltas, 60 intervals or 500 filters that
no index finds."""
AS_LONG_AS_ONE_BYTES = 2048
"""So many bytes take a feed as long as a record by itself: they are copied, or parsed."""
FEED_US = 4.0
"""What a feed takes of a batch beside its records, with its turn."""
TOGETHER_RECORDS = 1_000
"""Records that are added to: all that a feed makes of them leaves at once."""


class LateClient:
    """The channels of one client that are late, in the order of their turns; or one channel of
    several clients, or what views are late with."""

    __slots__ = ("client", "is_alone", "is_awaited", "latecomers", "memories", "ordered_us")

    def __init__(self, client: QueueShare | Latecomer) -> None:
        self.client = client
        self.is_alone = isinstance(client, QueueShare)
        self.is_awaited = True
        """Publishers wait for it."""
        self.latecomers: dict[Latecomer, float] = {}
        """With what a record takes each."""
        self.memories: dict[SessionMemory, None] = {}
        """Of its sessions."""
        self.ordered_us = 0.0
        """What it takes all of them."""

    def fall_behind(self) -> None:
        """It is waited for no more."""
        self.is_awaited = False
        for latecomer in self.latecomers:
            for late in latecomer.late:
                late.topic.count_unawaited(1)


class LateTurns(dict[Latecomer, LateClient]):
    """What is late, with the client that shares its turns."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: dict[QueueShare | Latecomer, LateClient] = {}
        """In the order of their turns."""

    @property
    def has_awaited(self) -> bool:
        """Others wait for somebody who is late."""
        return any(one.is_awaited for one in self._clients.values())

    def add(self, latecomer: Latecomer, cost_us: float) -> None:
        """A channel or view is about to be late, unless it is; a record takes it so much."""
        if latecomer in self:
            return
        client: QueueShare | Latecomer | None = None
        for session in latecomer.members:
            share = session.memory.share
            if client not in (None, share):
                client = latecomer
                break
            client = share
        client = client or latecomer
        if client not in self._clients:
            self._clients[client] = LateClient(client)
        turn = self[latecomer] = latecomer.turn = self._clients[client]
        turn.latecomers[latecomer] = cost_us
        turn.ordered_us += cost_us
        if turn.is_alone:
            for session in latecomer.members:
                turn.memories[session.memory] = None
            if turn.ordered_us > ORDERED_US and turn.is_awaited:
                turn.fall_behind()

    def discard(self, latecomer: Latecomer) -> None:
        """It is late no more, if it was."""
        turn = self.pop(latecomer, None)
        if turn is not None:
            latecomer.turn = None
            turn.ordered_us -= turn.latecomers.pop(latecomer)
            if not turn.latecomers:
                del self._clients[turn.client]

    def turns(self) -> Iterator[LateClient]:
        """The next client, again and again, while there is one; it goes to the end."""
        while self._clients:
            client = next(iter(self._clients))
            turn = self._clients[client] = self._clients.pop(client)
            yield turn

    def yield_to_others(self, latecomer: Latecomer) -> None:
        """Others of its client have their turns before it has another one."""
        latecomers = self[latecomer].latecomers
        latecomers[latecomer] = latecomers.pop(latecomer)

    def check(self) -> None:
        """Assert what is always true between two steps."""
        assert all(one.late for one in self), "somebody has caught up unnoticed"
        turns = [*self._clients.values()]
        held = {one: turn for turn in turns for one in turn.latecomers}
        assert held == self, "late without a turn"
        assert all(one.turn is turn for one, turn in self.items())


def weight_of(batch: Batch) -> float:
    """What a batch counts, in records."""
    news = batch.changes.news
    return len(batch) if news is None else len(news) + sum(map(len, news)) / AS_LONG_AS_ONE_BYTES


Part = tuple[ChangeFeed, int, Sequence[int] | None]
"""What one channel has to do: a feed with the batches from the first one, of that one the records
at these places; None: all records, and of all that is added."""


class LateFeeds:
    """What feeds of a topic are late with, beginning with one batch: each finds its part when it is
    its turn, in steps of `step_us`."""

    def __init__(self, topic: Records, batch: Batch, now_us: int, step_us: float) -> None:
        self.topic = topic
        self._step_us = step_us
        self.alone = (self,)
        self.open: dict[ChangeFeed, None] = {}
        """Feeds that get what is added."""
        self.parts: dict[Latecomer, Part] = {}
        self.held_bytes = 0
        self.holders: Holders = {}
        self._sealed: dict[Latecomer, int] = {}
        """The number of batches when a part was the last one of its channel no more."""
        self._batches: list[tuple[Batch, int, float]] = []
        self._newest = -1
        self._records = 0
        self._turns: dict[CatchUpTurn, int] = {}
        """How many parts each client has that waits alone."""
        self.add(batch, now_us)

    @property
    def is_full(self) -> bool:
        """Nothing is added any more."""
        return self._records >= TOGETHER_RECORDS

    def add(self, batch: Batch, now_us: int) -> None:
        """One more batch, for feeds that are `open` and those that take it."""
        # Slots may be those of other records by then.
        batch.keys()
        count = len(batch)
        self._records += count
        self._newest += 1
        self._batches.append((batch, now_us, weight_of(batch) / max(1, count)))
        grown = count * UNFOLDED_BYTES + sum(map(len, batch.changes.news or ()))
        self.held_bytes += grown
        resize(self.holders, grown)

    def take(self, feed: ChangeFeed, at: Sequence[int] | None = None) -> None:
        """A feed is late with the records at these places of the newest batch, or with all of it
        and what is added."""
        channel = feed.channel
        turn = channel.turn
        if turn is not None and turn.is_alone:
            if turn not in self._turns:
                self._turns[turn] = 0
                for memory in turn.memories:
                    memory.wait_in(self)
            self._turns[turn] += 1
        self.parts[channel] = feed, self._newest, at
        if at is None:
            self.open[feed] = None
        channel.postpone(self)

    def seal(self, latecomer: Latecomer) -> None:
        """Add nothing for this one: it is late with something else after it."""
        part = self.parts.get(latecomer)
        if part is not None and part[0] in self.open:
            del self.open[part[0]]
            self._sealed[latecomer] = len(self._batches)

    def of(self, latecomer: Latecomer) -> Late:
        """What it is to the channel of one of them."""
        self.seal(latecomer)
        feed, first, at = self.parts.pop(latecomer)
        self._let_go(latecomer.turn)
        batches = self._batches[first : self._sealed.pop(latecomer, first + 1)]
        places = [range(len(batch)) if at is None else at for batch, _, _ in batches]
        cost_us = FEED_US * len(batches) + sum(
            feed.cost_us * len(here) * one[2] for here, one in zip(places, batches, strict=True)
        )
        return Late(self.topic, min(cost_us, self._step_us), self._steps(feed, batches, places))

    def _let_go(self, turn: CatchUpTurn | None) -> None:
        if turn in self._turns:
            self._turns[turn] -= 1
            if not self._turns[turn]:
                del self._turns[turn]
                for memory in turn.memories:
                    memory.leave(self)

    def _steps(
        self,
        feed: ChangeFeed,
        batches: Sequence[tuple[Batch, int, float]],
        places: Sequence[Sequence[int]],
    ) -> Iterator[None]:
        left_us = self._step_us
        for (batch, now_us, weight), at in zip(batches, places, strict=True):
            record_us = feed.cost_us * weight
            cost_us = FEED_US + record_us * len(at)
            if cost_us > left_us < self._step_us:
                left_us = self._step_us
                yield
            yield from feed.in_steps(batch, at, now_us, max(1, int(self._step_us / record_us)))
            left_us -= cost_us
