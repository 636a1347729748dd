"""What was taken for an answer: counted as it is taken, and said many topics at a time."""

from weakref import ref

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE
from sow.errors import Busy, UnknownTopic
from sow.history.snapshot import Snapshot
from sow.protocol.replies import LINES
from sow.query import Query
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from sow.sessions.queries.query_results import (
    ResultSnapshot,
    UnreadQuota,
    execute_query,
)
from sow.topic.rendering import Shape
from tests.laws.harness import ORDERS, World


def whole_of(_topic):
    """All of each record."""
    return Shape()


@pytest.fixture
def world():
    world = World()
    world.publish("orders", *({"id": number} for number in range(3)))
    world.advance(2_000_000)
    return world


def take(world, taken, name, count, matches):
    topic = world.engine.topics[name]
    taken.take(topic, Snapshot.take(topic.records, topic.records.table.live()[:count]), matches)
    return topic


def test_what_is_taken_again_counts_once_and_what_is_dropped_not_at_all(world):
    taken = ResultSnapshot(tracks=True)
    take(world, taken, "orders", 1, 3)
    topic = take(world, taken, "orders", 2, 3)
    copy = take(world, taken, "orders-C", 3, 3)
    assert (taken.returned, taken.matches, taken.is_whole) == (5, 6, False)
    assert taken.weight == 5 + 20
    slots_by_topic = {name: slots.tolist() for name, slots in taken.slots.items()}
    assert slots_by_topic == {"orders": [0, 1], "orders-C": [0, 1, 2]}
    taken.drop(topic)
    taken.drop(topic)
    assert (taken.returned, taken.matches, taken.is_whole) == (3, 3, True)
    assert topic not in taken
    assert [one.topic.name for one in taken] == [copy.name]
    assert [*taken.slots] == ["orders-C"]


def test_rows_of_several_topics_share_a_frame_until_it_is_long_enough(world, monkeypatch):
    taken = ResultSnapshot()
    for name in ("orders", "orders-C"):
        take(world, taken, name, 3, 3)
    assert taken.is_short
    assert [count for _, count in taken.frames(LINES, "q1", whole_of)] == [6]
    for module in ("sow.sessions.queries.query_results", "sow.history.snapshot"):
        monkeypatch.setattr(f"{module}.ANSWER_CHUNK_ROWS", 5)
    assert not taken.is_short
    assert [count for _, count in taken.frames(LINES, "q1", whole_of)] == [3, 3]
    run_to_completion(taken.settle())
    assert [len(rows) for rows in taken.lines(LINES, "q1", whole_of)] == [3, 3]


def test_many_topics_are_settled_some_at_a_time(world, monkeypatch):
    monkeypatch.setattr("sow.sessions.queries.query_results.SETTLED_AT_ONCE", 1)
    taken = ResultSnapshot()
    for name in ("orders", "orders-C"):
        take(world, taken, name, 3, 3)
    assert len([*taken.settle()]) >= 3


def test_an_answer_has_its_rows_its_bookmark_and_how_it_was_found():
    world = World(ORDERS)
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    found = run_to_completion(
        execute_query(world.engine, "orders", Query(filter=world.engine.filter("/id > 1"), top_n=1))
    )
    assert (found.answer.matches, len(found.rows), found.bookmark) == (2, 1, 3)
    assert found.rows.stamps is not None
    found = run_to_completion(execute_query(world.engine, "orders", Query(), with_keys=False))
    assert found.rows.stamps is None
    with pytest.raises(UnknownTopic):
        run_to_completion(execute_query(world.engine, "nope", Query()))


def test_nothing_is_taken_hold_of_that_is_not_admitted():
    world = World(ORDERS)
    world.publish("orders", {"id": 1}, {"id": 2})

    def admit(rows):
        raise Busy(f"not {rows} rows")

    with pytest.raises(Busy, match="not 2 rows"):
        run_to_completion(execute_query(world.engine, "orders", Query(), admit=admit))


def test_an_answer_that_waits_for_its_client_does_not_hold_what_there_was(monkeypatch):
    monkeypatch.setattr("sow.sessions.commands.staged_writes.WAITED_ROWS_MAX", 0)
    world, count = World(ORDERS, WRITES, WRITES_BEFORE), 600
    world.publish("orders", *({"id": number} for number in range(count)))
    bodies = [b'{"id":%d,"v":1}' % number for number in range(count)]
    writes, topic = StagedWrites(world.engine), world.engine.topics["orders"]
    steps, _ = writes.read(topic, StagedRows(["publish"] * count, [None] * count, bodies))
    applying = writes.applying("w", 1, "orders", steps, world.now)
    readable = world.engine.atomic.readable
    while (frozen := readable(topic)) in (None, topic.records):
        next(applying)
    held, frozen = ref(frozen.table.seqs.base), None
    client = world.client()
    client.execute(b'{"c":"sow","t":"orders"}')
    assert run_to_completion(applying) > count
    assert held() is None
    assert len([line for line in client.lines() if line["c"] == "sow"]) == count


def frames(count):
    return iter([(b"x", 1)] * count)


def test_rows_count_until_they_are_read():
    unread = UnreadQuota(10)
    held = unread.hold("s", 5, frames(2))
    assert unread.rows == 5
    assert len(list(held)) == 2
    assert unread.rows == 0
    assert next(held, None) is None
    assert unread.rows == 0


def test_rows_that_are_let_go_count_no_more():
    unread = UnreadQuota(10)
    held = unread.hold("s", 5, frames(2))
    next(held)
    del held
    assert unread.rows == 0


def test_one_session_may_leave_half_unread_but_for_its_first_answer():
    unread = UnreadQuota(10)
    unread.check("s", 1000)
    held = unread.hold("s", 3, frames(1))
    unread.check("s", 2)
    with pytest.raises(Busy, match="wait for this client"):
        unread.check("s", 3)
    list(held)
    unread.check("s", 1000)


def test_all_sessions_together_are_bounded():
    unread = UnreadQuota(10)
    held = [unread.hold(name, 4, frames(1)) for name in ("a", "b")]
    unread.check("c", 2)
    with pytest.raises(Busy, match="as many as may"):
        unread.check("c", 3)
    assert unread.rows == sum(4 for _ in held)


def test_an_answer_counts_from_when_it_is_admitted_until_it_is_over(monkeypatch):
    monkeypatch.setattr("sow.sessions.queries.query_results.ANSWER_CHUNK_ROWS", 1)
    unread = UnreadQuota(10)
    with unread.answer("c") as answer, unread.answer("c") as second, unread.answer("c") as short:
        answer.admit(4)
        assert unread.rows == 4
        with pytest.raises(Busy):
            second.admit(2)
        short.admit(1)
        assert unread.rows == 4
    assert unread.rows == 0
