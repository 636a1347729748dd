"""The catalog: every topic there is, by name, and how new ones come to be.

A topic of the configuration is there from the start. One whose definition has a `Pattern` comes
into being when it is first published to, and with it the conflated topics made from the pattern,
named by their `TopicFormat`; exact names go first, then patterns in the order of the
configuration. All of them are live topics (`sow.engine.running_topics`).

The engine changes a topic's records. It also schedules new topics: whatever makes some returns
them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Literal

from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    Definition,
    MessageTypeOptions,
    Topic,
    View,
)
from sow.core.humanize import no_topic
from sow.engine.live_topic import is_hidden
from sow.engine.patterns import PatternTopic, copied_from, copy_name
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.engine.views import ViewMaker
from sow.engine.wal import CommitSequencer
from sow.errors import (
    ClientError,
    InvalidTopic,
    TooLarge,
    UnknownTopic,
    clipped,
)
from sow.expressions import Filter
from sow.expressions.patterns import Search, is_pattern, topic_search
from sow.messages import message_type
from sow.protocol.commands import Command
from sow.store.memory import RECORD_BYTES, Usage
from sow.streaming.router import PatternSubscriptions
from sow.topic.conflated_topic import ConflatedCopy
from sow.topic.records import Records
from sow.topic.views.view import MaterializedView

NAME_LENGTH_MAX = 255
"""Characters of a name, as in config.xml: names from clients have the limit of configured ones."""
NAMES_COMPARED_MAX = 200
"""Comparing a misspelled name takes some 10 us a topic, and a pattern may have 100,000 of them."""
TOPIC_OBJECTS, MET_OBJECTS = 20, 8
"""Python objects of a topic (9 of a pattern were counted, 16 of a conflated one), and of each
subscription to it by a pattern (5)."""
MET_MAX = 10
"""Where there are more subscriptions by patterns, most topics are matched by few."""
Deed = Literal["publish to", "delete from", "write to"]
"""What clients do to a topic's records, for errors."""


