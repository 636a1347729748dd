"""Replacing: a subscription goes on under its name with another filter, at once.

There is neither gap nor repeat. What its session holds is worked out first: all that it was told,
and what waits to be told. The subscription ends, another begins under its name, and of each record
is said what differs: that it has left the focus, how it stands now, or nothing.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sow.commands import ACKS, Command
from sow.delivery.conflated_strands import ConflatedStrand
from sow.delivery.feeds import Feed
from sow.delivery.lines import Lines
from sow.delivery.sessions import Session
from sow.engine.engine import Engine
from sow.engine.live_topics import LiveTopic
from sow.errors import TooLarge
from sow.expressions import Filter
from sow.history.snapshot import Snapshot
from sow.query import Query
from sow.requests.ending import Ending
from sow.requests.following import Following
from sow.requests.questions import (
    Questions,
    TopicsAsked,
    acknowledge,
    counts_of,
    shape_of,
    sow_keys,
)
from sow.requests.subscription import Subscription
from sow.requests.taken import TakenAnswer
from sow.topic.records import Records
from sow.topic.updates import Update

TOPICS_MAX = 1_000
"""What is held of each has to be compared in one step, some fifty microseconds each."""


class Held(NamedTuple):
    """Records of a topic that a session was told of: all of them, and those as they stand now.

    `waiting` are updates that it was not told yet.
    """

    known: set[str]
    current: set[str]
    waiting: dict[str, Update]


class Replacing:
    """Puts one subscription in the place of another."""

    def __init__(
        self, engine: Engine, questions: Questions, following: Following, ending: Ending
    ) -> None:
        self._engine = engine
        self._questions = questions
        self._following = following
        self._ending = ending

    def replace(
        self,
        session: Session,
        command: Command,
        old: Subscription,
        asked: TopicsAsked,
        with_snapshot: bool,
    ) -> None:
        """Change what a subscription follows to what was asked for and found possible, at once and
        without gap or repeat."""
        shape = shape_of(command)
        condition = self._questions.condition(command)
        # Whatever is wrong is found before anything is changed.
        self._following.check_filters(session, command, old)
        self._meet_all(old, asked)
        held = self._all_held(old)
        gone = self._waiting_of_gone(old)
        waiting = [update.first_seq for had in held.values() for update in had.waiting.values()]
        oldest = min(waiting, default=self._engine.seq)
        self._ending.end(old)
        partly = command.options.top_n is not None or command.options.skip_n
        complete = with_snapshot and not partly and sow_keys(command) is None
        new = self._following.begin(session, command, asked, complete, name=old.name)
        same_shape = old.key.shape == new.key.shape
        acknowledge(session, command, "processed", s=new.name)
        for records, update in gone:
            line = Lines(records, new.name, session.encoding, new.key).line(update)
            session.say_lines([line] if line else [])
        taken = TakenAnswer()
        late: list[tuple[Lines, Update]] = []
        for topic in asked.topics:
            had = held.pop(topic.name, None) or Held(set(), set(), {})
            current = had.current if same_shape else set()
            focus = self._focus(topic, condition, had)
            rows: set[str] = set()
            if with_snapshot:
                snapshot, matches = self._not_held(topic, command, current)
                taken.take(topic, snapshot, matches)
                rows.update(snapshot.identities())
            outdated = [
                identity
                for identity in focus
                if identity not in rows and _is_outdated(identity, had, current, new.key.delta)
            ]
            # Of records that are not stored nothing is known but who was told of them.
            lost = had.known.difference(focus) if topic.records.retains else set()
            new.was_told({topic.name: [*((had.known - lost) | rows.union(outdated))]})
            new.follow(topic.router)
            feed = new.feeds[topic.name]
            self._say_lost(session, feed.lines, had, lost)
            late += [(feed.lines, _late(feed.topic, had, identity)) for identity in outdated]
        for name, had in held.items():
            records = self._engine.topic(name).records
            lines = Lines(records, new.name, session.encoding, new.key)
            self._say_lost(session, lines, had, had.known if records.retains else ())
        self._following.join(new)
        if with_snapshot:
            # The rest of what waited is in the answer, which who goes on from here has not got yet.
            late = [
                (lines, update._replace(first_seq=min(update.first_seq, oldest)))
                for lines, update in late
            ]
        late.sort(key=lambda one: one[1].first_seq)
        session.say_lines([line for lines, update in late if (line := lines.line(update))])
        if with_snapshot:
            self._questions.say_answer(session, taken, new.name, shape)
        acknowledge(session, command, *ACKS[1:], s=new.name, **counts_of(taken))

    def _meet_all(self, old: Subscription, asked: TopicsAsked) -> None:
        """Let all topics of the old one's pattern know of it: what it holds of each matters now.
        Raises TooLarge where there are too many."""
        if old.pattern is None and asked.pattern is None:
            return
        met = [topic for topic in self._engine.catalog.listed() if old.follows(topic.records)]
        most = max(len(met), len(asked.topics))
        if most > TOPICS_MAX:
            raise TooLarge(
                f"the pattern names {most} topics, and {TOPICS_MAX} are the most of a subscription "
                "that is replaced; unsubscribe, and subscribe anew"
            )
        for topic in met:
            old.follow(topic.router)

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
            known = set(self._identities(feed.topic, subscription.condition))
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

    def _identities(self, topic: Records, condition: Filter | None) -> list[str]:
        """The records of a topic that pass a filter."""
        slots = self._engine.query(topic.name, Query(filter=condition)).slots.tolist()
        return [topic.table.identities[slot] or "" for slot in slots]

    def _focus(self, topic: LiveTopic, condition: Filter | None, had: Held) -> list[str]:
        """The records in focus; where none are stored, those of the updates that wait."""
        records = topic.records
        if records.retains:
            return self._identities(records, condition)
        waiting = [(identity, one.new) for identity, one in had.waiting.items() if one.new]
        if condition is None:
            return [identity for identity, _ in waiting]
        columns = records.decoder(condition.paths).columns([body for _, body in waiting])
        inside = condition.matches(columns, len(waiting))
        return [identity for (identity, _), hit in zip(waiting, inside, strict=True) if hit]

    def _not_held(
        self, topic: LiveTopic, command: Command, current: set[str]
    ) -> tuple[Snapshot, int]:
        """The part of a snapshot that the session does not hold as it stands."""
        options = command.options
        whole = dataclasses.replace(self._questions.query(command), top_n=None, skip_n=0)
        slots = self._engine.query(topic.name, whole).slots
        if current:
            identities = topic.records.table.identities
            new = [identities[slot] not in current for slot in slots.tolist()]
            slots = slots[np.array(new, np.bool_)]
        first = options.skip_n or 0
        last = None if options.top_n is None else first + options.top_n
        return Snapshot.take(topic.records, slots[first:last]), len(slots)

    @staticmethod
    def _say_lost(session: Session, lines: Lines, held: Held, gone: Iterable[str]) -> None:
        """Say of records that they are out of focus now, because the focus has changed."""
        if not lines.key.oof:
            return
        for identity in sorted(gone):
            update = _standing(lines.topic, identity)
            if update is not None:
                update = update._replace(new=None, reason="match", parting=update.new)
            else:
                # It has left the topic, and the oof that says so was still waiting.
                update = held.waiting[identity]
            line = lines.line(update)
            assert line is not None
            session.say_lines([line])


def _is_outdated(identity: str, held: Held, current: set[str], by_deltas: bool) -> bool:
    """Whether a session has to be told of a record in focus that it does not hold as it stands:
    an update waited for it, or deltas could not be merged into what it holds."""
    update = held.waiting.get(identity)
    if update is not None and update.new is not None:
        return True
    return identity in held.known - current and (update is not None or by_deltas)


def _standing(topic: Records, identity: str) -> Update | None:
    """A record as it stands, as an update of what a session holds; None if it is not there."""
    table = topic.table
    slot = table.slots.get(identity)
    if slot is None:
        return None
    body, seq, ts_us = table.bodies[slot] or b"", int(table.seqs[slot]), int(table.ts_us[slot])
    return Update(identity, True, body, seq, ts_us, seq, ts_us)


def _late(topic: Records, held: Held, identity: str) -> Update:
    """A record in focus as it stands, to be told whole in the place of what waited for it."""
    standing, update = _standing(topic, identity), held.waiting.get(identity)
    if standing is None or update is None:
        return standing or held.waiting[identity]._replace(delta=None)
    return standing._replace(first_seq=update.first_seq, first_ts_us=update.first_ts_us)
