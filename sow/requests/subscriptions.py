"""Subscriptions: what a session follows, from the command that asks for it to its end.

A subscription has a strand, which names its lines and keeps them in order (`sow.delivery.strands`),
with a feed for each topic it follows: one, or as many as match a pattern, those that come into
being later included. Equal subscriptions share a strand. A snapshot is taken and the strand is
joined within one step of the engine, so there is no gap between them and no repeat.

Carried out here: subscribe and its kin, replace, unsubscribe. What a session may ask for besides
is the executor's.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from sow import replies
from sow.commands import ACKS, Command
from sow.delivery.conflated_strands import ConflatedStrand
from sow.delivery.feeds import Feed
from sow.delivery.lines import FeedKey, Lines
from sow.delivery.sessions import BACK_PRESSURE, Session
from sow.delivery.strands import Strand
from sow.encodings import Encoding
from sow.engine.engine import Engine
from sow.engine.live_topics import LiveTopic
from sow.errors import ClientError, NotAvailable, SowError, TooLarge, UnknownTopic, shown
from sow.expressions import Filter, parse_order_by
from sow.expressions.patterns import Search
from sow.history.bookmarks import NOW, Span, parse_bookmark
from sow.history.snapshot import ANSWER_CHUNK_ROWS, Snapshot, Unread
from sow.lists import comma_list
from sow.paths import parse_member
from sow.query import Query
from sow.requests.replay import Replay
from sow.store.protocols import Journal
from sow.topic.records import Records
from sow.topic.rendering import Shape
from sow.topic.updates import Update
from sow.topic_patterns import is_pattern, topic_search

REMOVAL = "REMOVAL"
FILTER_CHARS_MAX = 2 * 1024**2
"""Of all filters of a session's subscriptions: compiled they take up to a hundred times as much."""
DELTAS = ("delta_subscribe", "sow_and_delta_subscribe")


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

    @property
    def filter_chars(self) -> int:
        """How long its filter is, which says what it takes."""
        return 0 if self.condition is None else len(self.condition.text)

    def wants(self, topic: LiveTopic) -> bool:
        """Whether a topic that has come into being is one of the pattern's.

        Of messages without fields none passes a filter over fields, and nothing can be selected.
        """
        assert self.pattern is not None
        fields = self.key.shape.select is not None or (self.condition and self.condition.paths)
        has_fields = topic.records.message_type.structured
        return bool(self.pattern(topic.definition.name)) and (has_fields or not fields)


@dataclass(slots=True)
class Followed:
    """All that one session follows, by name; `at_own_pace` waits for the client to take what was
    sent. `filter_chars` is how long the filters are in all."""

    by_name: dict[str, Subscription] = field(default_factory=dict)
    at_own_pace: dict[Subscription, None] = field(default_factory=dict)
    filter_chars: int = 0


class Held(NamedTuple):
    """Records of a topic that a session was told of: all of them, and those as they stand now.

    `waiting` are updates that it was not told yet.
    """

    known: set[str]
    current: set[str]
    waiting: dict[str, Update]