class Catalog:
    """All topics of one configuration; their changes are logged in `sequencer`. `wake` is called
    with a view that has become dirty."""

    def __init__(
        self,
        configuration: Configuration,
        compile_filter: Callable[[str], Filter],
        sequencer: CommitSequencer,
        wake: Callable[[MaterializedView], None] = lambda _view: None,
    ) -> None:
        self.configuration = configuration
        self.usage = Usage()
        """Memory of all records, except those of system topics."""
        self.topics: dict[str, LiveTopic] = {}
        self.followers = PatternSubscriptions()
        """Subscriptions to patterns of names."""
        self.patterns: dict[str, PatternTopic] = {}
        self.untidy: dict[LiveTopic, None] = {}
        """Topics that have changed, whose indexes may be refreshed."""
        self._coming: set[str] = set()
        """Definitions of views that are being filled, and of conflated topics whose copies are."""
        self.compile_filter = compile_filter
        self._sequencer = sequencer
        self._since_of: Callable[[str, str], int] = lambda _definition, _name: 0
        self.view_maker = ViewMaker(
            self.topics, lambda: self.configuration, compile_filter, self.usage, wake,
            self.followers,
        )  # fmt: skip
        for definition in configuration.topics:
            self.add(definition)

    def __iter__(self) -> Iterator[LiveTopic]:
        return iter(self.topics.values())

    def adopt(self, configuration: Configuration) -> None:
        """Continue with a configuration whose topics exist already."""
        self.configuration = configuration

    def count_from(self, since_of: Callable[[str, str], int]) -> None:
        """Set up to which number log entries do not count, for existing and future topics.

        `since_of` takes the name of a definition and of a topic, and returns the number of the last
        entry of another or an earlier topic; 0 where all entries count."""
        self._since_of = since_of
        for topic in self:
            topic.records.begin_after(since_of(topic.stored_as, topic.name))

    def refresh_indexes(self, notes: int) -> bool:
        """Refresh indexes by about `notes` noted changes; True when there is more."""
        while self.untidy:
            topic = next(iter(self.untidy))
            notes -= topic.records.indexes.refresh(notes)
            if notes <= 0:
                return True
            del self.untidy[topic]
        return False

    # Finding topics.

    def listed(self) -> Iterator[LiveTopic]:
        """All topics except system topics and hidden ones."""
        return (topic for topic in self if topic.is_listed)

    def matching(self, search: Search) -> list[LiveTopic]:
        """Topics whose names match, in the order they came into being."""
        return [topic for topic in self.listed() if search(topic.name)]

    def topic(self, name: str) -> LiveTopic:
        """A topic by its exact name; raises UnknownTopic with the nearest one."""
        found = self.topics.get(name)
        if found is not None:
            return found
        if name in self.patterns:
            raise InvalidTopic(
                f"{name} is a pattern of topics; name one of its topics, or subscribe to a "
                "regular expression of names"
            )
        some = [topic.name for topic in islice(self.listed(), NAMES_COMPARED_MAX)]
        raise UnknownTopic(no_topic(name, some, self.pattern_texts), wanted=name)

    @property
    def pattern_texts(self) -> dict[str, str]:
        """The patterns by which publishes make topics, by the names of their definitions."""
        return {
            name: one.definition.pattern
            for name, one in self.patterns.items()
            if isinstance(one.definition, Topic) and one.definition.pattern
        }

    def is_pattern(self, command: Command) -> bool:
        """Whether a command names topics by a pattern. A name that is also a pattern is a topic
        only for clients that may see that topic."""
        name = command.topic
        named = command.options.non_regex_topic or (
            name in self.topics and command.rights.sees(name)
        )
        return not named and is_pattern(name)

    def account(self, definition: Topic) -> SourceTopic:
        """A system topic, which is in every configuration that a server runs."""
        topic = self.topic(definition.name)
        assert isinstance(topic, SourceTopic)
        return topic

    def members(self, name: str) -> list[LiveTopic]:
        """The topics of the definition of this name: one, or those of a pattern; none of a queue
        that a reload has removed."""
        pattern = self.patterns.get(name)
        if pattern is not None:
            return list(pattern.members.values())
        return [self.topics[name]] if name in self.topics else []

    def pattern_of(self, topic: LiveTopic) -> PatternTopic | None:
        """The pattern that a topic belongs to, if any."""
        return None if topic.pattern is None else self.patterns[topic.pattern]

    def with_copies(self, topic: LiveTopic) -> list[str]:
        """The names of a topic and of all that copies it, copies of copies first."""
        copies = [records.name for copy in topic.router.copies() for records in copy.copies]
        names = [name for copy in copies for name in self.with_copies(self.topics[copy])]
        return [*names, topic.name]

    def expected(self, name: str) -> LiveTopic:
        """A topic by its exact name, or a new one, not entered yet, that a pattern makes."""
        return self.topics.get(name) or self._of_pattern(name) or self.topic(name)

    def publishable(self, name: str, deed: Deed = "publish to") -> SourceTopic:
        """The topic to publish to: an exact name, or one that a pattern makes on `enter`.

        `deed` is the action, for the error of a topic that clients cannot change.
        """
        topic = self.topics.get(name)
        if type(topic) is SourceTopic and not topic.is_closed and topic.definition.view is None:
            return topic  # nearly always: what else it may be is not looked at
        return changeable(self.expected(name), deed)

    def deletable(self, name: str) -> SourceTopic:
        """The topic to delete records from, which must exist; raises ClientError."""
        return changeable(self.topic(name), "delete from")

    def placed(self, name: str) -> LiveTopic | None:
        """The topic that takes stored records of this name, made if a pattern matches it.

        Raises ClientError with the reason if there is none. The limit of a pattern is not checked:
        not every topic in the log has records in the end.
        """
        topic = self.topics.get(name)
        if topic is None:
            topic = self._of_pattern(name, limited=False)
            if topic is not None:
                self.enter(topic)
        return topic

    # Adding topics.

    def add(self, definition: Definition) -> list[LiveTopic]:
        """Add a definition of the configuration, whose underlying topic exists already.

        Returns the new topics: one, or, for a conflated topic over a pattern, one for each topic of
        it.
        """
        if isinstance(definition, Topic):
            if definition.pattern is not None:
                pattern = PatternTopic(definition, topic_search(definition.pattern))
                self.patterns[definition.name] = pattern
                return []
            self._coming.discard(definition.name)
            return [self._enter(self._source(definition, definition.name))]
        if isinstance(definition, View):
            return [self.enter_view(self.view_maker.make(definition))]
        self.expect(definition)
        return [self.enter_copy(copy) for copy in self.coming(definition)]

    def expect(self, definition: Definition) -> None:
        """Reserve the name of a view, of a queue, of a conflated topic, or those of copies over a
        pattern, which `coming` makes; new topics of the pattern get theirs from now on."""
        self._coming.add(definition.name)
        if not isinstance(definition, ConflatedTopic):
            return
        underlying = self.patterns.get(definition.underlying)
        if underlying is not None:
            pattern = self.patterns[definition.name] = PatternTopic(definition, None, underlying)
            underlying.followers.append(pattern)

    def coming(self, definition: ConflatedTopic) -> Iterator[CopyTopic]:
        """The copies of an expected definition, one after the other, each to be entered
        (`enter_copy`) before the next."""
        pattern = self.patterns.get(definition.name)
        if pattern is None:
            yield self._copy(definition, definition.underlying)
        else:
            for name in list(self.patterns[definition.underlying].members):
                if copy_name(definition, name) not in self.topics:
                    yield self._follower(pattern, name)
        self._coming.discard(definition.name)

    def enter_view(self, topic: ViewTopic) -> LiveTopic:
        """Add a view, filled or not, and subscribe it to its underlying topics; returns it."""
        self.follow(topic.view, topic.underlyings)
        self._coming.discard(topic.name)
        return self._enter(topic)

    def follow(self, view: MaterializedView, names: Iterable[str]) -> None:
        """Subscribe a view to its underlying topics."""
        for name in names:
            router = self.topics[name].router
            if view not in router.listeners:
                router.follow(view)

    def unfollow_views(self, view: MaterializedView, names: Iterable[str]) -> None:
        """Unsubscribe a view from topics that may be gone already."""
        for name in names:
            if name in self.topics:
                self.topics[name].router.leave(view)

    def end_view(self, topic: ViewTopic) -> None:
        """Stop maintaining the rows of a view: they are about to be removed."""
        self.unfollow_views(topic.view, topic.underlyings)
        topic.view.end()

    def replace(self, topic: ViewTopic, view: MaterializedView, definition: View) -> None:
        """Replace the view of a topic by another one, which is subscribed already."""
        self.unfollow_views(topic.view, topic.underlyings)
        topic.succeed(view, definition)

    def enter_copy(self, topic: CopyTopic) -> LiveTopic:
        """Add a copy, filled or not; returns it."""
        return self._enter(topic)

    def enter(self, topic: SourceTopic) -> Collection[LiveTopic]:
        """Add a topic of `publishable`, with its copies if its pattern has any.

        Returns the new topics; none if the topic exists already.
        """
        if topic.name in self.topics:
            return ()
        made = [self._enter(topic)]
        pattern = self.pattern_of(topic)
        for follower in pattern.followers if pattern is not None else ():
            made += self._add_follower(follower, topic.name)
        return made

    def _add_follower(self, pattern: PatternTopic, underlying: str) -> list[LiveTopic]:
        made = [self._enter(self._follower(pattern, underlying))]
        for follower in pattern.followers:
            made += self._add_follower(follower, made[0].name)
        return made

    def _follower(self, pattern: PatternTopic, underlying: str) -> CopyTopic:
        assert isinstance(pattern.definition, ConflatedTopic)
        return self._copy(pattern.definition, underlying, pattern)

    def _enter(self, topic: LiveTopic) -> LiveTopic:
        self.topics[topic.name] = topic
        topic.records.begin_after(self._since_of(topic.stored_as, topic.name))
        pattern = self.pattern_of(topic)
        if pattern is not None:
            pattern.members[topic.name] = topic
        if isinstance(topic, CopyTopic):
            self._file(topic)
        return topic

    def why_stopped(self, topic: LiveTopic) -> str:
        """Why a topic, or one that it is made of, has stopped; then it cannot be queried. Empty if
        none has."""
        if topic.stopped:
            return topic.stopped
        match topic:
            case CopyTopic():
                names: tuple[str, ...] = (topic.underlying,)
            case ViewTopic():
                names = topic.underlyings
            case _:
                return ""
        below = [self.topics[name] for name in names if name in self.topics]
        return next(filter(None, map(self.why_stopped, below)), "")

    def _file(self, topic: CopyTopic) -> None:
        """Subscribe a copy to its underlying topic, or share one that is alike and also empty."""
        router = self.topics[topic.underlying].router
        alike = router.alike(topic.copy)
        if alike is None:
            router.file(topic.copy)
        else:
            topic.share(alike)

    def _of_pattern(self, name: str, limited: bool = True) -> SourceTopic | None:
        """A new topic, if a pattern matches its name; raises why it cannot be made."""
        for pattern in self.patterns.values():
            if pattern.matches is None or not pattern.matches(name):
                continue
            if not name.isprintable() or len(name) > NAME_LENGTH_MAX:
                raise ClientError(
                    f"{name[:40]!r} cannot be a topic's name: use at most {NAME_LENGTH_MAX} "
                    "characters, none of them a control character"
                )
            limit = self.configuration.limits.pattern_topics_max
            if limited and len(pattern.members) >= limit:
                raise TooLarge(
                    f"pattern {pattern.name} has {limit} topics, as many as one may have; "
                    f"{clipped(name)} was not made (Limits/PatternTopics)"
                )
            if name in self._coming:
                raise InvalidTopic(
                    f"{clipped(name)} is a conflated topic, a view or a queue that is being added"
                )
            self._check_is_no_copy(name)
            for taken in pattern.copies_of(name):
                if taken in self.topics or taken in self.patterns:
                    raise InvalidTopic(
                        f"{clipped(name)} would have a copy {clipped(taken)}, which is a topic",
                        others=(taken,),
                        alone=f"{clipped(name)} would have a copy whose name a topic has already",
                    )
            assert isinstance(pattern.definition, Topic)
            return self._source(pattern.definition, name, pattern.name)
        return None

    def _check_is_no_copy(self, name: str) -> None:
        """Names of copies are reserved, whether the copy exists yet or not.

        A topic with such a name would block its underlying topic for ever."""
        for copies in self.patterns.values():
            if copies.underlying is not None and copies.may_hold(name):
                underlying = copied_from(copies.definition, name) or ""
                source = clipped(underlying)
                raise InvalidTopic(
                    f"{clipped(name)} is what the conflated topic {copies.name} calls its copy of "
                    f"{source}; publish to {source}, or under another name",
                    others=(copies.name, underlying),
                    alone=f"{clipped(name)} is what a conflated topic calls its copy of another; "
                    "publish under another name",
                )

    def _source(self, definition: Topic, name: str, pattern: str | None = None) -> SourceTopic:
        usage = None if definition.system else self.usage
        kind = message_type(definition.message_type, self.kinds)
        domain = definition.key_domain or name
        records = Records(
            definition, kind, definition.keys, domain, usage, name, self.configuration.name
        )
        return SourceTopic(records, definition, pattern, self._sequencer, self.followers)

    def _copy(
        self, definition: ConflatedTopic, source: str, pattern: PatternTopic | None = None
    ) -> CopyTopic:
        name = definition.name if pattern is None else copy_name(definition, source)
        kind = message_type(definition.message_type, self.kinds)
        underlying = self.topics[source].records
        keys = tuple(map(str, underlying.keys))
        records = Records(
            definition, kind, keys, underlying.domain, self.usage, name, self.configuration.name,
            underlying.makes_keys,
        )  # fmt: skip
        condition = None if definition.filter is None else self.compile_filter(definition.filter)
        copy = ConflatedCopy(records, underlying, definition, condition)
        of_pattern = None if pattern is None else pattern.name
        return CopyTopic(definition, of_pattern, copy, self.followers)

    @property
    def kinds(self) -> dict[str, MessageTypeOptions]:
        """The configured message types, by their names."""
        return {options.name: options for options in self.configuration.message_types}

    # Removing topics.

    def forget(self, topic: LiveTopic) -> None:
        """Remove a topic that has no copies any more."""
        if isinstance(topic, CopyTopic):
            if not topic.is_shared:
                self.topics[topic.underlying].router.unfile(topic.copy)
            topic.give_up()
        elif isinstance(topic, ViewTopic):
            topic.give_up()
        else:
            topic.records.table.forget()
            if topic.records.events is not None:
                topic.records.events.forget()
        del self.topics[topic.name]
        pattern = self.pattern_of(topic)
        if pattern is not None:
            del pattern.members[topic.name]

    def unfollow(self, name: str) -> None:
        """Make no more copies for a pattern of conflated topics that is being removed."""
        pattern = self.patterns.get(name)
        for other in self.patterns.values() if pattern is not None else ():
            if pattern in other.followers:
                other.followers.remove(pattern)

    def remove(self, name: str) -> None:
        """Remove a pattern of conflated topics that has no topics any more."""
        self.patterns.pop(name, None)

    # Totals.

    def objects_max(self) -> int:
        """An upper bound of Python objects of topics and views: visits all topics if there are
        views."""
        each = TOPIC_OBJECTS + MET_OBJECTS * min(len(self.followers), MET_MAX)
        return each * len(self.topics) + self.view_maker.objects_max()

    def check(self) -> None:
        """Assert the invariants of a catalog; takes time for every topic and record."""
        self.followers.check()
        counted = [topic for topic in self if not (topic.is_system or is_hidden(topic.name))]
        tables = [topic.records.table for topic in counted]
        # Copies and views that are being filled are listeners, but no topics yet.
        listeners = [one for topic in self for one in topic.router.listeners]
        copies = [one.copy for one in listeners if isinstance(one, ConflatedCopy)]
        tables += [records.table for records in copies if records.name not in self.topics]
        views = {one for one in listeners if isinstance(one, MaterializedView)}
        views = {view for view in views if not is_hidden(view.name)}
        tables += [view.rows.table for view in views if view.name not in self.topics]
        kept_bytes = sum(view.producer.kept_bytes for view in views) + self.view_maker.kept_bytes
        events = [topic.records.events for topic in counted]
        kept_bytes += sum(one.size_bytes for one in events if one is not None)
        assert self.usage.bytes - kept_bytes == sum(
            table.bytes + RECORD_BYTES * len(table) for table in tables
        ), "the memory of records is counted wrongly"
        for name, topic in self.topics.items():
            topic.check()
            assert topic.name == topic.records.name == name
            assert topic.definition is topic.records.definition
            assert topic.definition.name == topic.stored_as
            pattern = self.pattern_of(topic)
            if pattern is not None:
                assert pattern.members[name] is topic, f"its pattern does not know {name}"
            if isinstance(topic, CopyTopic):
                listening = self.topics[topic.underlying].router.copies()
                assert listening.count(topic.copy) == 1, f"{name} misses what it copies"
                assert topic.copy.copies.count(topic.records) == 1, f"{name} is not written to"
            for records in (one for copy in topic.router.copies() for one in copy.copies):
                assert self.topics[records.name].records is records, "a copy of no topic listens"
        for pattern in self.patterns.values():
            for name, topic in pattern.members.items():
                assert self.topics[name] is topic, (
                    f"{name} is removed, and its pattern has it still"
                )
            for follower in pattern.followers:
                assert self.patterns[follower.name] is follower
                assert follower.name in self._coming or (
                    len(follower.members) == len(pattern.members)
                )


