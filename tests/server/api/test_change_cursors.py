"""Changes with the record before each: what a naive model says, wherever a reader begins, whatever
is released, and after restarts."""

import io
import json
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, Limits, with_system_topics
from sow.core.security_definitions import Allow
from sow.server.api import log
from sow.server.api.cursors import ChangeCursor, ChangeCursors
from sow.server.api.log import LogHandler
from sow.server.api.snapshots import SNAPSHOT_KEPT_US, AsOfQueries, SnapshotHandler
from sow.server.http import tables
from tests.server.stand_ins import (
    ORDERS,
    SECOND,
    Anybody,
    Served,
    World,
    asking,
    authenticator_of,
    routes_to,
    run,
    stepped,
)
from tests.store.in_memory import MemoryJournal

MORTAL = replace(ORDERS, expires=True)
FILLS = replace(ORDERS, name="fills")
PASSING = replace(ORDERS, name="passing", durability="transient")
KEYLESS = replace(ORDERS, name="keyless", keys=())
TOPICS = (MORTAL, FILLS, PASSING, KEYLESS)


class Place(Served):
    """The log of a world, and the cursors on it."""

    def __init__(self, journal=None, authn=None, **limits):
        journal = journal or MemoryJournal()
        world = World(*TOPICS, journal=journal)
        if limits:
            world.engine.configuration = with_system_topics(
                Configuration("test", TOPICS, limits=Limits(**limits))
            )
        if journal.last_seq:
            run_to_completion(world.engine.restore({}, journal.read(0), journal.last_seq))
            world.clock.go_on_from(world.engine.now_us)
        past = AsOfQueries(world.runtime, world.executor.subscriptions.past)
        self.snapshots = SnapshotHandler(world.runtime, world.engine, past)
        changes = ChangeCursors(world.runtime, world.engine, self.snapshots, past)
        door = LogHandler(world.runtime, world.engine, changes)
        super().__init__(world, *routes_to(door, self.snapshots), authn=authn)

    @property
    def cursors(self):
        return [one for one in self.snapshots.taken.all() if isinstance(one, ChangeCursor)]

    async def fill(self, *bodies, topic="orders", **more):
        self.world.engine.publish(topic, list(bodies), self.world.clock.now_us(), **more)
        await self.world.runtime.durable()

    async def remove(self, id_):
        (name,) = self.world.engine.topics["orders"].records.identities_of([b'{"id":%d}' % id_])
        slot = self.world.engine.topics["orders"].records.table.slots[name]
        run_to_completion(
            self.world.engine.removal("orders", np.array([slot]), self.world.clock.now_us())
        )
        await self.world.runtime.durable()

    async def expire(self):
        self.world.clock.advance(10 * SECOND)
        self.world.engine.advance(self.world.clock.now_us())
        await self.world.runtime.durable()

    async def changes(self, begin=0, query="", **headers):
        """The changes after a place as (number, before, value), and where they end."""
        path = f"/v1/log?topics=orders&format=arrow&before=true&from={begin}{query}"
        answer = await self.get(path, **headers)
        assert answer.status == 200, answer.json
        table = pyarrow.ipc.open_stream(io.BytesIO(answer.body)).read_all()
        sides = [
            [None if text is None else json.loads(text) for text in table.column(name).to_pylist()]
            for name in ("before", "value")
        ]
        numbers = table.column("bookmark").to_pylist()
        return list(zip(numbers, *sides, strict=True)), int(answer.headers["SOW-Bookmark"])


IDS = st.integers(1, 3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["publish", "publish", "mortal", "delta"]), IDS, st.integers(0, 3))
    | st.tuples(st.sampled_from(["delete"]), IDS)
    | st.tuples(st.sampled_from(["other", "expire", "restart", "release"]))
    | st.tuples(st.just("read"), st.integers(1, 5), st.booleans(), st.booleans()),
    max_size=25,
)


