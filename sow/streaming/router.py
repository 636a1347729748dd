"""The router: who hears of a topic's changes.

Each topic has one. It knows the topic's feeds, which equal subscriptions share, and the
conflated copies made from the topic (`sow.streaming.filtered_copies`). Feeds that want certain
values of a field are found by the attribute index, all others hear every batch. A feed that fails
does so alone, by its strand: everybody else is told.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from sow.errors import TooLarge
from sow.expressions import Filter
from sow.streaming.channel import Channel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.conflated_feeds import ConflatedFeed
from sow.streaming.feed_index import FeedIndex
from sow.streaming.feeds import Feed
from sow.streaming.filtered_copies import FilteredCopies
from sow.streaming.pattern_subscriptions import PatternSubscriptions
from sow.streaming.update_encoder import FeedKey
from sow.streaming.windows.ordered_sets import OrderedSet
from sow.streaming.windows.window_channel import WindowChannel
from sow.streaming.windows.window_feeds import SetKey, WindowFeed
from sow.topic.batch import Batch
from sow.topic.conflated_topic import ConflatedCopy
from sow.topic.extracted_fields import check_watched
from sow.topic.records import Records

NO_FEEDS: dict[FeedKey, list[Feed]] = {}
NONE_UNFILED: dict[Feed, None] = {}
"""What every router has that nobody has followed yet, and never added to: most topics of a pattern,
of which there may be a hundred thousand, are only stored."""


NONE_ORDERED: "dict[SetKey, OrderedSet[WindowFeed]]" = {}
ORDERED_MAX = 200
"""Ordered sets of a topic: every record that is published is compared with the bound of each, some
tenth of a microsecond."""


class Listener(Protocol):
    """Something that hears all of a topic's changes, such as a copy that is being filled."""

    def on_batch(self, batch: Batch, now_us: int) -> bool:
        """Take in a batch of changes; True when it is due at some time now, and was not."""
        ...

    def due_us(self) -> int | None:
        """When it next has something to do by itself, or None."""
        ...


Routed: TypeAlias = tuple[list[Feed], list[Listener]]
"""Feeds that have to be looked after, and others that are due at some time now, and were not."""