def changeable(topic: LiveTopic, deed: Deed) -> SourceTopic:
    """A topic whose records clients may change; raises InvalidTopic for any other."""
    if topic.records.is_queue and isinstance(topic.definition, Topic) and topic.definition.queue:
        source = topic.definition.queue.underlying
        raise InvalidTopic(
            f"{topic.name} is a queue, whose messages are the publishes to {source}: publish "
            "there, and acknowledge what was delivered (sow_delete with bm)",
            others=(source,),
            alone=f"{topic.name} is a queue; you cannot {deed} it, only acknowledge what was "
            "delivered (sow_delete with bm)",
        )
    if topic.is_closed:
        raise InvalidTopic(
            f"{topic.name} is the server's own account, which only the server keeps; you cannot "
            f"{deed} it"
            if topic.is_system
            else f"{topic.name} is being given up, as the configuration that is read now has no "
            f"place for it; you cannot {deed} it"
        )
    if isinstance(topic, CopyTopic):
        raise InvalidTopic(
            f"{topic.name} is a conflated topic, a copy of {topic.underlying}; {deed} "
            f"{topic.underlying}",
            others=(topic.underlying,),
            alone=f"{topic.name} is a conflated topic, a copy of another; you cannot {deed} it",
        )
    if isinstance(topic, ViewTopic):
        made_of = " and ".join(topic.underlyings)
        raise InvalidTopic(
            f"{topic.name} is a view, made of {made_of}; {deed} {' or '.join(topic.underlyings)}",
            others=tuple(topic.underlyings),
            alone=f"{topic.name} is a view, made of others; you cannot {deed} it",
        )
    view = topic.definition.view
    if view is not None and deed != "write to":
        raise InvalidTopic(
            f"{topic.name} is a view, made of {view.underlying} by Spark; {deed} {view.underlying}",
            others=(view.underlying,),
            alone=f"{topic.name} is a view, made of others by Spark; you cannot {deed} it",
        )
    return topic
