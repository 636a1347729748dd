"""The router: who hears of a topic's changes.

Each topic has one. It knows the topic's feeds, which equal subscriptions share, and the
conflated copies made from the topic. A session that joins a feed late must not be handed lines
gathered before it came, so a feed is flushed whenever its membership changes. Feeds that want
certain values of a field are found by the attribute index, all others hear every batch.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from sow.attributes import AttributeIndex
from sow.expressions import Filter
from sow.feeds import Batch, Feed, FeedKey
from sow.keyed_topic import KeyedTopic
from sow.sessions import Session
from sow.wire import Encoding


class Listener(Protocol):
    """Something other than a feed that follows a topic, such as a conflated copy."""

    def hear(self, batch: Batch, now_us: int) -> None:
        """Take in a batch of changes."""
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
        """Tell everyone of a batch; returns the feeds that have something to flush."""
        for listener in self.listeners:
            listener.hear(batch, now_us)
        waiting = [feed for feed in self._unfiled if feed.hear(batch)]
        if self._filed:
            candidates = self._attributes.candidates(batch)
            waiting += [feed for feed, at in candidates.items() if feed.hear_at(batch, at)]
        return waiting

    def join(self, session: Session, key: FeedKey, condition: Filter | None, name: str) -> Feed:
        """Add a session to the feed of `key`; `name` is used when a new feed has to be made.

        A session that subscribes twice alike gets two feeds, since each has its own name.
        """
        equal = self._feeds.setdefault(key, [])
        for feed in equal:
            if session not in feed.members:
                self._flush(feed)
                feed.members[session] = None
                return feed
        feed = self._make(name, key, condition, session.encoding)
        feed.members[session] = None
        equal.append(feed)
        if self._attributes.add(feed):
            self._filed += 1
        else:
            self._unfiled[feed] = None
        return feed

    def _make(self, name: str, key: FeedKey, condition: Filter | None, encoding: Encoding) -> Feed:
        if condition is not None:
            self.topic.watch(condition.paths)
        return Feed(name, self.topic, key, condition, encoding)

    def leave(self, session: Session, feed: Feed) -> None:
        """Take a session out of a feed; the last one out ends the feed."""
        self._flush(feed)
        feed.members.pop(session, None)
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
