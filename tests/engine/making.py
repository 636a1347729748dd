"""Catalogs for tests: the topics of a configuration, without an engine around them."""

import json

from sow.core.definitions import Configuration, ConflatedTopic, Topic
from sow.engine.catalog import Catalog
from sow.engine.wal import CommitSequencer
from sow.expressions import compile_filter

ORDERS = Topic("orders", "json", keys=("/id",))
SLOW = ConflatedTopic("slow", "json", "orders", interval_us=1_000)
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
COPIES = ConflatedTopic("copies", "json", "desks", interval_us=1_000, topic_format="%n-C")


def catalog(*topics, **more):
    """A catalog of these topics, and its sequencer."""
    sequencer = CommitSequencer()
    return Catalog(Configuration("test", topics, **more), compile_filter, sequencer), sequencer


def put(topic, *documents, now_us=0, expires_us=0):
    """Publish to a source without anybody being told; returns the batch."""
    bodies = [json.dumps(document).encode() for document in documents]
    return topic.put(topic.records.read(bodies), now_us, expires_us)


def documents(records):
    """The documents of a topic in order of first publication."""
    return [json.loads(records.table.bodies[slot]) for slot in records.table.live().tolist()]