class Model:
    """A topic as a dictionary, and what it was after each change of the log."""

    def __init__(self):
        self.now, self.states, self.mortal = {}, [{}], set()

    def change(self, id_, document):
        self.now = {key: one for key, one in self.now.items() if key != id_}
        if document is not None:
            self.now[id_] = document
        self.states.append(self.now)

    def changes(self, begin, end, is_seen):
        """Each change that is seen on one side at least."""
        for seq in range(begin + 1, end + 1):
            old, new = self.states[seq - 1], self.states[seq]
            for id_ in [*(old.keys() | new.keys())]:
                if old.get(id_) is not new.get(id_):
                    sides = [
                        one.get(id_) if id_ in one and is_seen(one[id_]) else None
                        for one in (old, new)
                    ]
                    if sides != [None, None]:
                        yield (seq, *sides)


class History:
    """A place, its model, and two readers: of everything, and of some records."""

    def __init__(self):
        self.model, self.reached, self.copies = Model(), [0, 0], [{}, {}]

    async def go(self, steps):
        journal = MemoryJournal()
        remaining = [*steps, ("read", 1000, False, False), ("read", 1000, True, True)]
        while remaining:
            async with Place(journal) as place:
                while remaining and (step := remaining.pop(0))[0] != "restart":
                    await getattr(self, step[0])(place, *step[1:])

    async def publish(self, place, id_, value):
        self.model.mortal.discard(id_)
        self.model.change(id_, {"id": id_, "v": value})
        await place.fill(b'{"id":%d,"v":%d}' % (id_, value))

    async def mortal(self, place, id_, value):
        self.model.change(id_, {"id": id_, "v": value})
        self.model.mortal.add(id_)
        await place.fill(b'{"id":%d,"v":%d}' % (id_, value), expires_s=5)

    async def delta(self, place, id_, value):
        self.model.change(id_, {"id": id_, **self.model.now.get(id_, {}), "w": value})
        await place.fill(b'{"id":%d,"w":%d}' % (id_, value), delta=True)

    async def delete(self, place, id_):
        if id_ in self.model.now:
            self.model.mortal.discard(id_)
            self.model.change(id_, None)
            await place.remove(id_)

    async def expire(self, place):
        last = len(self.model.states) - 1
        await place.expire()
        entries = [one for one in place.world.runtime.journal.read(last) if one.seq > last]
        gone = [name for one in entries if one.op == "expire" for name in one.identities]
        names = {
            place.world.engine.topics["orders"].records.identities_of([b'{"id":%d}' % id_])[0]: id_
            for id_ in self.model.mortal
        }
        assert {names[one] for one in gone} == self.model.mortal
        for one in gone:
            self.model.change(names[one], None)
        self.model.mortal.clear()

    async def other(self, place):
        self.model.states.append(self.model.now)
        await place.fill(b'{"id":1}', topic="fills")

    async def release(self, place):
        for one in place.cursors:
            place.snapshots.taken.drop(one.name)

    async def read(self, place, limit, is_filtered, again):
        begin, copy = self.reached[is_filtered], self.copies[is_filtered]
        query = f"&limit={limit}" + ("&filter=" + quote("/v > 1") if is_filtered else "")
        found, end = await place.changes(begin, query)
        is_seen = (lambda one: one.get("v", 0) > 1) if is_filtered else (lambda one: True)
        assert found == [*self.model.changes(begin, end, is_seen)]
        if again:
            assert await place.changes(begin, f"{query}&to={end}") == (found, end)
        for _, old, new in found:
            id_ = (new or old)["id"]
            assert copy.get(id_) == old
            copy.pop(id_, None)
            if new is not None:
                copy[id_] = new
        self.reached[is_filtered] = end
        then = self.model.states[end]
        assert copy == {id_: one for id_, one in then.items() if is_seen(one)}


@given(STEPS)
def test_changes_are_those_of_a_model_and_make_a_copy(steps):
    run(History().go(steps))


