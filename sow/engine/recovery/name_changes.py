"""Name changes: topics that a new configuration has no place for, and names that are taken.

No configuration lists the names of topics made by a pattern. A new one may use such a name for a
conflated topic, or allow a pattern fewer topics than there are. This module finds these topics in
the current catalog; the reload decides what becomes of them.
"""

from collections.abc import Collection

from sow.core.definitions import Configuration, ConflatedTopic, Definition, Topic, View
from sow.engine.catalog import Catalog
from sow.engine.patterns import PatternTopic, copied_from
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.errors import ConfigError
from sow.messages import message_type
from sow.topic.merging import make_merger


def without_place(catalog: Catalog, new: Configuration) -> dict[LiveTopic, str]:
    """Topics of patterns that a new configuration has no place for, and why.

    Those over a pattern's limit, and those whose names conflated topics would have.
    """
    found: dict[LiveTopic, str] = {}
    limit = new.limits.pattern_topics_max
    for pattern in catalog.patterns.values():
        if pattern.matches is not None:
            found |= dict.fromkeys(*pattern.over(limit))
    patterns = dict(catalog.patterns)
    for definition in new.topics:
        if isinstance(definition, Topic) or definition.name in patterns:
            continue
        underlying = None
        if isinstance(definition, ConflatedTopic):
            underlying = patterns.get(definition.underlying)
        if underlying is None:
            names = [definition.name] if definition.name in catalog.topics else []
        else:
            copies = patterns[definition.name] = PatternTopic(definition, None, underlying)
            names = copies.held_among(catalog.topics)
        for topic in map(catalog.topics.__getitem__, names):
            if isinstance(topic, SourceTopic) and catalog.pattern_of(topic) is not None:
                found[topic] = f"{topic.name} is the name of {definition.name} now"
                if isinstance(definition, ConflatedTopic):
                    found[topic] = f"{topic.name} is the name of a copy of {definition.name} now"
    return found


def check_definition(
    catalog: Catalog,
    definition: Definition,
    is_new: bool = True,
    leaving: Collection[LiveTopic] = (),
) -> None:
    """Raise an error if a definition cannot run beside the existing ones.

    `leaving` are topics that will be gone by then.
    """
    make_merger(definition, message_type(definition.message_type, catalog.kinds))
    if isinstance(definition, ConflatedTopic):
        if definition.filter is not None:
            catalog.compile_filter(definition.filter)
        if is_new:
            _check_names(catalog, definition, leaving)
    elif isinstance(definition, View):
        taken = catalog.topics.keys() - {topic.name for topic in leaving} if is_new else ()
        if definition.name in taken:
            raise ConfigError(f"{definition.name}: there is a topic of this name already")


def _check_names(
    catalog: Catalog, definition: ConflatedTopic, leaving: Collection[LiveTopic]
) -> None:
    """Raise ConfigError if a new conflated topic would take the name of an existing topic, unless
    that is `leaving`, or a copy of one."""
    there = {name for name, topic in catalog.topics.items() if topic not in leaving}
    taken = [definition.name] if definition.name in there else []
    underlying = catalog.patterns.get(definition.underlying)
    if underlying is not None:
        taken += PatternTopic(definition, None, underlying).held_among(there)
    if taken and leaving:
        gone = {name for topic in leaving for name in catalog.with_copies(topic)}
        taken = [name for name in taken if name not in gone]
    for name in taken:
        if name == definition.name:
            raise ConfigError(f"{name}: there is a topic of this name already")
        raise ConfigError(
            f"{definition.name}: there is a topic {name} already, which is what the "
            f"copy of {copied_from(definition, name)} would be called"
        )
