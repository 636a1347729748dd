"""No answer takes long in one step, whatever it is of, and each is of one moment.

Records that a step touches are counted, not timed: a table whose columns count says how many were
read between two yields. Taking hold of a whole column is one copy of references and counts nothing.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.history import snapshot as snapshots
from sow.history.log_rows import log_pieces
from sow.history.snapshot import Snapshot
from sow.history.snapshot_as_of import Present, as_of, narrowed
from sow.messages.arrow import ArrowColumns
from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.query import Query
from sow.server.api.snapshots import SnapshotLease, split_by_key
from sow.server.http.chunked_response import gathered
from sow.server.http.tables import of_documents, of_snapshot, streamed
from sow.sessions.queries.query_results import execute_query
from sow.topic.rendering import WHOLE
from tests.effort import examples
from tests.history.reading import extent
from tests.laws.harness import ORDERS, World

RECORDS = 24_000
STEP_RECORDS_MAX = 10_000
"""What a step may touch: a millisecond of the cheapest work there is."""


class Counting(list):
    """A column that counts what is read of it."""

    read = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        Counting.read += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self):
        Counting.read += len(self)
        return super().__iter__()

    def copy(self):
        return Counting(list.copy(self))


@pytest.fixture(scope="module")
def world():
    world = World(ORDERS)
    for start in range(0, RECORDS, RECORDS // 2):
        numbers = range(start, start + RECORDS // 2)
        world.publish("orders", *({"id": at, "v": at % 3} for at in numbers))
    for entry in world.journal.read(0):
        entry.bodies = Counting(entry.bodies)
    table = world.engine.topic("orders").records.table
    table.bodies, table.identities = Counting(table.bodies), Counting(table.identities)
    return world


def longest(steps):
    """The most records that a step of an iterator touches."""
    most, Counting.read = 0, 0
    for _ in steps:
        most, Counting.read = max(most, Counting.read), 0
    return max(most, Counting.read)


def shuffled(world):
    """All records, taken hold of in an order that is not theirs."""
    records = world.engine.topic("orders").records
    return Snapshot.take(records, records.table.live()[::-1])


def apart(making):
    """Its steps, with what is to be done in a thread done between them."""
    sent = None
    while True:
        try:
            work = making.send(sent)
        except StopIteration:
            return
        sent = None if work is None else work()
        yield


def columns(world):
    topic = world.engine.topic("orders")
    return ArrowColumns(
        topic.records.message_type, run_to_completion(world.engine.columns.making(topic))
    )


def past(world):
    present = Present.take(world.engine.topic("orders").records, world.engine.seq)
    return as_of(present, RECORDS // 2, world.journal)


def topics(world):
    return {"orders": world.engine.topic("orders").records}


def whole_log(world):
    return extent(world.journal, 0, None, 10**9, topics(world))


def taken(world, work):
    topic = world.engine.topic("orders")
    return work(SnapshotLease("name", "client", topic, [shuffled(world)], 1, 0))


DOORS = {
    "a query": lambda world: execute_query(world.engine, "orders", Query()),
    "what was taken hold of": lambda world: shuffled(world).settle(),
    "JSON": lambda world: gathered(map(b",".join, shuffled(world).documents(True, WHOLE))),
    "frames": lambda world: shuffled(world).frames(LINES, b"{", WHOLE),
    "Arrow": lambda world: gathered(streamed(of_snapshot(shuffled(world)))),
    "what columns there are": lambda world: world.engine.columns.making(
        world.engine.topic("orders")
    ),
    "columns of fields": lambda world: apart(of_documents(shuffled(world), columns(world))),
    "the past": past,
    "a filter over the past": lambda world: narrowed(
        shuffled(world), world.engine.filter("/v = 1"), None
    ),
    "the log": lambda world: log_pieces(world.journal, whole_log(world), topics(world)),
    "the log through a filter": lambda world: log_pieces(
        world.journal, whole_log(world), topics(world), world.engine.filter("/v = 1")
    ),
    "parts": lambda world: split_by_key(shuffled(world), 7),
    "how large it is": lambda world: taken(world, SnapshotLease.measure),
    "what is held alone": lambda world: taken(world, SnapshotLease.count),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_step_touches_more_than_so_many_records(world, door):
    assert longest(DOORS[door](world)) <= STEP_RECORDS_MAX


def test_a_step_that_touches_all_is_found(world, monkeypatch):
    monkeypatch.setattr(snapshots, "ANSWER_CHUNK_ROWS", 10**9)
    assert longest(DOORS["frames"](world)) >= RECORDS


def sow_steps(world, session, line=b'{"c":"sow","t":"orders","cid":"1","a":"completed"}'):
    return world.executor.carry_out(session, list(read_frame(line)), lambda: world.now)


def test_an_answer_to_a_command_is_made_in_bounded_steps(world):
    client = world.client()
    assert longest(sow_steps(world, client.session)) <= STEP_RECORDS_MAX
    world.settle()
    pulled = iter(lambda: client.session.pull(world.engine.sequencer.released, world.now), None)
    assert longest(pulled) <= STEP_RECORDS_MAX


def test_the_past_is_sent_in_bounded_steps(world):
    client = world.client()
    run_to_completion(
        sow_steps(world, client.session, b'{"c":"subscribe","t":"orders","bm":"0","cid":"1"}')
    )
    world.settle()
    pulled = iter(lambda: client.session.pull(world.engine.sequencer.released, world.now), None)
    assert longest(pulled) <= STEP_RECORDS_MAX
    assert not any(one.replay for one in client.subscriptions.values()), "it has come to its end"


changes = st.lists(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=3), min_size=1, max_size=12
)


class Changing:
    """A small world in which something happens between any two steps."""

    def __init__(self, monkeypatch, rounds):
        monkeypatch.setattr(snapshots, "ANSWER_CHUNK_ROWS", 2)
        monkeypatch.setattr("sow.history.snapshot.SETTLED_AT_ONCE", 2)
        monkeypatch.setattr("sow.history.snapshot_as_of.RECORDS_AT_ONCE", 2)
        self.world, self.version, self.rounds = World(ORDERS), 0, rounds
        self.states = {0: []}
        for number in range(9):
            self.change([(True, number)])
        self.at = 0

    def change(self, changes):
        for is_publish, number in changes:
            self.version += 1
            if is_publish:
                self.world.publish("orders", {"id": number, "v": self.version})
            else:
                self.world.delete("orders", f"/id = {number}")
            self.world.settle()
            self.states[self.world.engine.seq] = self.documents()

    def documents(self):
        table = self.world.engine.topic("orders").records.table
        return [json.loads(table.bodies[slot]) for slot in table.live().tolist()]

    def between(self, steps):
        """All steps, with a change after each; what they return."""
        while True:
            try:
                next(steps)
            except StopIteration as over:
                return over.value
            self.change(self.rounds[self.at % len(self.rounds)])
            self.at += 1

    def rows(self, chunks):
        found = []
        for chunk in chunks:
            found += map(json.loads, chunk)
            self.change(self.rounds[self.at % len(self.rounds)])
            self.at += 1
        return found


@given(rounds=changes, few_rows=st.sampled_from([0, 500]))
def test_answers_are_of_one_moment_whatever_happens_between_their_steps(rounds, few_rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sow.history.snapshot.PICKED_ROWS_MAX", few_rows)
        changing = Changing(patch, rounds)
        found = changing.between(execute_query(changing.world.engine, "orders", Query()))
        rows = changing.rows(found.rows.documents(False))
        assert rows == changing.states[found.bookmark]
        last = changing.between(execute_query(changing.world.engine, "orders", Query(skip_n=3)))
        assert changing.rows(last.rows.documents(False)) == changing.states[last.bookmark][3:]


@examples(8)
@given(rounds=changes, back=st.integers(0, 8), few_rows=st.sampled_from([0, 500]))
def test_the_past_is_of_one_moment_too(rounds, back, few_rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sow.history.snapshot.PICKED_ROWS_MAX", few_rows)
        changing = Changing(patch, rounds)
        changing.change([(True, 3), (False, 4), (True, 11)])
        seq = changing.world.engine.seq
        present = Present.take(changing.world.engine.topic("orders").records, seq)
        changing.between(present.settle())
        steps = as_of(present, seq - back, changing.world.journal)
        rows = changing.rows(changing.between(steps).documents(False))
        by_id = {row["id"]: row for row in rows}
        assert by_id == {row["id"]: row for row in changing.states[seq - back]}
        assert len(by_id) == len(rows)


@pytest.mark.parametrize(("steps_taken", "frames_read"), [(0, 0), (1, 0), (2, 1), (3, 2), (5, 3)])
def test_an_answer_that_is_given_up_leaves_nothing_behind(monkeypatch, steps_taken, frames_read):
    monkeypatch.setattr("sow.sessions.queries.query_planning.ANSWER_CHUNK_ROWS", 2)
    changing = Changing(monkeypatch, [[]])
    world, client = changing.world, changing.world.client()
    steps = sow_steps(
        world, client.session, b'{"c":"sow","t":"orders","order_by":"/id DESC","cid":"1"}'
    )
    for _ in range(steps_taken):
        next(steps, None)
    world.settle()
    for _ in range(frames_read):
        client.session.pull(world.engine.sequencer.released, world.now)
    steps.close()
    world.executor.sessions.close(client.session)
    unread = world.executor.subscriptions.planner.unread
    assert (unread.rows, dict(unread._by_client)) == (0, {})
    world.executor.subscriptions.check()


def test_the_parts_of_a_snapshot_are_its_rows(world):
    parts = run_to_completion(split_by_key(shuffled(world), 7))
    ids = [json.loads(body)["id"] for part in parts for body in part.bodies.part(0, len(part))]
    assert sorted(ids) == list(range(RECORDS))
    assert all(np.array_equal(part.slots, np.sort(part.slots)[::-1]) for part in parts)
