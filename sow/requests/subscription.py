"""A subscription, and the register of all that there are.

The register finds subscriptions by their sessions, knows those that have to hear of new topics and
those that are told by the log, and counts what a session may have only so much of. It makes and
ends none (`sow.requests.following`, `sow.requests.ending`).
"""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sow.delivery.feeds import Feed
from sow.delivery.lines import FeedKey
from sow.delivery.sessions import Session
from sow.delivery.strands import Strand
from sow.engine.live_topics import LiveTopic
from sow.expressions import Filter
from sow.expressions.patterns import Search
from sow.requests.replay import Replay


@dataclass(slots=True, eq=False)
class Subscription:
    """What one session follows under one name.

    Equal ones share `strand` and its `feeds`, which has one for each topic by its name. `pattern`
    finds topics that come later. `complete`: the session was given everything in focus.
    """

    strand: Strand
    feeds: dict[str, Feed]
    session: Session
    key: FeedKey
    condition: Filter | None
    complete: bool
    pattern: Search | None = None
    replay: Replay | None = None

    @property
    def name(self) -> str:
        """What the server calls it."""
        return self.strand.name

    def check(self) -> None:
        """Assert that it is told what it follows."""
        is_live = self.replay is None
        assert (self.session in self.strand.members) == is_live, "a member that is not told"
        assert all(feed.strand is self.strand for feed in self.feeds.values())
        assert all(feed.topic.name == name for name, feed in self.feeds.items())
        self.strand.check()

    def add_feed(self, topic: str, feed: Feed) -> None:
        """Follow one more topic."""
        self.feeds[topic] = feed

    def remove_feed(self, topic: str) -> bool:
        """A topic has gone; False if it was not followed any more."""
        return self.feeds.pop(topic, None) is not None

    def be_told_by(self, replay: Replay) -> None:
        """The log is what it is told by, until it is live."""
        self.replay = replay

    def be_live(self) -> None:
        """Its feeds are what it is told by."""
        self.replay = None

    def confine(self, scope: str) -> None:
        """Share feeds with nobody but those of an equal scope."""
        self.key = self.key._replace(scope=scope)

    @property
    def filter_chars(self) -> int:
        """How long its filter is, which says what it takes."""
        return 0 if self.condition is None else len(self.condition.text)

    @property
    def search_cost(self) -> int:
        """What searching for the patterns of its filter may cost."""
        return 0 if self.condition is None else self.condition.search_cost

    def wants(self, topic: LiveTopic) -> bool:
        """Whether a topic that has come into being is one of the pattern's.

        Of messages without fields none passes a filter over fields, and nothing can be selected.
        """
        assert self.pattern is not None
        fields = self.key.shape.select is not None or (self.condition and self.condition.paths)
        has_fields = topic.records.message_type.structured
        return bool(self.pattern(topic.name)) and (has_fields or not fields)


@dataclass(slots=True)
class Followed:
    """All that one session follows, by name; `at_own_pace` waits for the client to take what was
    sent. `filter_chars` is how long the filters are in all, `search_cost` what the searches of all
    may cost."""

    by_name: dict[str, Subscription] = field(default_factory=dict)
    at_own_pace: dict[Subscription, None] = field(default_factory=dict)
    filter_chars: int = 0
    search_cost: int = 0


class Register:
    """All subscriptions of one engine's sessions."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._followed: dict[Session, Followed] = {}
        self._patterns: dict[Subscription, None] = {}
        self._replays: dict[Subscription, None] = {}

    def new_name(self, kind: str) -> str:
        """A name that nothing else has: q of an answer, f of what is followed."""
        return f"{kind}{next(self._numbers)}"

    def of(self, session: Session) -> Mapping[str, Subscription]:
        """A session's subscriptions by their names."""
        followed = self._followed.get(session)
        return {} if followed is None else followed.by_name

    def at_own_pace(self, session: Session) -> Collection[Subscription]:
        """Those of a session that go on when its client has taken what was sent."""
        followed = self._followed.get(session)
        return () if followed is None else followed.at_own_pace

    def filter_chars(self, session: Session) -> int:
        """How long the filters of a session's subscriptions are in all."""
        followed = self._followed.get(session)
        return 0 if followed is None else followed.filter_chars

    def search_cost(self, session: Session) -> int:
        """What searching for the patterns of a session's filters may cost."""
        followed = self._followed.get(session)
        return 0 if followed is None else followed.search_cost

    @property
    def patterns(self) -> Collection[Subscription]:
        """Those that hear of topics that come into being."""
        return self._patterns

    @property
    def replays(self) -> Collection[Subscription]:
        """Those that are not live yet: no router knows of their feeds."""
        return self._replays

    def add(self, subscription: Subscription) -> None:
        """A subscription begins."""
        followed = self._followed.setdefault(subscription.session, Followed())
        followed.by_name[subscription.name] = subscription
        followed.filter_chars += subscription.filter_chars
        followed.search_cost += subscription.search_cost
        if subscription.key.auto:
            followed.at_own_pace[subscription] = None
        if subscription.pattern is not None:
            self._patterns[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        """It has ended; one that has already is passed over."""
        followed = self._followed.get(subscription.session)
        if followed is not None and followed.by_name.pop(subscription.name, None) is not None:
            followed.filter_chars -= subscription.filter_chars
            followed.search_cost -= subscription.search_cost
            followed.at_own_pace.pop(subscription, None)
            if not followed.by_name:
                del self._followed[subscription.session]
        self._patterns.pop(subscription, None)
        self._replays.pop(subscription, None)

    def check(self) -> None:
        """Assert that all that is known of subscriptions agrees, between two steps."""
        everybody: list[Subscription] = []
        for session, followed in self._followed.items():
            own = followed.by_name.values()
            everybody += own
            assert own, "a session that follows nothing is kept"
            assert all(one.session is session for one in own)
            assert followed.filter_chars == sum(one.filter_chars for one in own)
            assert followed.search_cost == sum(one.search_cost for one in own)
            assert [*followed.at_own_pace] == [one for one in own if one.key.auto]
        assert {*self._patterns} == {one for one in everybody if one.pattern is not None}
        assert {*self._replays} == {one for one in everybody if one.replay is not None}
        for one in everybody:
            one.check()

    def begin_replay(self, subscription: Subscription, replay: Replay) -> None:
        """A subscription is told by the log until it is live."""
        subscription.be_told_by(replay)
        self._replays[subscription] = None

    def end_replay(self, subscription: Subscription) -> None:
        """It has been told all that the log holds of it."""
        subscription.be_live()
        self._replays.pop(subscription, None)
