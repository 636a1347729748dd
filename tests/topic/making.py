"""Records of one topic for the tests of what is done with them: no engine, no clock."""

import json
from dataclasses import replace

from sow.core.definitions import Topic
from sow.messages import message_type
from sow.topic.batch import Changes
from sow.topic.queue_policy import queue_policy
from sow.topic.records import Records

ORDERS = Topic("orders", "json", keys=("/id",), hash_indexes=(("/symbol",),))


def records(definition=ORDERS, keys=None, domain="orders"):
    """The records of a topic, none yet."""
    keys = definition.keys if keys is None else keys
    return Records(definition, message_type(definition.message_type), keys, domain)


def body(**fields):
    return json.dumps(fields, separators=(",", ":")).encode()


def put(target, *documents, seq=1, ts_us=0, expires_us=0):
    """Publish documents; returns the batch."""
    bodies, identities, columns, *_ = target.read([body(**document) for document in documents])
    seqs, times_us = range(seq, seq + len(documents)), [ts_us] * len(documents)
    return target.put(identities, bodies, columns, seqs, times_us, expires_us)


def held(target):
    """The documents there are, in order of first publication."""
    return [json.loads(target.table.bodies[slot]) for slot in target.table.live().tolist()]


def changed(target, *pairs):
    """A batch of changes (old document or None, new document), without touching the records."""
    olds = [None if old is None else body(**old) for old, _ in pairs]
    news = [body(**new) for _, new in pairs]
    names = [json.dumps(new["id"]) for _, new in pairs]
    count = len(pairs)
    changes = Changes(target.name, names, (), olds, news, range(1, count + 1), [0] * count)
    return target.batch(changes, {})


def allow(topic, policy):
    """Let a topic fold as this ConflationPolicy says; what it had is shared by others."""
    definition = replace(topic.definition, conflation_policy=policy)
    topic.folding = queue_policy(definition, topic.message_type)
