"""Patterns: one definition that stands for many topics.

A topic whose definition has a `Pattern` comes into being when it is first published to. A conflated
topic over a pattern *follows* it: it has a copy of each of its topics, named by its `TopicFormat`.
This module knows which names a pattern claims and which topics it has; the catalog makes them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sow.core.definitions import ConflatedTopic, Definition
from sow.engine.running_topics import LiveTopic
from sow.expressions import patterns
from sow.expressions.patterns import Search


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