class Subscriptions:
    """All subscriptions of one engine's sessions."""

    def __init__(self, engine: Engine, journal: Journal) -> None:
        self._engine = engine
        self._journal = journal
        self._numbers = itertools.count(1)
        self.unread = Unread()
        self._followed: dict[Session, Followed] = {}
        self._patterns: dict[Subscription, None] = {}
        self._replays: dict[Subscription, None] = {}
        """Those that are not live yet: no router knows of their feeds."""
        engine.hear_of_topics(self._follow_new)

    def of(self, session: Session) -> Mapping[str, Subscription]:
        """A session's subscriptions by their names."""
        followed = self._followed.get(session)
        return {} if followed is None else followed.by_name

    def drained(self, session: Session) -> None:
        """A session's socket has taken everything: what follows its pace goes on."""
        followed = self._followed.get(session)
        for subscription in () if followed is None else followed.at_own_pace:
            if subscription.strand.waiting:
                self._engine.look_after(subscription.strand)

    # Asking once.

    def snapshot(self, session: Session, command: Command) -> None:
        """`sow`."""
        topics, _ = self._topics(command)
        shape = _shape(command)
        name = f"q{next(self._numbers)}"
        taken = [self._take(session, topic, command) for topic in topics]
        acknowledge(session, command, "processed", s=name)
        self._say_group(session, taken, name, shape)
        acknowledge(session, command, *ACKS[1:], s=name, **_counts(taken))

    # Following.

    def subscribe(self, session: Session, command: Command) -> None:
        """`subscribe` and `delta_subscribe`."""
        if command.order_by or command.options.top_n is not None or command.options.skip_n:
            raise ClientError(
                f"{command.name} takes no order_by, top_n or skip_n; use sow_and_"
                f"{command.name} for a snapshot that is ordered and limited"
            )
        if command.options.replace:
            if command.bookmark is not None and command.bookmark not in NOW:
                raise ClientError(
                    "replace goes on from the present; to begin at a bookmark, unsubscribe and "
                    "subscribe with bm",
                    reason="invalid bookmark",
                )
            self._replace(session, command, with_snapshot=False)
        elif command.bookmark is not None and command.bookmark not in NOW:
            self._replay(session, command)
        else:
            subscription, topics = self._begin(session, command, complete=False)
            for topic in topics:
                self._follow(subscription, topic)
            self._join(subscription)
            acknowledge(session, command, *ACKS, s=subscription.name)

    def sow_and_subscribe(self, session: Session, command: Command) -> None:
        """`sow_and_subscribe` and `sow_and_delta_subscribe`."""
        if command.options.top_n is not None and command.options.skip_n is not None:
            raise NotAvailable(
                "a paginated subscription (top_n and skip_n together) is not available yet; "
                "top_n alone limits the snapshot"
            )
        if command.bookmark is not None:
            raise ClientError(
                f"{command.name} begins with the present state; a bookmark belongs to subscribe",
                reason="invalid bookmark",
            )
        if command.options.replace:
            self._replace(session, command, with_snapshot=True)
            return
        self._check_room(session, command)
        taken = [self._take(session, topic, command) for topic in self._topics(command)[0]]
        complete = sow_keys(command) is None and all(
            matches == len(snapshot) for snapshot, matches in taken
        )
        subscription, topics = self._begin(session, command, complete, shares=complete)
        for topic, (snapshot, _) in zip(topics, taken, strict=True):
            self._follow(subscription, topic, () if complete else snapshot.identities)
        self._join(subscription)
        acknowledge(session, command, "processed", s=subscription.name)
        self._say_group(session, taken, subscription.name, subscription.key.shape)
        acknowledge(session, command, *ACKS[1:], s=subscription.name, **_counts(taken))

    def _begin(
        self,
        session: Session,
        command: Command,
        complete: bool,
        name: str = "",
        shares: bool = True,
    ) -> tuple[Subscription, list[LiveTopic]]:
        """Make a subscription that follows nothing yet, under `name` or one that suits it.

        `shares`: it may do with the strand of an equal one.
        """
        if not name:
            self._check_room(session, command)
        topics, pattern = self._topics(command)
        for topic in topics:
            self._check_fields(topic, command)
        condition = self._condition(command)
        key = feed_key(command, session.encoding, complete)
        scope, equal = self._scope(session, command, key, topics, pattern)
        if equal is None or name or not shares:
            strand = self._strand(name or f"f{next(self._numbers)}", key, session.encoding)
            feeds: dict[str, Feed] = {}
        else:
            strand, feeds = equal.strand, equal.feeds
        subscription = Subscription(strand, feeds, session, key, condition, complete, pattern)
        if name or scope:
            subscription.key = key._replace(scope=scope or strand.name)
        self._keep(subscription)
        return subscription, topics

    def _keep(self, subscription: Subscription) -> None:
        followed = self._followed.setdefault(subscription.session, Followed())
        followed.by_name[subscription.name] = subscription
        followed.filter_chars += subscription.filter_chars
        if subscription.key.auto:
            followed.at_own_pace[subscription] = None
        if subscription.pattern is not None:
            self._patterns[subscription] = None

    @staticmethod
    def _strand(name: str, key: FeedKey, encoding: Encoding) -> Strand:
        if key.interval_us is None and not key.auto:
            return Strand(name, encoding)
        return ConflatedStrand(name, encoding, key.interval_us)

    def _scope(
        self,
        session: Session,
        command: Command,
        key: FeedKey,
        topics: list[LiveTopic],
        pattern: Search | None,
    ) -> tuple[str, Subscription | None]:
        """What confines a subscription's feeds (nothing: any equal one), and whose it may share."""
        taken = self.of(session)
        if pattern is None:
            feed = None if key.auto else topics[0].router.shared(key, taken)
            scope = f"session {session.id}" if key.auto else ""
            if feed is None:
                return scope, None
            return scope, self.of(next(iter(feed.members)))[feed.name]
        if key.accounts or key.auto:
            return f"session {session.id}", None
        scope = f"pattern {command.topic}"
        scoped = key._replace(scope=scope)
        for other in self._patterns:
            if (
                other.key == scoped
                and other.name not in taken
                and all(feed.can_be_joined() for feed in other.feeds.values())
            ):
                return scope, other
        return scope, None

    def _check_room(self, session: Session, command: Command) -> None:
        if command.subscription is not None:
            raise ClientError(
                "the server names subscriptions: leave out s, or add the option replace to change "
                "the one of that name"
            )
        count = len(self.of(session))
        if count >= self._engine.configuration.limits.subscriptions_max:
            raise TooLarge(f"the session has {count} subscriptions, as many as one may have")
        self._check_filters(session, command)

    def _check_filters(self, session: Session, command: Command, instead_of: int = 0) -> None:
        """Raise TooLarge if one filter more, or one instead of another, would be too much."""
        followed = self._followed.get(session)
        rest = 0 if followed is None else followed.filter_chars - instead_of
        if rest + len(command.filter or "") > FILTER_CHARS_MAX:
            raise TooLarge(
                f"the filters of the session's other subscriptions have {rest} characters, and "
                f"{FILTER_CHARS_MAX} are the most of all; unsubscribe, or write shorter ones"
            )

    def _follow(
        self, subscription: Subscription, topic: LiveTopic, told: Iterable[str] = ()
    ) -> Feed:
        """The strand's feed of a topic, hearing it from now on; the session knows of `told`."""
        feed = subscription.feeds.get(topic.definition.name)
        if feed is None:
            feed = self._make(subscription, topic)
            topic.router.add(feed)
        feed.keep_account_of(told)
        return feed

    @staticmethod
    def _make(subscription: Subscription, topic: LiveTopic) -> Feed:
        feed = topic.router.make(subscription.strand, subscription.key, subscription.condition)
        subscription.feeds[topic.definition.name] = feed
        return feed

    def _join(self, subscription: Subscription, seq: int | None = None) -> None:
        """Let a session have its strand's lines, knowing everything up to `seq`, or to now."""
        engine, strand = self._engine, subscription.strand
        engine.flush_strand(strand)
        strand.join_at(subscription.session, engine.seq if seq is None else seq)
        if isinstance(strand, ConflatedStrand):
            engine.timers.add(strand, partial(engine.release_strand, strand))

    def _follow_new(self, topic: LiveTopic) -> None:
        """A topic has come into being: those who follow patterns may want it."""
        for subscription in self._patterns:
            if not subscription.wants(topic):
                continue
            if subscription.replay is None:
                self._follow(subscription, topic)
            elif topic.is_logged:
                # The replay will come to it, and is where the topic is heard until then.
                self._make(subscription, topic)

    # From a bookmark.

    def _replay(self, session: Session, command: Command) -> None:
        engine = self._engine
        span = self._span(command, self._topics(command)[0])
        subscription, topics = self._begin(session, command, complete=False, shares=False)
        strand = subscription.strand
        subscription.key = subscription.key._replace(scope=f"replay {strand.name}")
        for topic in topics:
            self._make(subscription, topic)
        subscription.replay = Replay(engine, self._journal, strand, subscription.feeds, span)
        self._replays[subscription] = None
        acknowledge(session, command, *ACKS[:2], s=subscription.name)
        self._stream_replay(session, command, subscription, span)

    def _follow_unlogged(self, subscription: Subscription) -> None:
        """Topics of a pattern that came into being during its replay and are not in the log."""
        if subscription.pattern is not None:
            for topic in self._engine.catalog.matching(subscription.pattern):
                if subscription.wants(topic):
                    self._follow(subscription, topic)

    def _stream_replay(
        self, session: Session, command: Command, subscription: Subscription, span: Span
    ) -> None:
        engine, replay, strand = self._engine, subscription.replay, subscription.strand
        assert replay is not None

        def on_live() -> None:
            subscription.replay = None
            self._replays.pop(subscription, None)
            if span.until is None:
                for name, feed in subscription.feeds.items():
                    engine.topic(name).router.add(feed)
                self._follow_unlogged(subscription)
                self._join(subscription, 0)
                # What was on its way to the disk waits for it; only then is the end said.
                engine.flush_strand(strand)
                engine.look_after(strand)
            else:
                self._forget(subscription)
            acknowledge(session, command, ACKS[2], s=subscription.name, bm=str(engine.seq))
            engine.touch(session)
            engine.tell_of_work()

        def on_failure(error: SowError) -> None:
            self._forget(subscription)
            session.say_unsubscribed(subscription.name, error.reason, engine.now_us)

        session.stream(replay.frames(on_live, on_failure), engine.group, engine.now_us)

    # Replacing.

    def _replace(self, session: Session, command: Command, with_snapshot: bool) -> None:
        """Change what a subscription follows, at once and without gap or repeat."""
        old = self._subscription(session, command.subscription or "")
        shape = _shape(command)
        condition = self._condition(command)
        # Whatever is wrong is found before anything is changed.
        self.check(command, session.encoding)
        self._check_filters(session, command, old.filter_chars)
        held = self._all_held(old)
        gone = self._waiting_of_gone(old)
        waiting = [update.first_seq for had in held.values() for update in had.waiting.values()]
        oldest = min(waiting, default=self._engine.seq)
        self.end(old)
        partly = command.options.top_n is not None or command.options.skip_n
        complete = with_snapshot and not partly and sow_keys(command) is None
        new, topics = self._begin(session, command, complete, name=old.name)
        same_shape = old.key.shape == new.key.shape
        acknowledge(session, command, "processed", s=new.name)
        for records, update in gone:
            line = Lines(records, new.name, session.encoding, new.key).line(update)
            session.say_lines([line] if line else [])
        taken: list[tuple[Snapshot, int]] = []
        late: list[tuple[Lines, Update]] = []
        for topic in topics:
            had = held.pop(topic.definition.name, None) or Held(set(), set(), {})
            current = had.current if same_shape else set()
            focus = self._focus(topic, condition, had)
            rows: set[str] = set()
            if with_snapshot:
                taken.append(self._not_held(topic, command, current))
                rows.update(taken[-1][0].identities)
            outdated = [
                name
                for name in focus
                if name not in rows and _is_outdated(name, had, current, new.key.delta)
            ]
            # Of records that are not stored nothing is known but who was told of them.
            lost = had.known.difference(focus) if topic.records.retains else set()
            feed = self._follow(new, topic, (had.known - lost) | rows.union(outdated))
            self._say_lost(session, feed.lines, had, lost)
            late += [(feed.lines, _late(feed.topic, had, name)) for name in outdated]
        for name, had in held.items():
            records = self._engine.topic(name).records
            lines = Lines(records, new.name, session.encoding, new.key)
            self._say_lost(session, lines, had, had.known if records.retains else ())
        self._join(new)
        if with_snapshot:
            # The rest of what waited is in the group, which who goes on from here has not got yet.
            late = [
                (lines, update._replace(first_seq=min(update.first_seq, oldest)))
                for lines, update in late
            ]
        late.sort(key=lambda one: one[1].first_seq)
        session.say_lines([line for lines, update in late if (line := lines.line(update))])
        if with_snapshot:
            self._say_group(session, taken, new.name, shape)
        acknowledge(session, command, *ACKS[1:], s=new.name, **_counts(taken))

    def _all_held(self, subscription: Subscription) -> dict[str, Held]:
        """What the session holds of each topic, having been told what has gathered."""
        strand = subscription.strand
        self._engine.flush_strand(strand)
        pending: dict[Lines, list[Update]] = {}
        if isinstance(strand, ConflatedStrand):
            pending = strand.pending_for(subscription.session)
        return {
            name: self._held(subscription, feed, pending.get(feed.lines, ()))
            for name, feed in subscription.feeds.items()
        }

    @staticmethod
    def _waiting_of_gone(subscription: Subscription) -> list[tuple[Records, Update]]:
        """What waits to be said of topics that are not there any more: that their records left."""
        strand = subscription.strand
        if not isinstance(strand, ConflatedStrand):
            return []
        there = {feed.lines for feed in subscription.feeds.values()}
        return [
            (lines.topic, update)
            for lines, updates in strand.pending_for(subscription.session).items()
            if lines not in there
            for update in updates
        ]

    def _held(self, subscription: Subscription, feed: Feed, pending: Iterable[Update]) -> Held:
        """What the session holds of a topic, while some of it waits to be said."""
        waiting = {update.identity: update for update in pending}
        if feed.told is not None:
            known = set(feed.told)
        elif subscription.complete:
            known = set(self._names(feed.topic, subscription.condition))
        else:
            return Held(set(), set(), waiting)
        if not feed.knows_what_is_held:
            return Held(known, set(), waiting)
        for update in waiting.values():
            if update.told:
                known.add(update.identity)
            else:
                known.discard(update.identity)
        return Held(known, known - waiting.keys(), waiting)

    def _names(self, topic: Records, condition: Filter | None) -> list[str]:
        """The records of a topic that pass a filter."""
        slots = self._engine.query(topic.name, Query(filter=condition)).slots.tolist()
        return [topic.table.identities[slot] or "" for slot in slots]

    def _focus(self, topic: LiveTopic, condition: Filter | None, had: Held) -> list[str]:
        """The records in focus; where none are stored, those of the updates that wait."""
        records = topic.records
        if records.retains:
            return self._names(records, condition)
        waiting = [(name, update.new) for name, update in had.waiting.items() if update.new]
        if condition is None:
            return [name for name, _ in waiting]
        columns = records.decoder(condition.paths).columns([body for _, body in waiting])
        inside = condition.matches(columns, len(waiting))
        return [name for (name, _), hit in zip(waiting, inside, strict=True) if hit]

    def _not_held(
        self, topic: LiveTopic, command: Command, current: set[str]
    ) -> tuple[Snapshot, int]:
        """The part of a snapshot that the session does not hold as it stands."""
        options = command.options
        whole = replace(self._query(command), top_n=None, skip_n=0)
        slots = self._engine.query(topic.definition.name, whole).slots.tolist()
        rows = Snapshot.take(topic.records, slots).without(current)
        first = options.skip_n or 0
        last = len(rows) if options.top_n is None else min(first + options.top_n, len(rows))
        return rows.at(range(first, last)), len(rows)

    @staticmethod
    def _say_lost(session: Session, lines: Lines, held: Held, names: Iterable[str]) -> None:
        """Say of records that they are out of focus now, because the focus has changed."""
        if not lines.key.oof:
            return
        for name in sorted(names):
            update = _standing(lines.topic, name)
            if update is not None:
                update = update._replace(new=None, reason="match", parting=update.new)
            else:
                # It has left the topic, and the oof that says so was still waiting.
                update = held.waiting[name]
            line = lines.line(update)
            assert line is not None
            session.say_lines([line])

    # Ending.

    def unsubscribe(self, session: Session, command: Command) -> None:
        """`unsubscribe`: some subscriptions by name, or all."""
        if command.subscription is None:
            raise ClientError("unsubscribe needs s: one or more subscriptions, or all")
        names = comma_list(command.subscription)
        if names == ["all"]:
            names = list(self.of(session))
        found = [self._subscription(session, name) for name in dict.fromkeys(names)]
        for subscription in found:
            self.end(subscription)
        acknowledge(session, command, *ACKS)

    def _subscription(self, session: Session, name: str) -> Subscription:
        found = self.of(session).get(name)
        if found is None:
            raise ClientError(
                f"this session has no subscription {shown(name)}",
                reason="subscription does not exist",
            )
        return found

    def end(self, subscription: Subscription) -> None:
        """Leave a subscription's strand and forget it; the last one out ends its feeds."""
        strand = subscription.strand
        if subscription.replay is not None:
            subscription.replay.stop()
        self._engine.flush_strand(strand)
        strand.leave(subscription.session)
        if not strand.members:
            for name, feed in subscription.feeds.items():
                self._engine.topic(name).router.remove(feed)
            self._engine.timers.remove(strand)
        self._forget(subscription)

    def end_all(self, session: Session) -> None:
        """A session is gone: so is all that it followed."""
        for subscription in list(self.of(session).values()):
            self.end(subscription)

    def _forget(self, subscription: Subscription) -> None:
        followed = self._followed.get(subscription.session)
        if followed is not None and followed.by_name.pop(subscription.name, None) is not None:
            followed.filter_chars -= subscription.filter_chars
            followed.at_own_pace.pop(subscription, None)
            if not followed.by_name:
                del self._followed[subscription.session]
        self._patterns.pop(subscription, None)
        self._replays.pop(subscription, None)

    def give_up(self, session: Session, name: str) -> None:
        """The session does not keep up with a topic that is not worth more: end it."""
        subscription = self.of(session).get(name)
        if subscription is not None:
            self.end(subscription)
            session.say_unsubscribed(name, BACK_PRESSURE, self._engine.now_us)

    def end_topic(self, topic: LiveTopic) -> None:
        """A topic is going: end what follows it, and nothing else of what follows a pattern."""
        name = topic.definition.name
        for feed in list(topic.router.feeds()):
            self._engine.flush_strand(feed.strand)
            topic.router.remove(feed)
            for session in list(feed.members):
                subscription = self.of(session)[feed.name]
                subscription.feeds.pop(name, None)
                self._end_if_named(subscription)
        for subscription in list(self._replays):
            if subscription.feeds.pop(name, None) is not None:
                self._end_if_named(subscription)

    def _end_if_named(self, subscription: Subscription) -> None:
        """End a subscription whose topic has gone, unless it is one through a pattern."""
        if subscription.pattern is None:
            session = subscription.session
            self.end(subscription)
            session.say_unsubscribed(subscription.name, REMOVAL, self._engine.now_us)
            self._engine.touch(session)

    # Topics and snapshots.

    def check(self, command: Command, encoding: Encoding) -> None:
        """Raise what speaks against a subscription; nothing is changed."""
        self._query(command)
        feed_key(command, encoding, complete=False)
        topics, _ = self._topics(command)
        for topic in topics:
            self._check_fields(topic, command)
        if command.bookmark is not None and command.bookmark not in NOW:
            self._span(command, topics)

    def _condition(self, command: Command) -> Filter | None:
        return None if command.filter is None else self._engine.filter(command.filter)

    def _check_fields(self, topic: LiveTopic, command: Command) -> None:
        """Refuse what needs fields of messages that have none, and keys that would mix records."""
        options = command.options
        condition = self._condition(command)
        topic.records.check_filter(condition)
        if command.name != "sow":
            topic.records.check_watch(condition)
        if options.select is not None:
            topic.records.renderer.check_select(options.select)
        own = {str(key) for key in topic.records.keys}
        other = {
            str(parse_member("conflation_key", path)) for path in options.conflation_key
        } != own
        if options.conflation_key and other and (options.oof or command.name in DELTAS):
            raise ClientError(
                "conflation_key other than the topic's key goes with neither oof nor deltas, which "
                "are about single records",
                reason="invalid options",
            )

    def _span(self, command: Command, topics: list[LiveTopic]) -> Span:
        """The part of the log that a bookmark subscription asks for."""
        if command.options.oof or command.name in DELTAS:
            raise ClientError(
                "neither oof nor deltas can begin at a bookmark: the log does not say what a "
                "subscriber held before; use sow_and_subscribe",
                reason="invalid options",
            )
        for topic in topics:
            if not topic.is_logged:
                raise ClientError(
                    f"topic {topic.definition.name} is not in the log; subscribe without bm",
                    reason="invalid topic",
                )
        assert command.bookmark is not None
        return parse_bookmark(
            command.bookmark, self._journal, self._engine.seq, command.options.bookmark_not_found
        )

    def _topics(self, command: Command) -> tuple[list[LiveTopic], Search | None]:
        """The topics that a command names: one, or those of a pattern."""
        name = command.topic
        if name in self._engine.topics or command.options.non_regex_topic or not is_pattern(name):
            return [self._engine.topic(name)], None
        search = topic_search(name)
        catalog = self._engine.catalog
        topics = catalog.matching(search)
        if not topics and (command.name == "sow" or not catalog.patterns):
            raise UnknownTopic(f"no topic matches the pattern {shown(name)}")
        return topics, search

    def _take(self, session: Session, topic: LiveTopic, command: Command) -> tuple[Snapshot, int]:
        self._check_fields(topic, command)
        answer = self._engine.query(topic.definition.name, self._query(command))
        if len(answer.slots) > ANSWER_CHUNK_ROWS:
            self.unread.check(session.id, len(answer.slots))
        return Snapshot.take(topic.records, answer.slots.tolist()), answer.matches

    def _query(self, command: Command) -> Query:
        """The query of a command; raises ClientError."""
        return Query(
            filter=self._condition(command),
            keys=sow_keys(command),
            order_by=parse_order_by(command.order_by) if command.order_by else (),
            top_n=command.options.top_n,
            skip_n=command.options.skip_n or 0,
        )

    def _say_group(
        self, session: Session, taken: list[tuple[Snapshot, int]], name: str, shape: Shape
    ) -> None:
        """Say snapshots as one group: few rows at once, many as the socket takes them."""
        engine = self._engine
        session.say(replies.group_begin(name))
        for snapshot, _ in taken:
            head = snapshot.topic.renderer.head("sow", name)
            if len(snapshot) <= ANSWER_CHUNK_ROWS:
                session.say_lines(snapshot.lines(session.encoding, head, shape, 0))
            else:
                frames = snapshot.frames(session.encoding, head, shape)
                held = self.unread.hold(session.id, len(snapshot), frames)
                session.stream(held, engine.group, engine.now_us)
        session.say(replies.group_end(name, engine.seq))


