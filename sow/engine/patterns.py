"""Patterns: one definition that stands for many topics.

A topic whose definition has a `Pattern` comes into being when it is first published to. A conflated
topic over a pattern *follows* it: it has a copy of each of its topics, named by its `TopicFormat`.
This module knows which names a pattern claims and which topics it has; the catalog makes them. And
it knows, by a configuration alone, what the topic of a name is made of.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sow.core.definitions import Configuration, ConflatedTopic, Definition, Topic, View
from sow.engine.running_topics import LiveTopic
from sow.expressions import patterns
from sow.expressions.patterns import Search, topic_search


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
        """The name of the definition; no topic has it."""
        return self.definition.name

    def redefine(self, definition: Definition) -> None:
        """Continue with another definition of the same name."""
        self.definition = definition

    def over(self, limit: int) -> tuple[list[LiveTopic], str]:
        """The topics over the limit, and why: empty ones first, then the newest."""
        if len(self.members) <= limit:
            return [], ""
        topics = self.members.values()
        full = [topic for topic in topics if topic.records.table.slots]
        empty = [topic for topic in topics if not topic.records.table.slots]
        reason = f"Limits/PatternTopics of {limit} is less than the {len(full)} there are"
        return (full + empty)[limit:], reason

    def may_hold(self, name: str) -> bool:
        """Whether a topic of this name would be one of its topics."""
        if self.underlying is None:
            return self.matches is not None and self.matches(name)
        source = copied_from(self.definition, name)
        return source is not None and self.underlying.may_hold(source)

    def held_among(self, names: Iterable[str]) -> list[str]:
        """Those of these names that its topics may have. Names of copies are first filtered by
        prefix and suffix, since there may be very many."""
        if self.underlying is not None:
            begins, ends = patterns.copy_ends(_format_of(self.definition))
            names = [name for name in names if name.startswith(begins) and name.endswith(ends)]
        return list(filter(self.may_hold, names))

    def copies_of(self, name: str) -> Iterator[str]:
        """The names of the copies, and copies of copies, that a topic of it would have."""
        for follower in self.followers:
            copy = copy_name(follower.definition, name)
            yield copy
            yield from follower.copies_of(copy)


def copy_name(definition: Definition, underlying: str) -> str:
    """What the conflated topic of one topic of a pattern is called."""
    return patterns.copy_name(_format_of(definition), underlying)


def copied_from(definition: Definition, copy: str) -> str | None:
    """The topic whose copy by this definition has the name `copy`; None if it is no copy's."""
    return patterns.copied_from(_format_of(definition), copy)


def _format_of(definition: Definition) -> str:
    assert isinstance(definition, ConflatedTopic)
    return definition.topic_format or "%n"


def made_of(
    configuration: Configuration, name: str
) -> Iterator[tuple[Definition, tuple[str, ...]]]:
    """The definitions that the topic `name` may have, with the names of what it is made of: the one
    of exactly that name, or else those of patterns."""
    for one in configuration.topics:
        if one.name == name:
            if isinstance(one, ConflatedTopic):
                yield one, (one.underlying,)
            else:
                yield one, one.underlyings if isinstance(one, View) else ()
            return
    for one in configuration.topics:
        if isinstance(one, ConflatedTopic):
            if one.topic_format and (topic := copied_from(one, name)):
                yield one, (topic,)
        elif isinstance(one, Topic) and one.pattern and topic_search(one.pattern)(name):
            yield one, ()


def source_definition(configuration: Configuration, name: str) -> Topic | None:
    """The definition of the topic `name` that clients publish to, as far as it says which records
    there are; None: there is none."""
    for one, _ in made_of(configuration, name):
        if isinstance(one, Topic):
            return Topic(
                one.name, one.message_type, one.keys, one.key_domain,
                durability=one.durability, pattern=one.pattern, retain=one.retain,
            )  # fmt: skip
    return None


def is_made_alike(before: Configuration, now: Configuration, name: str) -> bool:
    """Whether two configurations make of the same changes the same topic `name`: its windows mean
    the same in both. Neither may have one."""
    then, found = next(made_of(before, name), None), next(made_of(now, name), None)
    if then is None or found is None or then[1] != found[1]:
        return then is None and found is None
    if isinstance(found[0], Topic):
        return source_definition(before, name) == source_definition(now, name)
    is_alike = _shape(then[0]) == _shape(found[0])
    return is_alike and all(is_made_alike(before, now, one) for one in found[1])


def _shape(definition: Definition) -> object:
    """What the records of a conflated topic or a view depend on, beside what it is made of."""
    one = definition
    if isinstance(one, ConflatedTopic):
        windows = one.interval_us, one.schedule, one.merges, one.merger
        return one.message_type, one.filter, one.enrichment, one.topic_format, windows
    if isinstance(one, View):
        rows = one.projection, one.grouping, one.joins, one.null_equivalency
        return one.message_type, one.filter, one.domain, rows
    return None