class Router:
    """Feeds, copies and listeners of one topic. `followers` are those of patterns, which it meets
    when it has something to tell."""

    __slots__ = (
        "_attributes", "_feeds", "_filed", "_focuses", "_followers", "_ordered", "_unfiled",
        "listeners", "met", "topic",
    )  # fmt: skip

    def __init__(self, topic: Records, followers: "PatternSubscriptions[Router]") -> None:
        self.topic = topic
        self._followers = followers
        self.met = 0
        """The number of the last follower of a pattern that it has met."""
        self.listeners: tuple[Listener, ...] = ()
        self._focuses: FilteredCopies | None = None
        """Made for the first copy."""
        self._feeds = NO_FEEDS
        self._attributes: FeedIndex | None = None
        """Made for the first feed with a filter: most topics of a pattern never have one."""
        self._filed = 0
        self._unfiled = NONE_UNFILED
        self._ordered = NONE_ORDERED
        """What live windows look at, by filter and order."""

    def feeds(self) -> Iterator[Feed]:
        """All feeds that were made."""
        for equal in self._feeds.values():
            yield from equal

    @property
    def subscription_count(self) -> int:
        """How many subscriptions follow the topic, those that it has not met yet included."""
        return sum(len(feed.members) for feed in self.feeds()) + self._followers.awaiting(self)

    def meet(self) -> None:
        """Make what the followers of patterns need that have come since this was last done."""
        if self.met < self._followers.newest:
            self._followers.meet(self)

    def copies(self) -> list[ConflatedCopy]:
        """All copies of the topic that are filled."""
        copies = [] if self._focuses is None else list(self._focuses.copies())
        external = [one for one in self.listeners if isinstance(one, ConflatedCopy)]
        return copies + [copy for copy in external if copy.is_external]

    def route(self, batch: Batch, now_us: int) -> Routed:
        """Tell everyone of a batch; returns who has to be looked after because of it."""
        if self.met < self._followers.newest:
            self._followers.meet(self)
        woken = self._notify_listeners(batch, now_us) if self.listeners else []
        if self._focuses is not None:
            woken += self._focuses.on_batch(batch, now_us)
        heard: list[Feed] = []
        for feed in self._unfiled:
            try:
                if feed.on_batch(batch, now_us):
                    heard.append(feed)
            except Exception as error:
                feed.channel.fail(error)
        if self._attributes is not None and self._filed:
            for feed, at in self._candidates(batch).items():
                try:
                    if feed.on_records(batch, at, now_us):
                        heard.append(feed)
                except Exception as error:
                    feed.channel.fail(error)
        for ordered in self._ordered.values():
            heard += self._notify_windows(ordered, batch, now_us)
        return heard, woken

    def _notify_listeners(self, batch: Batch, now_us: int) -> list[Listener]:
        return [one for one in self.listeners if one.on_batch(batch, now_us)]

    def _candidates(self, batch: Batch) -> Mapping[Feed, Sequence[int]]:
        """Filed feeds that a batch may concern, with the places of the records that may."""
        assert self._attributes is not None
        try:
            return self._attributes.candidates(batch)
        except Exception:
            # What one of them asks for cannot be read: asked by itself, it fails alone.
            return dict.fromkeys(self._filed_feeds(), range(len(batch)))

    def _filed_feeds(self) -> list[Feed]:
        """Feeds that are found by what a record says."""
        found = (feed for feed in self.feeds() if feed not in self._unfiled)
        return [feed for feed in found if not isinstance(feed, WindowFeed)]

    def _notify_windows(
        self, ordered: OrderedSet[WindowFeed], batch: Batch, now_us: int
    ) -> list[WindowFeed]:
        """Let live windows hear of a batch; returns those that may show something else now."""
        try:
            concerned = ordered.on_batch(batch)
        except Exception as error:
            for feed in ordered.readers:
                feed.channel.fail(error)
            return []
        for feed in concerned:
            feed.notice(now_us)
        return concerned

    def file(self, copy: ConflatedCopy) -> None:
        """Let a copy hear of what concerns it, found by its filter."""
        if copy.is_external:
            self.follow(copy)
            return
        if self._focuses is None:
            self._focuses = FilteredCopies()
        self._focuses.add(copy)

    def unfile(self, copy: ConflatedCopy) -> None:
        """Let a copy hear no more."""
        if copy.is_external:
            self.leave(copy)
        else:
            assert self._focuses is not None
            self._focuses.remove(copy)

    def follow(self, listener: Listener) -> None:
        """Let a listener hear of every batch, after those that do already."""
        self.listeners += (listener,)

    def leave(self, listener: Listener) -> None:
        """Let a listener hear no more."""
        self.listeners = tuple(one for one in self.listeners if one is not listener)

    def shared(self, key: FeedKey, taken: Container[str]) -> Feed | None:
        """The feed of `key` that a session may join whose subscriptions have the names `taken`.

        A session that subscribes twice alike gets two feeds, since each has its own name.
        """
        for feed in self._feeds.get(key, ()):
            if feed.name not in taken and feed.can_be_joined():
                return feed
        return None

    def make(self, channel: Channel, key: FeedKey, condition: Filter | None) -> Feed:
        """A feed for a strand, which hears nothing yet."""
        if isinstance(channel, WindowChannel):
            return WindowFeed(channel, self.topic, key, condition)
        if isinstance(channel, ConflatedChannel):
            return ConflatedFeed(channel, self.topic, key, condition)
        return Feed(channel, self.topic, key, condition)

    def routes_to(self, feed: Feed) -> bool:
        """Whether a feed hears what becomes of the topic."""
        return feed in self._feeds.get(feed.key, ())

    def add(self, feed: Feed) -> None:
        """Let a feed hear what becomes of the topic from now on."""
        if not self._feeds:
            self._feeds, self._unfiled = {}, {}
        self._feeds.setdefault(feed.key, []).append(feed)
        if isinstance(feed, WindowFeed):
            self._add_window(feed)
            return
        if feed.condition is not None:
            self.topic.watched.add(feed.condition.paths)
        if feed.condition is not None and self._attributes is None:
            self._attributes = FeedIndex()
        if self._attributes is not None and self._attributes.add(feed):
            self._filed += 1
        else:
            self._unfiled[feed] = None

    def remove(self, feed: Feed) -> None:
        """Let a feed hear no more, if it has heard at all."""
        equal = self._feeds.get(feed.key, [])
        if feed not in equal:
            return
        if isinstance(feed, WindowFeed):
            self._remove_window(feed)
        elif feed in self._unfiled:
            del self._unfiled[feed]
        elif self._attributes is not None:
            self._attributes.remove(feed)
            self._filed -= 1
        if feed.condition is not None and not isinstance(feed, WindowFeed):
            self.topic.watched.remove(feed.condition.paths)
        equal.remove(feed)
        if not equal:
            del self._feeds[feed.key]

    # Live windows.

    def check_room(self, key: SetKey) -> None:
        """Raise TooLarge if the topic may not have one ordered set more."""
        if key not in self._ordered and len(self._ordered) >= ORDERED_MAX:
            raise TooLarge(
                f"live windows look at {len(self._ordered)} filters and orders of "
                f"{self.topic.name}, as many as a topic may have: each is compared with every "
                "record that is published; use a filter and an order that others use"
            )
        paths = {path for term in key[1] for path in term.paths}.difference(
            self.topic.watched.paths
        )
        if paths:
            check_watched(self.topic.name, len(paths) + len(self.topic.watched.paths))

    def ordered(self, key: SetKey) -> OrderedSet[WindowFeed] | None:
        """What live windows of this filter and order look at, if there are any."""
        return self._ordered.get(key)

    def _add_window(self, feed: WindowFeed) -> None:
        key = feed.set_key
        if key not in self._ordered:
            ordered: OrderedSet[WindowFeed] = OrderedSet(self.topic, feed.condition, key[1])
            self.topic.watched.add(ordered.paths)
            self._ordered = {**self._ordered, key: ordered}
        feed.look_at(self._ordered[key])

    def _remove_window(self, feed: WindowFeed) -> None:
        key, ordered = feed.set_key, feed.ordered
        feed.look_at(None)
        if not ordered.readers:
            ordered.close()
            self.topic.watched.remove(ordered.paths)
            self._ordered = {one: other for one, other in self._ordered.items() if one != key}

    def check(self) -> None:
        """Assert that every feed hears what it wants, for somebody, and no others do."""
        if self._focuses is not None:
            self._focuses.check()
        feeds = list(self.feeds())
        assert all(feed.key == key for key, equal in self._feeds.items() for feed in equal)
        assert all(equal for equal in self._feeds.values())
        windows = [feed for feed in feeds if isinstance(feed, WindowFeed)]
        readers = [feed for ordered in self._ordered.values() for feed in ordered.readers]
        assert {*windows} == {*readers}, "a window that is shown to nobody"
        for ordered in self._ordered.values():
            assert ordered.readers, "nobody looks at an ordered set"
            ordered.check()
        feeds = [feed for feed in feeds if not isinstance(feed, WindowFeed)]
        filed = self._filed_feeds()
        assert self._filed == len(filed)
        assert len(self._unfiled) == len(feeds) - len(filed), "a feed that has gone still hears"
        if self._attributes is not None:
            self._attributes.check(filed)
        for feed in feeds:
            feed.check()
            assert feed.members or feed.channel.is_over, "a feed hears for nobody"
            assert feed.topic is self.topic, "a feed hears another topic than its own"