@stepped
async def test_places_that_many_readers_left_do_not_keep_others_out():
    async with Place() as place:
        for value in range(20):
            await place.fill(b'{"id":1,"v":%d}' % value)
        for place_ in reversed(range(1, 20)):
            await place.changes(place_, "&limit=1")
            await place.changes(place_, "&limit=1")  # the same end: one is enough
        ends = [one.bookmark for one in place.cursors]
        assert len(ends) == len({*ends})
        now_us = place.world.clock.now_us()
        assert all(one.rests for one in place.cursors)
        place.snapshots.taken.make_room("", 10_000_000, now_us)
        assert not place.cursors


def test_a_bug_is_found(monkeypatch):
    before = ChangeCursor.before
    monkeypatch.setattr(
        ChangeCursor,
        "before",
        lambda self, rows: (
            [*map(self.bodies.get, rows.identities)] if rows.op == "expire" else before(self, rows)
        ),
    )
    read = ("read", 9, False, False)
    with pytest.raises(AssertionError):
        run(History().go([("mortal", 1, 2), read, ("expire",), ("publish", 1, 3)]))


@stepped
async def test_a_reader_at_the_end_of_the_log_moves_one_cursor(monkeypatch):
    async with Place() as place:
        made = []
        past = AsOfQueries.bodies
        monkeypatch.setattr(
            AsOfQueries, "bodies", lambda *args: made.append(args[3]) or past(*args)
        )
        end = 0
        for value in range(5):
            await place.fill(b'{"id":1,"v":%d}' % value)
            await place.fill(b'{"id":1}', topic="fills")
            found, end = await place.changes(end)
            old = None if value == 0 else {"id": 1, "v": value - 1}
            assert [change[1:] for change in found] == [(old, {"id": 1, "v": value})]
        assert made == [0]
        (cursor,) = place.cursors
        # The topic has the same body, so that the cursor holds nothing of its own.
        run_to_completion(cursor.count())
        assert (cursor.bookmark, cursor.held_bytes, cursor.rows) == (end, 0, 1)
        place.world.clock.advance(SNAPSHOT_KEPT_US + SECOND)
        place.snapshots.taken.expire(place.world.clock.now_us())
        assert not place.cursors


@stepped
async def test_of_records_that_leave_keys_are_shown_where_these_are_enough():
    async with Place() as place:
        await place.fill(b'{"id":1,"v":5}')
        await place.fill(b'{"id":1,"v":6}')
        await place.remove(1)
        found, _ = await place.changes(1)
        assert found[1] == (3, {"id": 1, "v": 6}, None)
        answer = await place.get("/v1/log?topics=orders&format=arrow&before=keys&select=/v")
        table = pyarrow.ipc.open_stream(io.BytesIO(answer.body)).read_all()
        assert table.column("before").to_pylist() == [None, '{"v":5}', '{"id":1}']
        assert table.column("value").to_pylist() == ['{"v":5}', '{"v":6}', None]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("topics=orders&before=true", "before is for Arrow"),
        ("topics=orders&before=true&format=csv", "before is for Arrow"),
        ("before=true&format=arrow", "one topic"),
        ("topics=orders,fills&before=true&format=arrow", "one topic"),
        ("topics=passing&before=true&format=arrow", "passing has no log"),
        ("topics=orders&before=maybe&format=arrow", "before=maybe"),
        ("topics=orders&before=true&format=arrow&filter=BOOKMARK()%3D'1'", "filter of fields"),
    ],
)
def test_what_before_does_not_go_with_is_said(query, said):
    async def asked():
        async with Place() as place:
            await place.fill(b'{"id":1}')
            answer = await place.get(f"/v1/log?{query}")
            assert answer.status == 400, answer.body
            assert said in answer.body.decode()
            assert not place.cursors

    run(asked())


