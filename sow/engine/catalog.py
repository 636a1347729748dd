"""The catalog: every topic there is, by name, and how new ones come to be.

A topic of the configuration is there from the start. One whose definition has a `Pattern` comes
into being when it is first published to, and with it the conflated topics made from the pattern,
named by their `TopicFormat`; exact names go first, then patterns in the order of the
configuration. All of them are `LiveTopic`s: records, a router, and what hangs on them.

What is done to a topic's records is the engine's business.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from sow import topic_patterns
from sow.definitions import Configuration, ConflatedTopic, Definition, Topic
from sow.delivery.router import Router
from sow.errors import (
    ClientError,
    ConfigError,
    InvalidTopic,
    TooLarge,
    UnknownTopic,
    clipped,
    shown,
)
from sow.expressions import Filter
from sow.expressions.patterns import Search
from sow.messages import message_type
from sow.store.memory import Table, Usage
from sow.store.protocols import Slice
from sow.suggest import did_you_mean
from sow.topic.conflated_copy import ConflatedCopy
from sow.topic.expirations import Expirations
from sow.topic.merging import make_merger
from sow.topic.records import Records
from sow.topic_patterns import topic_search

NAME_LENGTH_MAX = 255
"""Characters of a name, as in config.xml: what a client can make up is bounded like what an
operator writes."""
NAMES_COMPARED_MAX = 200
"""Comparing a mistyped name takes some 10 us a topic, and a pattern may have 100,000 of them."""
Deed = Literal["publish to", "delete from", "write to"]
"""What clients do to a topic's records, in words."""

BELONGS = "\x1e"
"""Between a topic's name and an identity; a name holds no control characters."""


@dataclass(slots=True, eq=False)
class LiveTopic:
    """A topic with everything that hangs on it; `copy` for a conflated one.

    `pattern` is the pattern that the topic belongs to, if any.
    """

    records: Records
    router: Router
    definition: Definition
    expirations: Expirations | None = None
    copy: ConflatedCopy | None = None
    pattern: "PatternTopic | None" = None
    updates: int = 0
    """Changes routed since the server started."""
    is_system: bool = field(init=False)
    """It is the server's own. Asked at every publish, so it is looked up once."""

    def __post_init__(self) -> None:
        self.is_system = isinstance(self.definition, Topic) and self.definition.system

    @property
    def stored_as(self) -> str:
        """Whose checkpoint holds the records: the topics of a pattern share one."""
        return self.definition.name if self.pattern is None else self.pattern.name

    @property
    def kind(self) -> str:
        """What the outside calls this topic's kind."""
        return "conflated" if self.copy else "topic"


@dataclass(slots=True, eq=False)
class PatternTopic:
    """A definition that stands for many topics.

    `matches` is None for a conflated topic over a pattern, its `underlying`; `followers` are those
    made from this one, and `members` the topics that there are.
    """

    definition: Definition
    matches: Search | None
    underlying: "PatternTopic | None" = None
    followers: list["PatternTopic"] = field(default_factory=list)
    members: dict[str, LiveTopic] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the definition, which is no topic's."""
        return self.definition.name

    def over(self, limit: int) -> tuple[list[LiveTopic], str]:
        """The topics that are too many, and why: empty ones first, then those that came last."""
        holds = {True: [], False: []}  # type: dict[bool, list[LiveTopic]]
        for topic in self.members.values():
            holds[len(topic.records.table) > 0].append(topic)
        reason = f"Limits/PatternTopics of {limit} is less than the {len(holds[True])} there are"
        return (holds[True] + holds[False])[limit:], reason

    def may_hold(self, name: str) -> bool:
        """Whether a topic of this name would be one of its topics."""
        if self.underlying is None:
            return self.matches is not None and self.matches(name)
        source = copied_from(self.definition, name)
        return source is not None and self.underlying.may_hold(source)


