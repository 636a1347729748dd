"""Window feeds: a topic as a live window sees it.

It looks at a stretch of an ordered set (`sow.streaming.windows.ordered_sets`), which hears the
topic's changes for it and says when something may have changed there. What that is, the window's
strand finds out when it is time to tell.
"""

from collections.abc import Sequence

from sow.expressions import Filter, OrderTerm, parse_order_by
from sow.security.row_level_security import RowPolicy
from sow.store.columns import Slots
from sow.streaming.feeds import Feed
from sow.streaming.update_encoder import FeedKey, WindowKey
from sow.streaming.windows.ordered_sets import OrderedSet
from sow.streaming.windows.window_channel import WindowChannel
from sow.streaming.windows.window_pages import WindowPage
from sow.topic.batch import Batch
from sow.topic.records import Records

SetKey = tuple[str | None, tuple[OrderTerm, ...], RowPolicy | None]
"""What makes two windows stretches of one ordered set: filter, order and what may be seen."""


class WindowFeed(Feed):
    """The feed of a window's strand, over the set that it is given by the topic's router."""

    channel: WindowChannel

    def __init__(
        self, channel: WindowChannel, topic: Records, key: FeedKey, condition: Filter | None
    ) -> None:
        super().__init__(channel, topic, key, condition)
        assert key.window is not None
        self.window: WindowKey = key.window
        self._ordered: OrderedSet[WindowFeed] | None = None
        channel.show(self)

    def look_at(self, ordered: OrderedSet["WindowFeed"] | None) -> None:
        """Show a stretch of this set from now on, or of none any more."""
        if self._ordered is not None:
            self._ordered.remove(self)
        self._ordered = ordered
        if ordered is not None:
            ordered.add(self)

    def begin_with(self, slots: Slots, requested: int, seq: int) -> None:
        """A query for so many records has just found these to be the first, as of the change `seq`:
        the set goes on from them, unless it knows as much."""
        self.ordered.begin_with(slots, requested, seq)

    def succeed(self, known: OrderedSet["WindowFeed"], seq: int) -> None:
        """What it shows is known to this set, as of the change `seq`, though the last window over
        that may just have gone."""
        self.ordered.succeed(known, seq)

    @property
    def set_key(self) -> SetKey:
        """What makes the set that it is a stretch of."""
        return set_key_of(self.key.filter, self.window, self.key.guard)

    @property
    def ordered(self) -> OrderedSet["WindowFeed"]:
        """The set that it is a stretch of; only while it hears its topic."""
        assert self._ordered is not None
        return self._ordered

    @property
    def first(self) -> int:
        """The place that it shows first."""
        return self.window.skip_n

    @property
    def end(self) -> int:
        """How many records, from the first, decide what it shows."""
        return self.window.end

    @property
    def length(self) -> int:
        """How many it shows at most."""
        return self.window.top_n

    @property
    def can_be_read(self) -> bool:
        """What it shows is there, or at hand."""
        return self._ordered is not None and self._ordered.can_be_read

    def page(self) -> WindowPage:
        """What it shows now; only while that can be read."""
        window = self.window
        return WindowPage(self.ordered.rows(window.skip_n, window.end))

    @property
    def seq(self) -> int:
        """The number of the newest change that it knows of."""
        return self.ordered.seq

    def due_us(self) -> int | None:
        """When the set goes on with what it takes to be read, if that is what it waits for."""
        return None if self._ordered is None else self._ordered.due_us()

    def go_on(self, now_us: int) -> Sequence[WindowChannel]:
        """Take a step towards that; returns all who look at the set, with the last one."""
        is_full = self.ordered.go_on(now_us)
        return [one.channel for one in self.ordered.readers] if is_full else ()

    def notice(self, now_us: int) -> None:
        """Something that it shows may have changed."""
        self.channel.notice(now_us)

    def part_with(self, batch: Batch) -> None:
        """Records have left the topic."""
        self.channel.part_with(batch)


def set_key_of(own: str | None, window: WindowKey, guard: RowPolicy | None) -> SetKey:
    """The set of a window that keeps to what passes its own filter, and may be seen."""
    terms = terms_of(window)
    return own, terms if guard is None else guard.order(terms), guard


def terms_of(window: WindowKey) -> tuple[OrderTerm, ...]:
    """The order of a window; () is that of first publication."""
    return parse_order_by(window.order_by) if window.order_by else ()