@stepped
async def test_a_state_that_the_log_does_not_have_is_refused():
    journal = MemoryJournal(retention_bytes=0)
    async with Place(journal) as place:
        for value in range(4):
            await place.fill(b'{"id":1,"v":%d}' % value)
        # A cursor that was there before still knows.
        await place.changes(0, "&limit=2")
        journal.trim(0, 3)
        assert journal.first_seq == 3
        found, _ = await place.changes(2, "&limit=1")
        assert found == [(3, {"id": 1, "v": 1}, {"id": 1, "v": 2})]
        answer = await place.get("/v1/log?topics=orders&format=arrow&before=true&from=2")
        assert answer.status == 400, answer.body
        assert "the log no longer has what it was" in answer.body.decode()


@stepped
async def test_a_user_sees_changes_of_what_is_his_to_see():
    allow = Allow("orders", read=True, filter="/v > 1", select=("-/secret",))
    authn = authenticator_of(asking(allow), lambda _settings: Anybody())
    async with Place(authn=authn) as place:
        for value in (1, 2, 3, 0):
            await place.fill(b'{"id":1,"v":%d,"secret":%d}' % (value, value))
        await place.fill(b'{"id":2,"v":1}')
        await place.remove(2)
        found, _ = await place.changes(0, Authorization="Bearer ada")
        assert found == [
            (2, None, {"id": 1, "v": 2}),
            (3, {"id": 1, "v": 2}, {"id": 1, "v": 3}),
            (4, {"id": 1, "v": 3}, None),
        ]
        (cursor,) = place.cursors
        answer = await place.get(f"/v1/snapshots/{cursor.name}", Authorization="Bearer ada")
        assert answer.status == 404


@stepped
async def test_a_cursor_without_room_is_refused_and_not_kept():
    async with Place(snapshot_bytes_max=4_000) as place:
        for id_ in range(10):
            await place.fill(b'{"id":%d,"text":"%b"}' % (id_, b"x" * 500))
        for id_ in range(10):
            await place.remove(id_)
        answer = await place.get("/v1/log?topics=orders&format=arrow&before=true&to=10")
        assert answer.status == 413, answer.body
        assert "SnapshotMemory" in answer.body.decode()
        assert not place.cursors
        found, _ = await place.changes(0, "&limit=1")
        assert len(found) == 1


@stepped
async def test_small_changes_of_large_records_come_in_small_batches(monkeypatch):
    monkeypatch.setattr(log, "IMAGES_BYTES", 1500)
    monkeypatch.setattr(tables, "BATCH_BYTES", 1000)
    async with Place() as place:
        for id_ in range(6):
            await place.fill(b'{"id":%d,"text":"%b"}' % (id_, b"x" * 400))
        await place.fill(*(b'{"id":%d}' % id_ for id_ in range(6)))
        answer = await place.get("/v1/log?topics=orders&format=arrow&before=true&from=6")
        batches = [*pyarrow.ipc.open_stream(io.BytesIO(answer.body))]
        assert [len(batch) for batch in batches] == [3, 3]
        found, _ = await place.changes(6)
        assert [(old["id"], new["id"]) for _, old, new in found] == [(n, n) for n in range(6)]
        head = await place.ask("HEAD", "/v1/log?topics=orders&format=arrow&before=true&from=6")
        assert head.status == 200
        assert await place.changes(6) == (found, 12)


@stepped
async def test_a_cursor_is_moved_by_one_reader_and_lost_with_him():
    async with Place() as place:
        for id_ in range(5):
            await place.fill(b'{"id":%d,"text":"%b"}' % (id_, b"x" * 100_000))
        socket = await place.begin("GET", "/v1/log?topics=orders&format=arrow&before=true")
        # The answer waits in the socket; the cursor is at its end, as is its answer.
        other = await place.changes(0, "&limit=3")
        assert len(other[0]) == 3
        socket.protocol.connection_lost(None)
        assert {one.bookmark for one in place.cursors} <= {3, 5}
        assert await place.changes(3) == await place.changes(3)