class Catalog:
    """All topics of one configuration. `on_new` hears of each topic that comes into being."""

    def __init__(
        self,
        configuration: Configuration,
        compile_filter: Callable[[str], Filter],
        on_new: Callable[[LiveTopic], None],
    ) -> None:
        self.configuration = configuration
        self.usage = Usage()
        """What all records take, but for the server's own."""
        self.topics: dict[str, LiveTopic] = {}
        self.patterns: dict[str, PatternTopic] = {}
        self._compile_filter = compile_filter
        self._on_new = on_new
        self.since_of: Callable[[str, str], int] = lambda _definition, _name: 0
        """Up to where log entries of a topic do not count for a definition
        (`sow.engine.restoration`)."""
        for definition in configuration.topics:
            self.add(definition)

    def __iter__(self) -> Iterator[LiveTopic]:
        return iter(self.topics.values())

    def listed(self) -> Iterator[LiveTopic]:
        """All topics but the server's own."""
        return (topic for topic in self if not topic.is_system)

    def add(self, definition: Definition) -> LiveTopic | None:
        """A definition of the configuration, whose underlying topic is there already."""
        if isinstance(definition, Topic):
            if definition.pattern is not None:
                pattern = PatternTopic(definition, topic_search(definition.pattern))
                self.patterns[definition.name] = pattern
                return None
        elif definition.underlying in self.patterns:
            underlying = self.patterns[definition.underlying]
            pattern = self.patterns[definition.name] = PatternTopic(definition, None, underlying)
            underlying.followers.append(pattern)
            for name in list(underlying.members):
                self._add_follower(pattern, name)
            return None
        topic = self._make(definition)
        self._enter(topic)
        return topic

    def homeless(self, new: Configuration) -> dict[LiveTopic, str]:
        """Topics of patterns that have no place in another configuration, and why.

        Those over a pattern's limit, and those whose names conflated topics would have.
        """
        found: dict[LiveTopic, str] = {}
        limit = new.limits.pattern_topics_max
        for pattern in self.patterns.values():
            if pattern.matches is not None:
                found |= dict.fromkeys(*pattern.over(limit))
        patterns = dict(self.patterns)
        for definition in new.topics:
            if not isinstance(definition, ConflatedTopic) or definition.name in patterns:
                continue
            underlying = patterns.get(definition.underlying)
            if underlying is None:
                names = [definition.name] if definition.name in self.topics else []
            else:
                copies = patterns[definition.name] = PatternTopic(definition, None, underlying)
                names = [name for name in self.topics if copies.may_hold(name)]
            for topic in map(self.topics.__getitem__, names):
                if topic.pattern is not None and topic.copy is None:
                    name = topic.definition.name
                    found[topic] = f"{name} is the name of a copy of {definition.name} now"
        return found

    def forget(self, topic: LiveTopic) -> None:
        """Take out a topic of a pattern that nothing copies any more."""
        name = topic.definition.name
        assert topic.pattern is not None
        if topic.copy is not None:
            self.topics[topic.copy.underlying.name].router.listeners.remove(topic.copy)
            topic.copy.stop()
        topic.records.table.forget()
        del self.topics[name], topic.pattern.members[name]

    def check(
        self,
        definition: Definition,
        is_new: bool = True,
        leaving: Collection[LiveTopic] = (),
    ) -> None:
        """Raise what would keep a definition from being run beside those that there are.

        `leaving` are topics that will have gone by then.
        """
        kinds = {options.name: options for options in self.configuration.message_types}
        make_merger(definition, message_type(definition.message_type, kinds))
        if isinstance(definition, ConflatedTopic):
            if definition.filter is not None:
                self._compile_filter(definition.filter)
            if is_new:
                gone = {name for topic in leaving for name in self.with_copies(topic)}
                self._check_names(definition, self.topics.keys() - gone)

    def with_copies(self, topic: LiveTopic) -> list[str]:
        """The names of a topic and of all that copies it, copies of copies first."""
        heard_by = [one for one in topic.router.listeners if isinstance(one, ConflatedCopy)]
        copies = [self.topics[one.copy.name] for one in heard_by]
        names = [name for copy in copies for name in self.with_copies(copy)]
        return [*names, topic.definition.name]

    def _check_names(self, definition: ConflatedTopic, names: Collection[str]) -> None:
        """Raise ConfigError if a conflated topic that is new would take one of these names."""
        underlying = self.patterns.get(definition.underlying)
        if definition.name in names:
            raise ConfigError(f"{definition.name}: there is a topic of this name already")
        if underlying is not None:
            copies = PatternTopic(definition, None, underlying)
            for name in names:
                if copies.may_hold(name):
                    raise ConfigError(
                        f"{definition.name}: there is a topic {name} already, which is what the "
                        f"copy of {copied_from(definition, name)} would be called"
                    )

    def members(self, name: str) -> list[LiveTopic]:
        """The topics of a definition: one, or those of a pattern."""
        pattern = self.patterns.get(name)
        return [self.topics[name]] if pattern is None else list(pattern.members.values())

    def remove(self, name: str) -> None:
        """Forget a conflated topic, or a pattern of them, that nothing copies."""
        for topic in self.members(name):
            assert topic.copy is not None
            underlying = self.topics[topic.copy.underlying.name]
            underlying.router.listeners.remove(topic.copy)
            topic.copy.stop()
            topic.records.table.forget()
            del self.topics[topic.definition.name]
        pattern = self.patterns.pop(name, None)
        if pattern is not None:
            for other in self.patterns.values():
                if pattern in other.followers:
                    other.followers.remove(pattern)

    def matching(self, search: Search) -> list[LiveTopic]:
        """Topics whose names match, in the order they came into being."""
        return [topic for topic in self.listed() if search(topic.definition.name)]

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
        some = [topic.definition.name for topic in islice(self.listed(), NAMES_COMPARED_MAX)]
        raise UnknownTopic(f"no topic {shown(name)}{did_you_mean(clipped(name), some)}")

    def expected(self, name: str) -> LiveTopic:
        """A topic by its exact name, or one that a pattern would make: that is not there yet."""
        return self.topics.get(name) or self._of_pattern(name) or self.topic(name)

    def publishable(self, name: str, deed: Deed = "publish to") -> LiveTopic:
        """The topic to publish to: an exact name, or one that a pattern makes on `enter`.

        `deed` is what is wanted, for the error that a topic raises which takes nothing.
        """
        topic = self.expected(name)
        check_changeable(topic, deed)
        return topic

    def deletable(self, name: str) -> LiveTopic:
        """The topic to delete records from, which must be there; raises ClientError."""
        topic = self.topic(name)
        check_changeable(topic, "delete from")
        return topic

    def placed(self, name: str) -> LiveTopic | None:
        """The topic that takes in stored records of this name, made if a pattern wants it.

        Raises ClientError with what speaks against it. The limit of a pattern is not asked: not
        every topic that the log names holds records in the end.
        """
        topic = self.topics.get(name)
        if topic is None:
            topic = self._of_pattern(name, limited=False)
            if topic is not None:
                self.enter(topic)
        return topic

    def _of_pattern(self, name: str, limited: bool = True) -> LiveTopic | None:
        """A topic that is not there yet, if a pattern wants it; raises what speaks against it."""
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
            self._check_is_no_copy(name)
            for taken in self._names_of_followers(pattern, name):
                if taken in self.topics or taken in self.patterns:
                    raise InvalidTopic(
                        f"{clipped(name)} would have a copy {clipped(taken)}, which is a topic"
                    )
            assert isinstance(pattern.definition, Topic)
            topic = self._make(replace(pattern.definition, name=name, pattern=None))
            topic.pattern = pattern
            return topic
        return None

    def _check_is_no_copy(self, name: str) -> None:
        """Names of copies are theirs, whether there is such a copy yet or not.

        A topic that took one would keep for ever what it would be a copy of from being made.
        """
        for copies in self.patterns.values():
            if copies.underlying is not None and copies.may_hold(name):
                source = clipped(copied_from(copies.definition, name) or "")
                raise InvalidTopic(
                    f"{clipped(name)} is what the conflated topic {copies.name} calls its copy of "
                    f"{source}; publish to {source}, or under another name"
                )

    def _names_of_followers(self, pattern: PatternTopic, name: str) -> Iterator[str]:
        for follower in pattern.followers:
            copy = copy_name(follower.definition, name)
            yield copy
            yield from self._names_of_followers(follower, copy)

    def enter(self, topic: LiveTopic) -> None:
        """Let a topic of `publishable` be there, with the copies that its pattern wants."""
        if topic.definition.name in self.topics:
            return
        self._enter(topic)
        assert topic.pattern is not None
        for follower in topic.pattern.followers:
            self._add_follower(follower, topic.definition.name)

    def _add_follower(self, pattern: PatternTopic, underlying: str) -> None:
        assert isinstance(pattern.definition, ConflatedTopic)
        name = copy_name(pattern.definition, underlying)
        topic = self._make(
            replace(pattern.definition, name=name, underlying=underlying, topic_format=None)
        )
        topic.pattern = pattern
        self._enter(topic)
        for follower in pattern.followers:
            self._add_follower(follower, name)

    def _enter(self, topic: LiveTopic) -> None:
        self.topics[topic.definition.name] = topic
        topic.records.since_seq = self.since_of(topic.stored_as, topic.definition.name)
        if topic.pattern is not None:
            topic.pattern.members[topic.definition.name] = topic
        if topic.copy is not None:
            self.topics[topic.copy.underlying.name].router.listeners.append(topic.copy)
        self._on_new(topic)

    # Checkpoints. The topics of a pattern share one, in which a topic's name stands before each
    # identity.

    def slices(self, stored_as: str, count: int) -> Iterator[Slice]:
        """The records of a checkpoint as they stand, `count` slots at a time.

        What is published meanwhile may or may not be in it.
        """
        if stored_as not in self.patterns:
            yield from _slices(self.topics[stored_as].records.table, count)
            return
        for name, topic in list(self.patterns[stored_as].members.items()):
            for part in _slices(topic.records.table, count):
                part.identities = [f"{name}{BELONGS}{identity}" for identity in part.identities]
                yield part

    def stored_bytes(self, stored_as: str) -> int:
        """Bytes of bodies that a checkpoint would hold."""
        pattern = self.patterns.get(stored_as)
        topics = [self.topics[stored_as]] if pattern is None else pattern.members.values()
        return sum(topic.records.table.bytes for topic in topics)

    def _make(self, definition: Definition) -> LiveTopic:
        kinds = {options.name: options for options in self.configuration.message_types}
        kind = message_type(definition.message_type, kinds)
        if isinstance(definition, Topic):
            usage = None if definition.system else self.usage
            records = Records(definition, kind, definition.keys, definition.domain, usage)
            topic = LiveTopic(records, Router(records), definition)
            if definition.expires:
                topic.expirations = Expirations(records.table)
            return topic
        underlying = self.topics[definition.underlying].records
        keys = tuple(map(str, underlying.keys))
        records = Records(definition, kind, keys, underlying.domain, self.usage)
        condition = None if definition.filter is None else self._compile_filter(definition.filter)
        copy = ConflatedCopy(records, underlying, definition, condition)
        return LiveTopic(records, Router(records), definition, copy=copy)


def check_changeable(topic: LiveTopic, deed: Deed) -> None:
    """Raise InvalidTopic for a topic whose records clients do not change."""
    name = topic.definition.name
    if topic.is_system:
        raise InvalidTopic(
            f"{name} is the server's own account, which only the server keeps; you cannot {deed} it"
        )
    if topic.copy is not None:
        underlying = topic.copy.underlying.name
        raise InvalidTopic(
            f"{name} is a conflated topic, a copy of {underlying}; {deed} {underlying}"
        )


def _slices(table: Table, count: int) -> Iterator[Slice]:
    start = 0
    while start < len(table.bodies):
        yield table.slice(start, count)
        start += count


def copy_name(definition: Definition, underlying: str) -> str:
    """What the conflated topic of one topic of a pattern is called."""
    assert isinstance(definition, ConflatedTopic)
    return topic_patterns.copy_name(definition.topic_format or "%n", underlying)


def copied_from(definition: Definition, copy: str) -> str | None:
    """The topic whose copy by this definition has the name `copy`; None if it is no copy's."""
    assert isinstance(definition, ConflatedTopic)
    return topic_patterns.copied_from(definition.topic_format or "%n", copy)