def _is_outdated(name: str, held: Held, current: set[str], by_deltas: bool) -> bool:
    """Whether a session has to be told of a record in focus that it does not hold as it stands:
    an update waited for it, or deltas could not be merged into what it holds."""
    update = held.waiting.get(name)
    if update is not None and update.new is not None:
        return True
    return name in held.known - current and (update is not None or by_deltas)


def _standing(topic: Records, name: str) -> Update | None:
    """A record as it stands, as an update of what a session holds; None if it is not there."""
    table = topic.table
    slot = table.slots.get(name)
    if slot is None:
        return None
    body, seq, ts_us = table.bodies[slot] or b"", int(table.seqs[slot]), int(table.ts_us[slot])
    return Update(name, True, body, seq, ts_us, seq, ts_us)


def _late(topic: Records, held: Held, name: str) -> Update:
    """A record in focus as it stands, to be told whole in the place of what waited for it."""
    standing, update = _standing(topic, name), held.waiting.get(name)
    if standing is None or update is None:
        return standing or held.waiting[name]._replace(delta=None)
    return standing._replace(first_seq=update.first_seq, first_ts_us=update.first_ts_us)


def acknowledge(session: Session, command: Command, *kinds: str, **more: object) -> None:
    """Say the acks of these kinds that were asked for; `processed` when none was."""
    asked = command.acks or ({"processed"} if command.cid is not None else frozenset())
    for kind in kinds:
        if kind in asked:
            session.say(replies.ack(command.cid, kind, **more))


