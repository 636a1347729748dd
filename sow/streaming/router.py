"""The router: delivers a topic's changes to its feeds and copies.

Each topic has one. It has the topic's feeds, which equal subscriptions share, and the conflated
copies of the topic (`sow.streaming.predicate_index`). Feeds that select values of a field are found
by an index (`sow.streaming.predicate_index`), all others get every batch. A feed that fails does so
alone, by its channel: all others get the batch.

A pattern subscription follows every topic whose name matches, including later ones. A pattern may
match a hundred thousand topics, and registering a subscription with each of them would take too
long. So a topic is not notified of it. Before a topic next routes a change it *meets* the
subscriptions that were added since it last did, which then attach what they need. A topic without
changes costs its pattern subscriptions nothing.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from sow.errors import TooLarge
from sow.expressions import Filter, access_of
from sow.streaming.channel import Channel, DirectChannel, Late, Latecomer, in_one_step
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ChangeFeed, ConflatedFeed, DirectFeed, Feed
from sow.streaming.late_turns import FEED_US, LateFeeds, LateTurns, weight_of
from sow.streaming.predicate_index import FilteredCopies, Found, PredicateIndex
from sow.streaming.update_encoder import FeedKey
from sow.streaming.windows.ordered_sets import OrderedSet
from sow.streaming.windows.window_channel import SetKey, WindowChannel, WindowFeed
from sow.topic.batch import Batch, Edit
from sow.topic.conflated_topic import ConflatedCopy
from sow.topic.fields import check_watched
from sow.topic.records import Records


class PatternSubscription(Protocol):
    """Follows the topics of a pattern (`sow.sessions.subscriptions`)."""

    def meet(self, place: "Router") -> None:
        """Follow the topic from now on, if it is wanted."""
        ...

    def awaits(self, place: "Router") -> bool:
        """Whether the topic is wanted and not followed yet."""
        ...


class PatternSubscriptions:
    """All pattern subscriptions, in the order in which they were added."""

    def __init__(self) -> None:
        self.newest = 0
        """The number of the newest one; a topic that has met it has met all."""
        self._numbers: dict[PatternSubscription, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, follower: PatternSubscription) -> None:
        """Add a pattern subscription."""
        self.newest += 1
        self._numbers[follower] = self.newest

    def remove(self, follower: PatternSubscription) -> None:
        """Remove a pattern subscription, if it is here."""
        self._numbers.pop(follower, None)

    def meet(self, place: "Router") -> None:
        """Introduce to a topic the subscriptions that were added since it last met any."""
        unmet = [*self._unmet(place)]
        place.met = self.newest
        for follower in reversed(unmet):
            follower.meet(place)

    def awaiting(self, place: "Router") -> int:
        """How many want a topic that they have not met."""
        return sum(follower.awaits(place) for follower in self._unmet(place))

    def _unmet(self, place: "Router") -> Iterator[PatternSubscription]:
        """Those that a topic has not met, newest first."""
        if place.met < self.newest:
            for follower, number in reversed(self._numbers.items()):
                if number <= place.met:
                    break
                yield follower

    def check(self) -> None:
        """Assert what meeting relies on."""
        numbers = [*self._numbers.values()]
        assert numbers == sorted(set(numbers)), "subscriptions out of the order of their addition"
        assert not numbers or numbers[-1] <= self.newest


class FeedIndex:
    """Feeds by the terms of their filters. Feeds that no term finds are not indexed.

    Thousands of users who each follow their own symbol, or prices beyond their own limit, are
    thousands of feeds. Evaluating each filter on each record is expensive; looking the record's
    values up costs a few microseconds. A candidate still has to pass its whole filter, so the index
    only rules out feeds that cannot match: neither the new state of a record nor, for feeds that
    report leaving, the old one.
    """

    def __init__(self) -> None:
        self._terms: PredicateIndex[ChangeFeed] = PredicateIndex()

    def add(self, feed: ChangeFeed) -> bool:
        """Index a feed; False when its filter has no usable term.

        A feed that tracks what its subscribers hold where nothing is stored is not indexed either:
        no old state shows that a record was in focus.
        """
        if feed.condition is None or (feed.known is not None and not feed.topic.retains):
            return False
        return self._terms.add(feed, access_of(feed.condition))

    def remove(self, feed: ChangeFeed) -> None:
        """Remove an indexed feed."""
        assert feed.condition is not None
        self._terms.remove(feed, access_of(feed.condition))

    def check(self, filed: Iterable[ChangeFeed]) -> None:
        """Assert that exactly these feeds are found, each by all terms it needs."""
        self._terms.check({feed: access_of(feed.condition) for feed in filed if feed.condition})

    def candidates(self, batch: Batch) -> Found[ChangeFeed]:
        """Candidate feeds, each with the places of the records that matched its terms."""
        found: Found[ChangeFeed] = {}
        every = range(len(batch))
        if batch.changes.news is not None:
            batch.read(self._terms.paths(old=False))
            self._terms.find(batch.column, every, found, old=False)
        if old := self._terms.paths(old=True):
            batch.read(old, old=True)
            self._terms.find(batch.old_column, every, found, old=True)
        return {feed: sorted(set(places)) for feed, places in found.items()} if found else found


NO_FEEDS: dict[FeedKey, list[Feed]] = {}
NONE_UNFILED: dict[ChangeFeed, None] = {}
"""Shared by all routers without subscribers, and never added to: a hundred thousand topics of a
pattern may only be stored."""


NONE_ORDERED: "dict[SetKey, OrderedSet[WindowFeed]]" = {}
ORDERED_MAX = 200
"""Ordered sets of a topic: every published record is compared with the bound of each, some tenth of
a microsecond."""


class BatchListener(Protocol):
    """Anything that gets all of a topic's changes, such as a copy that is being filled."""

    @property
    def late_us(self) -> float:
        """Microseconds that a record takes, about; 0 where it may not be late."""
        ...

    def on_batch(self, batch: Batch, now_us: int) -> bool:
        """Process a batch of changes; True when it now falls due at some time, and did not."""
        ...

    def due_us(self) -> int | None:
        """When it next has work of its own, or None."""
        ...


