"""The router: who hears of a topic's changes.

Each topic has one. It knows the topic's feeds, which equal subscriptions share, and the
conflated copies made from the topic. A session that joins a feed late must not be handed lines
gathered before it came, so a feed is flushed whenever its membership changes. Feeds that want
certain values of a field are found by the attribute index, all others hear every batch.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from sow.attributes import AttributeIndex
from sow.batch import Batch
from sow.expressions import Filter
from sow.feeds import Feed, FeedKey
from sow.keyed_topic import KeyedTopic
from sow.pacing import PacedFeed
from sow.paths import parse_path
from sow.sessions import Session


class Listener(Protocol):
    """Something other than a feed that follows a topic, such as a conflated copy."""

    def hear(self, batch: Batch, now_us: int) -> None:
        """Take in a batch of changes."""
        ...

    def due_us(self) -> int | None:
        """When it next has something to do by itself, or None."""
        ...

    def release(self, now_us: int) -> list[Batch]:
        """Do what is due by now; returns what it changed."""
        ...


class Router:
    """Feeds and listeners of one topic. `flush` hands out what a feed has gathered."""

    def __init__(self, topic: KeyedTopic, flush: Callable[[Feed], None]) -> None:
        self.topic = topic
        self._flush = flush
        self.listeners: list[Listener] = []
        self._feeds: dict[FeedKey, list[Feed]] = {}
        self._attributes = AttributeIndex()
        self._filed = 0
        self._unfiled: dict[Feed, None] = {}

    def feeds(self) -> Iterator[Feed]:
        """All feeds."""
        for equal in self._feeds.values():
            yield from equal

    def route(self, batch: Batch, now_us: int) -> list[Feed]:
        """Tell everyone of a batch; returns the feeds that have to be looked after."""
        for listener in self.listeners:
            listener.hear(batch, now_us)
        heard = [feed for feed in self._unfiled if feed.hear(batch, now_us)]
        if self._filed:
            candidates = self._attributes.candidates(batch)
            heard += [feed for feed, at in candidates.items() if feed.hear_at(batch, at, now_us)]
        return heard

    def shared(self, session: Session, key: FeedKey) -> Feed | None:
        """The feed of `key` that a session may join, or None.

        A session that subscribes twice alike gets two feeds, since each has its own name.
        """
        for feed in self._feeds.get(key, ()):
            if feed.name not in session.subscriptions and feed.can_be_joined():
                return feed
        return None

    def named(self, key: FeedKey, name: str) -> Feed | None:
        """The feed of `key` that is called `name` and may be joined, or None."""
        for feed in self._feeds.get(key, ()):
            if feed.name == name and feed.can_be_joined():
                return feed
        return None

    def join(self, session: Session, feed: Feed, seq: int) -> None:
        """Add a session that knows everything up to bookmark `seq` to a feed, new or not."""
        if feed.members:
            self._flush(feed)
        else:
            self._add(feed)
        feed.join_at(session, seq)

    def make(self, name: str, key: FeedKey, condition: Filter | None, session: Session) -> Feed:
        """A feed that nobody has joined yet."""
        if key.interval_us is None and not key.auto:
            return Feed(name, self.topic, key, condition, session.encoding)
        fields = tuple(map(parse_path, key.conflation_key))
        return PacedFeed(name, self.topic, key, condition, session.encoding, fields)

    def _add(self, feed: Feed) -> None:
        if feed.condition is not None:
            self.topic.watch(feed.condition.paths)
        self._feeds.setdefault(feed.key, []).append(feed)
        if self._attributes.add(feed):
            self._filed += 1
        else:
            self._unfiled[feed] = None

    def leave(self, session: Session, feed: Feed) -> None:
        """Take a session out of a feed; the last one out ends the feed."""
        self._flush(feed)
        feed.leave(session)
        if feed.members:
            return
        if feed in self._unfiled:
            del self._unfiled[feed]
        else:
            self._attributes.remove(feed)
            self._filed -= 1
        if feed.condition is not None:
            self.topic.unwatch(feed.condition.paths)
        equal = self._feeds[feed.key]
        equal.remove(feed)
        if not equal:
            del self._feeds[feed.key]