def sow_keys(command: Command) -> tuple[str, ...] | None:
    """The SowKeys that a command names, or None."""
    if command.key is None:
        return command.keys
    if command.keys is not None:
        raise ClientError("give k or keys, not both")
    return tuple(comma_list(command.key))


def feed_key(command: Command, encoding: Encoding, complete: bool) -> FeedKey:
    """What a subscription's command says about its feeds; raises ClientError."""
    options, delta = command.options, command.name in DELTAS
    if options.no_empties and not delta:
        raise ClientError(
            "no_empties belongs to delta subscriptions; every update of another one is whole",
            reason="invalid options",
        )
    if options.conflation_key:
        if options.conflation is None:
            raise ClientError("conflation_key needs conflation", reason="invalid options")
        for path in options.conflation_key:
            parse_member("conflation_key", path)
    return FeedKey(
        filter=command.filter,
        oof=options.oof,
        delta=delta,
        no_empties=options.no_empties,
        accounts=(options.oof or delta) and not complete,
        interval_us=options.conflation if isinstance(options.conflation, int) else None,
        auto=options.conflation == "auto",
        conflation_key=options.conflation_key,
        shape=_shape(command),
        encoding=encoding.name,
    )


def _shape(command: Command) -> Shape:
    options = command.options
    return Shape(not options.no_sowkey, options.timestamp, options.select)


def _counts(taken: list[tuple[Snapshot, int]]) -> dict[str, int]:
    return {
        "matches": sum(matches for _, matches in taken),
        "returned": sum(len(snapshot) for snapshot, _ in taken),
    }
