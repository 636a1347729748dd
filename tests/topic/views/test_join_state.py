"""A joined topic: what it is for the join while it changes, and what becomes one change."""

from sow.core.paths import parse_path
from sow.topic.views.join_state import STATE_BORN, STATE_VALUES, JoinState
from tests.topic.making import ORDERS, put, records

SYMBOL, QTY = parse_path("/symbol"), parse_path("/qty")


def joined(target):
    return JoinState(target, [QTY], [(SYMBOL,)], joins_nulls=False)


def values(states):
    return {name: state[STATE_VALUES] for name, state in states.items()}


def test_until_it_is_applied_a_change_is_not_seen():
    target = records()
    put(target, {"id": "a", "symbol": "X", "qty": 1})
    topic = joined(target)
    topic.on_batch(put(target, {"id": "a", "symbol": "Y", "qty": 2}, {"id": "b"}, seq=2))
    assert values(topic.states(["a", "b", "c"])) == {"a": ("X", 1)}
    topic.take()
    topic.on_batch(put(target, {"id": "a", "qty": 3}, seq=4))
    assert values(topic.states(["a"])) == {"a": ("X", 1)}
    changes = topic.next_taken(1)
    assert changes["a"].new[STATE_VALUES] == ("Y", 2), "as it was when the changes were taken"
    assert values(topic.states(["a"])) == {"a": ("Y", 2)}
    assert topic.next_taken(9).keys() == {"b"}
    assert topic.is_behind
    topic.take()
    assert topic.next_taken(9)["a"].new[STATE_VALUES] == (None, 3)
    assert not topic.is_behind


def test_changes_of_one_record_are_one():
    target = records()
    put(target, {"id": "a", "qty": 1})
    topic = joined(target)
    topic.on_batch(put(target, {"id": "a", "qty": 2}, {"id": "a", "qty": 3}, seq=2, ts_us=7))
    batch = target.drop(["a"], "expired", lambda _: ([4], [9]))
    topic.on_batch(batch)
    topic.on_batch(put(target, {"id": "a", "qty": 5}, seq=5, ts_us=11))
    topic.take()
    change = topic.next_taken(9)["a"]
    assert (change.old[STATE_VALUES], change.new[STATE_VALUES]) == ((None, 1), (None, 5))
    assert (change.old[STATE_BORN], change.new[STATE_BORN]) == (1, 5), "it has gone and come again"
    assert (change.seq, change.ts_us, change.reason) == (5, 11, None)


def test_what_has_gone_says_why():
    target = records()
    put(target, {"id": "a", "qty": 1})
    topic = joined(target)
    topic.on_batch(target.drop(["a"], "expired", lambda _: ([2], [9])))
    assert values(topic.states(["a"])) == {"a": (None, 1)}
    topic.take()
    change = topic.next_taken(9)["a"]
    assert (change.new, change.reason) == (None, "expired")
    assert topic.states(["a"]) == {}


def test_its_topic_reads_its_fields_until_it_is_stopped():
    target = records(ORDERS)
    put(target, {"id": "a", "symbol": "X", "qty": 1})
    topic = joined(target)
    assert topic.paths[topic.place(QTY)] == QTY
    assert QTY in target.read([b'{"id":"b","qty":1}']).columns
    topic.stop()
    assert QTY not in target.read([b'{"id":"b","qty":1}']).columns
    arrivals = topic.arrivals(["a", "nobody"])
    assert arrivals["a"].old is None
    assert topic.keys(topic.states(["a"]), (SYMBOL,)) == {"a": "X"}
    assert topic.keys({}, (SYMBOL,)) == {}


def test_it_is_forgotten_some_at_a_time_once_it_has_been_stopped():
    target = records()
    topic = joined(target)
    topic.on_batch(put(target, {"id": "a"}, {"id": "b"}))
    topic.take()
    topic.on_batch(put(target, {"id": "c"}, seq=3))
    for name in "xyz":
        topic.indexes[SYMBOL,].add(name, name)
    topic.stop()
    left = []
    while len(topic):
        left.append(len(topic))
        topic.forget_some(2)
    assert left == [6, 4, 2]
