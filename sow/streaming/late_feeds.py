"""Late feeds: what feeds of a topic have still to do because of batches.

Each channel that is late has a part: a feed, and the batches that concern it. Very many channels
may be late with the same batches, and stay so for long where nobody waits for their client
(`sow.streaming.late_turns`). So the next batch is added here once for all whose last part this is
(`open`): it costs each of them nothing.

What is held counts for the clients that alone are late with it, like a window of theirs.
"""

from collections.abc import Iterator, Sequence

from sow.streaming.channel import CatchUpTurn, Late, Latecomer
from sow.streaming.feeds import ChangeFeed
from sow.streaming.queue_memory import UNFOLDED_BYTES, Holders, resize
from sow.topic.batch import Batch
from sow.topic.records import Records

AS_LONG_AS_ONE_BYTES = 2048
"""So many bytes take a feed as long as a record by itself: they are copied, or parsed."""
FEED_US = 4.0
"""What a feed takes of a batch beside its records, with its turn."""
TOGETHER_RECORDS = 1_000
"""Records that are added to: all that a feed makes of them leaves at once."""


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
