"""What differs between what a session holds and what it asks for, by masks of slots."""

import json

import numpy as np

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Topic
from sow.protocol.replies import LINES
from sow.sessions.subscriptions.pending_updates import SLOTLESS, PendingUpdates
from sow.sessions.subscriptions.subscription_diff import (
    NOTHING_HELD,
    ClientState,
    ClientTarget,
    DiffMessages,
    client_diff,
)
from sow.streaming.update_encoder import FeedKey, UpdateEncoder
from sow.topic.batch import Update
from tests.laws.harness import World


def slots(*some):
    return np.array(some, np.int64)


def records(**more):
    world = World(Topic("t", "json", keys=("/id",), **more))
    world.publish("t", *({"id": number} for number in range(5)))
    return world.engine.topic("t").records


def waiting(identity, told=True, new=b"{}", seq=2):
    return Update(identity, told, new, seq, 9, seq, 9, None if new else "deleted", old=b"{}")


def columns(*updates, topic=None):
    """What waits of a topic."""
    rows, slots_of = PendingUpdates(), (topic or records()).table.slots
    for update in updates:
        rows.put((update.identity,), update, slots_of.get(update.identity, SLOTLESS))
    return rows.columns()


def test_what_is_lost_new_or_known():
    held = ClientState(slots(0, 1, 2), frozenset(), columns(), True)
    requested = ClientTarget(slots(1, 2, 3), slots(3, 2, 1))
    found = client_diff(records(), held, requested)
    assert found.lost.tolist() == [0]
    assert (found.rows.tolist(), found.matches, found.late.tolist()) == ([3], 1, [])
    assert found.known.tolist() == [1, 2, 3]
    # Seen by another select list, what is held is told again, whole: by the answer, or as updates.
    again = requested._replace(same_shape=False, by_deltas=True)
    found = client_diff(records(), held, again)
    assert (found.rows.tolist(), found.late.tolist()) == ([3, 2, 1], [])
    found = client_diff(records(), held, again._replace(rows=None))
    assert (found.rows.tolist(), found.late.tolist(), found.known.tolist()) == ([], [1, 2], [1, 2])


def test_what_waits_says_what_the_session_was_sent():
    topic = records()
    names = topic.table.identities
    updates = [
        waiting(names[0], told=False),  # not told of it yet: lost without a word
        waiting(names[1]),
        waiting("gone", new=None),
        waiting("came and went", told=False, new=None),
    ]
    held = ClientState(slots(0, 1, 2), frozenset(), columns(*updates), True)
    found = client_diff(topic, held, ClientTarget(slots(1, 2)))
    assert (found.lost.tolist(), [one.identity for one in found.parted]) == ([], ["gone"])
    assert (found.late.tolist(), found.late_stamps[0].tolist()) == ([1], [2])
    assert found.line_count(oof=True) == 2
    assert found.line_count(oof=False) == 1
    assert found.places(topic) == [1, 2]
    left = client_diff(topic, held, ClientTarget())
    assert (left.lost.tolist(), left.line_count(oof=True)) == ([1, 2], 3)


def test_what_may_not_be_seen_is_sent_as_it_was_last_sent():
    topic = records()
    updates = columns(waiting(topic.table.identities[0]), topic=topic)
    held = ClientState(slots(0, 1, 2), frozenset(), updates, True)
    found = client_diff(topic, held, ClientTarget(visible=slots(2)))
    assert (found.lost.tolist(), found.taken.tolist()) == ([2], [1])
    assert [(one.identity, one.reason) for one in found.parted] == [
        (topic.table.identities[0], "entitlement")
    ]


def test_a_page_of_an_answer_leaves_the_rest_to_be_sent_late():
    updates = [waiting(name) for name in records().table.identities[:2]]
    held = ClientState(slots(0, 1), frozenset(), columns(*updates), True)
    requested = ClientTarget(slots(0, 1, 2), slots(0, 1, 2), slice(0, 1))
    found = client_diff(records(), held, requested)
    assert (found.rows.tolist(), found.matches, found.late.tolist()) == ([0], 3, [1])


def test_of_what_is_not_stored_only_what_waits_is_known():
    topic = records(retain=False)
    updates = columns(waiting("b"), waiting("c", new=None))
    held = ClientState(slots(), frozenset({"a"}), updates, False)
    found = client_diff(topic, held, ClientTarget(follows=True))
    assert [one.identity for one in found.late_updates] == ["b"]
    assert found.places(topic) == {"a", "b"}
    assert client_diff(topic, held, ClientTarget()).line_count(oof=True) == 0


def test_many_lines_are_worded_a_chunk_at_a_time(monkeypatch):
    monkeypatch.setattr("sow.sessions.subscriptions.subscription_diff.ANSWER_CHUNK_ROWS", 2)
    monkeypatch.setattr("sow.history.snapshot.ANSWER_CHUNK_ROWS", 2)
    topic = records()
    words = UpdateEncoder(topic, "f1", LINES, FeedKey(oof=True))
    told = DiffMessages(LINES, oldest=4)
    told.take_update(words, waiting("before", new=None))
    requested = ClientTarget(slots(4, 3), by_deltas=True)
    held = ClientState(slots(0, 1, 2, 3), frozenset(), columns(), True)
    told.take(words, client_diff(topic, held, requested._replace(same_shape=False)))
    told.take(words, client_diff(topic, NOTHING_HELD, requested))
    assert (told.weight, told.is_short) == (5, False)
    run_to_completion(told.settle())
    chunks = [[json.loads(line) for line in some] for some in told.lines()]
    assert [[line["c"] for line in some] for some in chunks] == [
        ["oof"],
        ["oof", "oof"],
        ["oof"],
        ["p"],
    ]
    assert chunks[-1][0]["bm"] == "4"
    assert [count for _, count in told.frames()] == [1, 2, 1, 1]
