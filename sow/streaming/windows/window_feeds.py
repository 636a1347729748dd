"""Window feeds: a topic as a live window sees it.

A window feed reads a range of an ordered set (`sow.streaming.windows.ordered_sets`), which
processes the topic's changes for it and notifies it when something may have changed there. The
window's channel finds out what has changed when it is time to send.
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
"""What makes two windows ranges of one ordered set: filter, order and what may be seen."""


class WindowFeed(Feed):
    """The feed of a window's channel, over the set that the topic's router gives it."""

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
        """Show a range of this set from now on, or of none."""
        if self._ordered is not None:
            self._ordered.remove(self)
        self._ordered = ordered
        if ordered is not None:
            ordered.add(self)

    def begin_with(self, slots: Slots, requested: int, seq: int) -> None:
        """A query for so many records has just found these to be the first, as of the change `seq`:
        the set continues from them, unless it knows as much."""
        self.ordered.begin_with(slots, requested, seq)

    def succeed(self, known: OrderedSet["WindowFeed"], seq: int) -> None:
        """This set knows what it shows, as of the change `seq`, even if its last window has just
        been closed."""
        self.ordered.succeed(known, seq)

    @property
    def set_key(self) -> SetKey:
        """What identifies the set that it is a range of."""
        return set_key_of(self.key.filter, self.window, self.key.guard)

    @property
    def ordered(self) -> OrderedSet["WindowFeed"]:
        """The set that it is a range of; only while it follows its topic."""
        assert self._ordered is not None
        return self._ordered

    @property
    def first(self) -> int:
        """The first position that it shows."""
        return self.window.skip_n

    @property
    def end(self) -> int:
        """How many records, from the first, determine what it shows."""
        return self.window.end

    @property
    def length(self) -> int:
        """How many it shows at most."""
        return self.window.top_n

    @property
    def can_be_read(self) -> bool:
        """What it shows is there, or can be queried at once."""
        return self._ordered is not None and self._ordered.can_be_read

    def page(self) -> WindowPage:
        """The current page; only while it can be read."""
        window = self.window
        return WindowPage(self.ordered.rows(window.skip_n, window.end))

    @property
    def seq(self) -> int:
        """The number of the newest change that it includes."""
        return self.ordered.seq

    def due_us(self) -> int | None:
        """When the set continues the work before it can be read, if it has any."""
        return None if self._ordered is None else self._ordered.due_us()

    def go_on(self, now_us: int) -> Sequence[WindowChannel]:
        """Take a step of that work; returns all readers of the set, with the last one."""
        is_full = self.ordered.go_on(now_us)
        return [one.channel for one in self.ordered.readers] if is_full else ()

    def notice(self, now_us: int) -> None:
        """Something that it shows may have changed."""
        self.channel.notice(now_us)

    def part_with(self, batch: Batch) -> None:
        """Records have left the topic."""
        self.channel.part_with(batch)


def set_key_of(own: str | None, window: WindowKey, guard: RowPolicy | None) -> SetKey:
    """The set of a window over what passes its own filter, and may be seen."""
    terms = terms_of(window)
    return own, terms if guard is None else guard.order(terms), guard


def terms_of(window: WindowKey) -> tuple[OrderTerm, ...]:
    """The order of a window; () is that of first publication."""
    return parse_order_by(window.order_by) if window.order_by else ()