AT_ONCE_US = 2_000
"""What the feeds of a topic may take of a batch in the step that stores it, as long as a slice of
the scheduler; beyond it they are late."""
Routed: TypeAlias = tuple[list[Feed], list[BatchListener]]
"""Feeds whose channels have work, and listeners that now fall due at some time, and did not."""


class Router:
    """Feeds, copies and listeners of one topic. `followers` are the pattern subscriptions, which it
    meets before it routes."""

    __slots__ = (
        "_attributes", "_behind", "_cost_us", "_feeds", "_filed", "_focuses", "_followers",
        "_ordered", "_tail", "_unfiled", "listeners", "met", "topic",
    )  # fmt: skip

    def __init__(self, topic: Records, followers: PatternSubscriptions) -> None:
        self.topic = topic
        self._followers = followers
        self.met = 0
        """The number of the last pattern subscription that it has met."""
        self.listeners: tuple[BatchListener, ...] = ()
        self._behind: Latecomer | None = None
        """The listeners that are late, together; made when there are some."""
        self._focuses: FilteredCopies | None = None
        """Made for the first copy."""
        self._feeds = NO_FEEDS
        self._cost_us = 0.0
        """Of a record, with all feeds that it may concern."""
        self._attributes: FeedIndex | None = None
        """Made for the first feed with a filter: most topics of a pattern never have one."""
        self._filed = 0
        self._unfiled = NONE_UNFILED
        self._tail: LateFeeds | None = None
        """The last that feeds without an index are late with."""
        self._ordered = NONE_ORDERED
        """What live windows read, by filter and order."""

    def feeds(self) -> Iterator[Feed]:
        """All feeds."""
        for equal in self._feeds.values():
            yield from equal

    @property
    def subscription_count(self) -> int:
        """How many subscriptions follow the topic, including those that it has not met yet."""
        return sum(len(feed.members) for feed in self.feeds()) + self._followers.awaiting(self)

    @property
    def is_followed(self) -> bool:
        """Whether anything is done with what is routed."""
        self.meet()
        own = self._feeds or self._ordered or self.listeners
        return bool(own) or self._focuses is not None

    def meet(self) -> None:
        """Attach the pattern subscriptions that were added since this was last done."""
        if self.met < self._followers.newest:
            self._followers.meet(self)

    def copies(self) -> list[ConflatedCopy]:
        """All filled copies of the topic."""
        copies = [] if self._focuses is None else list(self._focuses.copies())
        external = [one for one in self.listeners if isinstance(one, ConflatedCopy)]
        return copies + [copy for copy in external if copy.is_external]

    @property
    def is_behind(self) -> bool:
        """Some listeners have not processed all changes yet."""
        return self._behind is not None and bool(self._behind.late)

    def route(self, batch: Batch, now_us: int, late: LateTurns | None = None) -> Routed:
        """Deliver a batch to all that it concerns; returns what now has work. `late` are those that
        have some to process from earlier, and those that have some from now on; None: all is
        processed now."""
        if self.met < self._followers.newest:
            self._followers.meet(self)
        if batch.edit is not None:
            return self._route_edit(batch, batch.edit, now_us, late)
        woken = self._notify_listeners(batch, now_us, late) if self.listeners else []
        if self._focuses is not None:
            woken += self._focuses.on_batch(batch, now_us)
        changed: list[Feed] = []
        cost_us = self._cost_us
        if cost_us and late is not None and (late or cost_us * weight_of(batch) > AT_ONCE_US):
            self._in_turn(batch, now_us, late, changed)
        elif self._feeds:
            self._at_once(batch, now_us, changed)
        if self._ordered:
            for ordered in self._ordered.values():
                changed += self._notify_windows(ordered, batch, now_us)
        return changed, woken

    def _route_edit(self, batch: Batch, edit: Edit, now_us: int, late: LateTurns | None) -> Routed:
        """Deliver a change that replaces an event: to feeds, after what they are late with, and if
        the record has changed by it, to all others."""
        changed: list[Feed] = []
        woken: list[BatchListener] = []
        for feed in [one for one in self.feeds() if isinstance(one, ChangeFeed)]:
            if feed.channel.late:
                # Slots may be those of other records by then.
                batch.keys()
                act = partial(feed.on_edit, batch, edit, now_us)
                feed.channel.postpone(Late(self.topic, feed.cost_us, in_one_step(act)))
                continue
            try:
                if feed.on_edit(batch, edit, now_us):
                    changed.append(feed)
            except Exception as error:
                feed.channel.fail(error)
        if edit.is_newest:
            woken = self._notify_listeners(batch, now_us, late)
            for ordered in self._ordered.values():
                changed += self._notify_windows(ordered, batch, now_us)
        return changed, woken

    def _at_once(self, batch: Batch, now_us: int, changed: list[Feed]) -> None:
        """Let all feeds process a batch."""
        for feed in self._unfiled:
            try:
                if feed.on_batch(batch, now_us):
                    changed.append(feed)
            except Exception as error:
                feed.channel.fail(error)
        if self._attributes is not None and self._filed:
            for feed, at in self._candidates(batch).items():
                try:
                    if feed.on_records(batch, at, now_us):
                        changed.append(feed)
                except Exception as error:
                    feed.channel.fail(error)

    def _in_turn(self, batch: Batch, now_us: int, late: LateTurns, changed: list[Feed]) -> None:
        """Let feeds process a batch as far as one step may take; the others, and those whose
        channels are late already, do so later."""
        every, tail = range(len(batch)), self._tail
        concerned: dict[ChangeFeed, Sequence[int]] = dict.fromkeys(self._unfiled, every)
        if tail is not None and tail.open and not tail.is_full:
            tail.add(batch, now_us)
            concerned = {feed: every for feed in self._unfiled if feed not in tail.open}
        else:
            tail = None
        if self._attributes is not None and self._filed:
            concerned.update(self._candidates(batch))
        left_us, weight = float(AT_ONCE_US), weight_of(batch) / max(1, len(batch))
        behind: LateFeeds | None = None
        for feed, at in concerned.items():
            channel, cost_us = feed.channel, FEED_US + feed.cost_us * weight * len(at)
            if channel.late or cost_us > left_us:
                late.add(channel, feed.cost_us)
                if at is every:
                    if tail is None or channel in tail.parts:
                        tail = LateFeeds(self.topic, batch, now_us, AT_ONCE_US)
                    tail.take(feed)
                else:
                    behind = behind or LateFeeds(self.topic, batch, now_us, AT_ONCE_US)
                    behind.take(feed, at)
                continue
            left_us -= cost_us
            try:
                if feed.on_records(batch, at, now_us):
                    changed.append(feed)
            except Exception as error:
                channel.fail(error)
        self._tail = tail

    def _notify_listeners(
        self, batch: Batch, now_us: int, late: LateTurns | None
    ) -> list[BatchListener]:
        """Pass a batch to listeners, to those that may be late as far as one step may take and none
        is late already; returns those that fall due."""
        woken: list[BatchListener] = []
        left_us, weight = float(AT_ONCE_US), weight_of(batch)
        for one in self.listeners:
            cost_us = one.late_us * weight
            # The first one never waits.
            waits = cost_us and (self.is_behind or cost_us > left_us < AT_ONCE_US)
            if waits and late is not None:
                self._postpone(one, batch, now_us, cost_us, late)
            elif one.on_batch(batch, now_us):
                woken.append(one)
            left_us -= cost_us
        return woken

    def _postpone(
        self, one: BatchListener, batch: Batch, now_us: int, cost_us: float, late: LateTurns
    ) -> None:
        # Slots may be those of other records by then.
        batch.keys()
        batch.places(self.topic.table)

        def act() -> None:
            if one in self.listeners:
                one.on_batch(batch, now_us)

        if self._behind is None:
            self._behind = Latecomer()
        late.add(self._behind, cost_us)
        self._behind.postpone(Late(self.topic, min(cost_us, AT_ONCE_US), in_one_step(act)))

    def _candidates(self, batch: Batch) -> Mapping[ChangeFeed, Sequence[int]]:
        """Indexed feeds that a batch may concern, with the places of the records that may."""
        assert self._attributes is not None
        try:
            return self._attributes.candidates(batch)
        except Exception:
            # A field that one of them needs cannot be read: evaluated alone, it fails alone.
            return dict.fromkeys(self._filed_feeds(), range(len(batch)))

    def _filed_feeds(self) -> list[ChangeFeed]:
        """Feeds that are found by a record's values."""
        changes = (feed for feed in self.feeds() if isinstance(feed, ChangeFeed))
        return [feed for feed in changes if feed not in self._unfiled]

    def _notify_windows(
        self, ordered: OrderedSet[WindowFeed], batch: Batch, now_us: int
    ) -> list[WindowFeed]:
        """Pass a batch to live windows; returns those that may show something else now."""
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
        """Route to a copy what concerns it, found by its filter."""
        if copy.is_external:
            self.follow(copy)
            return
        if self._focuses is None:
            self._focuses = FilteredCopies()
        self._focuses.add(copy)

    def alike(self, copy: ConflatedCopy) -> ConflatedCopy | None:
        """A copy that has the same content as this one from now on."""
        return None if self._focuses is None else self._focuses.alike(copy)

    def unfile(self, copy: ConflatedCopy) -> None:
        """Stop routing to a copy."""
        if copy.is_external:
            self.leave(copy)
        else:
            assert self._focuses is not None
            self._focuses.remove(copy)

    def follow(self, listener: BatchListener) -> None:
        """Route every batch to a listener, after the present ones."""
        self.listeners += (listener,)

    def leave(self, listener: BatchListener) -> None:
        """Stop routing to a listener."""
        self.listeners = tuple(one for one in self.listeners if one is not listener)

    def shared(self, key: FeedKey, taken: Container[str]) -> Feed | None:
        """The feed of `key` that a session with subscriptions of the names `taken` may join.

        A session that subscribes twice alike gets two feeds, since each has its own name.
        """
        for feed in self._feeds.get(key, ()):
            if feed.name not in taken and feed.can_be_joined():
                return feed
        return None

    def make(self, channel: Channel, key: FeedKey, condition: Filter | None) -> Feed:
        """A feed for a channel; it is not routed to yet."""
        if isinstance(channel, WindowChannel):
            return WindowFeed(channel, self.topic, key, condition)
        if isinstance(channel, ConflatedChannel):
            return ConflatedFeed(channel, self.topic, key, condition)
        assert isinstance(channel, DirectChannel)
        return DirectFeed(channel, self.topic, key, condition)

    def routes_to(self, feed: Feed) -> bool:
        """Whether a feed gets the topic's changes."""
        return feed in self._feeds.get(feed.key, ())

    def add(self, feed: Feed) -> None:
        """Route to a feed from now on."""
        if not self._feeds:
            self._feeds, self._unfiled = {}, {}
        self._feeds.setdefault(feed.key, []).append(feed)
        if isinstance(feed, WindowFeed):
            self._add_window(feed)
            return
        assert isinstance(feed, ChangeFeed)
        if feed.condition is not None:
            self.topic.watched.add(feed.condition.paths)
        if feed.condition is not None and self._attributes is None:
            self._attributes = FeedIndex()
        self._cost_us += feed.cost_us
        if self._attributes is not None and self._attributes.add(feed):
            self._filed += 1
        else:
            self._unfiled[feed] = None

    def remove(self, feed: Feed) -> None:
        """Stop routing to a feed, if it is routed to."""
        equal = self._feeds.get(feed.key, [])
        if feed not in equal:
            return
        if isinstance(feed, WindowFeed):
            self._remove_window(feed)
        elif isinstance(feed, ChangeFeed):
            self._remove_filed(feed)
        equal.remove(feed)
        if not equal:
            del self._feeds[feed.key]

    def _remove_filed(self, feed: ChangeFeed) -> None:
        self._cost_us -= feed.cost_us
        if feed in self._unfiled:
            del self._unfiled[feed]
            if self._tail is not None:
                self._tail.seal(feed.channel)
        elif self._attributes is not None:
            self._attributes.remove(feed)
            self._filed -= 1
        if feed.condition is not None:
            self.topic.watched.remove(feed.condition.paths)

    # Live windows.

    def check_room(self, key: SetKey) -> None:
        """Raise TooLarge if the topic may not have another ordered set."""
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
        """The ordered set of this filter and order, if there is one."""
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
        """Assert that every feed is routed what it needs, for a member, and no others are."""
        if self._focuses is not None:
            self._focuses.check()
        feeds = list(self.feeds())
        assert all(feed.key == key for key, equal in self._feeds.items() for feed in equal)
        assert all(equal for equal in self._feeds.values())
        windows = [feed for feed in feeds if isinstance(feed, WindowFeed)]
        readers = [feed for ordered in self._ordered.values() for feed in ordered.readers]
        assert {*windows} == {*readers}, "a window without a reader"
        for ordered in self._ordered.values():
            assert ordered.readers, "an ordered set without readers"
            ordered.check()
        feeds = [feed for feed in feeds if isinstance(feed, ChangeFeed)]
        filed = self._filed_feeds()
        assert self._filed == len(filed)
        assert len(self._unfiled) == len(feeds) - len(filed), "a removed feed is still routed to"
        if self._attributes is not None:
            self._attributes.check(filed)
        for feed in feeds:
            feed.check()
            assert feed.members or feed.channel.is_over, "a feed without members"
            assert feed.topic is self.topic, "a feed of another topic"
