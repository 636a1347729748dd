"""What a checkpoint contains of the topics of a definition: their records, some slots at a time.

The topics of a pattern share one checkpoint, in which a topic's name stands before each identity;
`topic_slices` takes them apart. Index contents go with the records, bound to
everything that they are derived from. The store writes it; the server decides when.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from sow import __version__
from sow.core.cooperative import Task
from sow.engine.catalog import Catalog
from sow.engine.running_topics import LiveTopic
from sow.store.memory import Table
from sow.store.protocols import Slice
from sow.topic.records import Records

BELONGS = "\x1e"
"""Between a topic's name and an identity; a name holds no control characters."""
COUNTED_AT_ONCE = 1000
"""Topics of a pattern whose sizes are added up in one step: a third of a millisecond."""


def stored_slices(
    catalog: Catalog, stored_as: str, count: int, known: bool = True
) -> Iterator[Slice]:
    """The current records of a checkpoint, `count` slots at a time, and the events of a series;
    `known`: with what indexes know of them.

    Records published meanwhile may or may not be included.
    """
    if stored_as not in catalog.patterns:
        records = catalog.topics[stored_as].records
        with_values = _slices_with_values(catalog, records, count)
        yield from with_values if known else _slices(records.table, count)
        if records.events is not None:
            yield from records.events.slices(count)
        return
    for topic in list(catalog.patterns[stored_as].members.values()):
        parts, events = _slices(topic.records.table, count), topic.records.events
        for part in parts if events is None else chain(parts, events.slices(count)):
            yield named_in(topic, part)


def named_in(topic: LiveTopic, part: Slice) -> Slice:
    """Records of a topic as the checkpoint of its definition names them."""
    if topic.pattern is None:
        return part
    names = [f"{topic.name}{BELONGS}{identity}" for identity in part.identities]
    return replace(part, identities=names)


def topic_slices(stored_as: str, pattern: str | None, part: Slice) -> Iterator[tuple[str, Slice]]:
    """The part of a checkpoint's slice for each topic of a definition."""
    if pattern is None:
        yield stored_as, part
        return
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, identity in enumerate(part.identities):
        places[identity.partition(BELONGS)[0]].append(at)
    for topic, of_topic in places.items():
        yield topic, part.at(of_topic, lambda text: text.partition(BELONGS)[2])


def _slices_with_values(catalog: Catalog, records: Records, count: int) -> Iterator[Slice]:
    """The same with what indexes know of them, as long as the topic keeps these indexes."""
    table, indexes = records.table, records.indexes
    writer = indexes.writer(binding(catalog, records))
    for start in range(0, len(table.bodies), count):
        slots, values = table.held(start, count), None
        if records.indexes is indexes:
            indexes.refresh_columns()
            values = writer.part(np.array(slots, np.int64))
        yield replace(table.part(slots), values=values)


def _slices(table: Table, count: int) -> Iterator[Slice]:
    start = 0
    while start < len(table.bodies):
        yield table.slice(start, count)
        start += count


def binding(catalog: Catalog, records: Records) -> str:
    """What stored index contents depend on: if it changes, they are ignored."""
    kind = records.definition.message_type
    options = repr(catalog.kinds.get(kind))
    return json.dumps([__version__, kind, options, records.indexes.definition])


def stored_bytes(catalog: Catalog, stored_as: str) -> Task[int]:
    """Bytes of bodies that a checkpoint would contain; some topics of a pattern in each step."""
    topics = catalog.members(stored_as)
    size_bytes = 0
    for start in range(0, len(topics), COUNTED_AT_ONCE):
        some = topics[start : start + COUNTED_AT_ONCE]
        size_bytes += sum([topic.records.table.bytes for topic in some])
        size_bytes += sum(
            [topic.records.events.size_bytes for topic in some if topic.records.events]
        )
        yield
    return size_bytes
