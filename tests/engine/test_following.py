"""An engine that follows a log is at each bookmark and time as the one that writes it."""

import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Merge, Series, Topic, View
from sow.engine import following as module
from sow.engine.following import Following, FollowingEngine, windows_of, with_windows
from sow.engine.state_hash import StateHash
from sow.errors import NotPrimary
from sow.store.manifest import past_of
from tests.effort import lines_run
from tests.engine.test_replay import ABOVE, DESKS, DESKS_C, OVER, SUMS, TICK, shown
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, World
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal

LIVED = Topic("lived", "json", keys=("/id",), expires=True, expiration_us=SECOND)
LIVED_C = ConflatedTopic("lived-C", "json", "lived", interval_us=SECOND)
EVENTS = Topic("events", "json", keys=("/id",), series=Series(events_max=3))
PLAIN = Topic("plain", "json", keys=("/id",), expires=True)
MANY = Topic("many", "json", keys=("/id",), pattern="^/many/", expires=True, expiration_us=SECOND)
FLEETING = Topic("fleeting", "json", keys=("/id",), durability="transient")
FLEETING_C = ConflatedTopic("fleeting-C", "json", "fleeting", interval_us=SECOND)
ALL = (
    ORDERS, DESKS, LIVED, EVENTS, PLAIN, FLEETING, SLOW, DESKS_C, ABOVE, TICK, LIVED_C, FLEETING_C,
    SUMS, OVER,
)  # fmt: skip
SHOWN = (
    "orders", "/desk/1", "lived", "events", "plain", "orders-C", "/desk/1-C", "above", "tick",
    "lived-C", "sums", "over",
)  # fmt: skip
TOTALS = ConflatedTopic(
    "totals", "json", "orders", interval_us=SECOND, merges=(Merge("/n", "sum"),)
)
UNSTAMPED = ("sums", "over", "totals")
ALL_AND_TOTALS = (*ALL, TOTALS)
acts = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(("orders", "/desk/1", "lived", "events", "plain", "fleeting")),
            st.integers(0, 3),
            st.integers(0, 5),
        ),
        st.tuples(st.just("delete"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 1500), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
    ),
    max_size=14,
)


class Follower:
    """An engine that follows the log of a world, and logs it again."""

    def __init__(self, world):
        self.world = world
        self.engine = FollowingEngine(world.configuration, "http://primary")
        self.journal = MemoryJournal()
        self.following = Following(self.engine)

    @classmethod
    def later(cls, world):
        """One that begins now, with what is stored and with the windows that are open."""
        sent = msgspec.msgpack.encode(windows_of(world.engine))
        follower = cls(world)
        before = run_to_completion(with_windows(world.configuration, msgspec.msgpack.decode(sent)))
        empty = {name: MemoryCheckpoint() for name in world.checkpoints}
        stored = empty, world.journal.read(0), world.engine.seq, past_of(world.configuration)
        steps = follower.engine.restore(*stored, before=before)
        run_to_completion(steps)
        follower.engine.sequencer.moment(world.engine.now_us)
        follower.journal.append([*world.journal.read(0)])
        follower.settle()
        return follower

    def catch_up(self, until=2**63):
        """Apply what is durable, and let the time be that of the primary."""
        entries = [*self.world.journal.read(self.engine.seq)]
        run_to_completion(self.following.apply([one for one in entries if one.seq <= until]))
        if entries and entries[-1].seq > until:
            return
        run_to_completion(self.following.pass_time(self.world.engine.now_us))
        self.settle()

    def settle(self):
        group = self.engine.flush()
        if group.entries:
            self.journal.append(group.entries)
        self.engine.sequencer.release(group)


def live(world, act):
    kind, first, second = act
    if kind == "wait":
        world.advance(first * MS)
    elif kind in ("delete", "drop"):
        world.delete("orders" if kind == "delete" else "events", f"/id = {first}")
    else:
        world.publish(kind, {"id": first, "symbol": "AB"[second % 2], "n": second})
    world.advance(1)
    world.settle()


def test_no_reader_sees_a_part_of_a_change(monkeypatch):
    monkeypatch.setattr(module, "RECORDS_AT_ONCE", 2)
    world = World(ORDERS)
    world.engine.publish("orders", [b'{"id":%d}' % at for at in range(5)], world.now)
    world.settle()
    follower = Follower(world)
    topic, seen = follower.engine.topics["orders"], []
    for _ in follower.following.apply(world.journal.read(0)):
        records = follower.engine.atomic.readable(topic)
        seen.append(None if records is None else len(records.table))
    assert seen[-1] == 5
    assert {*seen} == {None, 5}
    assert follower.engine.seq == world.engine.seq
    follower.settle()
    assert [*follower.journal.read(0)]
    assert follower.journal.last_seq == 5


def in_any_order(engine, name):
    """The records of a topic; without stamps of a view, since a start gives a row those of its
    newest record, also where that has changed nothing in it, and of what is merged, since merging
    returns the same body or an equal one."""
    found = shown(engine, name)
    return found and sorted(one[:2] if name in UNSTAMPED else one for one in found)


def hash_of(engine):
    return run_to_completion(StateHash(engine).at_now())


@given(acts, st.booleans())
def test_it_is_as_the_primary_is_at_every_moment(acts, keeps_up):
    world = World(*ALL)
    follower, then = Follower(world), None
    for act in acts:
        live(world, act)
        if keeps_up:
            follower.catch_up()
            then = {name: shown(world.engine, name) for name in SHOWN}
            assert {name: shown(follower.engine, name) for name in SHOWN} == then
            assert hash_of(follower.engine) == hash_of(world.engine)
            follower.engine.check()
    follower.catch_up()
    for name in SHOWN:
        assert shown(follower.engine, name) == shown(world.engine, name)
    assert hash_of(follower.engine) == hash_of(world.engine)
    assert [*follower.journal.read(0)] == [*world.journal.read(0)]


@given(acts, acts)
def test_one_that_begins_later_has_the_windows_that_are_open(before, acts):
    world = World(*ALL_AND_TOTALS)
    for act in before:
        live(world, act)
    follower = Follower.later(world)
    follower.engine.check()
    for act in [("wait", 0, 0), *acts, ("wait", 3_000, 0)]:
        live(world, act)
        follower.catch_up()
        for name in (*SHOWN, "totals"):
            assert in_any_order(follower.engine, name) == in_any_order(world.engine, name), name
        assert hash_of(follower.engine) == hash_of(world.engine)
        follower.engine.check()


def test_windows_end_by_the_time_of_the_log_and_by_nothing_else():
    world = World(ORDERS, SLOW)
    follower = Follower(world)
    world.publish("orders", {"id": 1, "n": 1})
    world.settle()
    follower.catch_up()
    run_to_completion(follower.engine.fall_due(follower.engine.now_us))
    assert shown(follower.engine, "orders-C") == []
    world.advance(2 * SECOND)
    follower.catch_up()
    assert shown(follower.engine, "orders-C") == shown(world.engine, "orders-C") != []


@pytest.mark.parametrize("name", ["orders", "plain"])
def test_a_window_ends_before_the_change_that_follows_its_end(name):
    """Also where that change is of a topic that nobody follows, right behind another one of it."""
    world = World(ORDERS, SLOW, PLAIN)
    follower = Follower(world)
    for topic, wait_us in (("orders", 1), (name, 2 * SECOND), (name, 1)):
        world.publish(topic, {"id": 1, "n": wait_us})
        world.settle()
        world.advance(wait_us)
    run_to_completion(follower.following.apply([*world.journal.read(0)]))
    assert shown(follower.engine, "orders-C") == shown(world.engine, "orders-C") != []


def test_records_expire_when_the_log_says_so():
    world = World(LIVED)
    follower = Follower(world)
    world.publish("lived", {"id": 1})
    world.settle()
    follower.catch_up()
    run_to_completion(follower.following.pass_time(world.now + 10 * SECOND))
    assert len(shown(follower.engine, "lived")) == 1
    world.advance(2 * SECOND)
    world.settle()
    follower.catch_up()
    assert shown(follower.engine, "lived") == []


def test_it_leads_in_steps_however_many_topics_there_are_and_then_records_expire():
    most = []
    for count in (1, 100):
        world = World(MANY)
        follower = Follower(world)
        for number in range(count):
            world.publish(f"/many/{number}", {"id": 1})
        world.settle()
        follower.catch_up()
        engine = follower.engine
        longest = lines_run(engine.prepare_to_lead())
        engine.lead(0)
        longest += lines_run(engine.begin_timers())
        most.append(max(longest))
        engine.advance(world.now + 2 * SECOND)
        follower.settle()
        assert shown(engine, "/many/0") == []
    assert most[1] < most[0] + 20


def test_a_series_has_its_events_and_what_replaced_them():
    world = World(EVENTS)
    follower = Follower(world)
    for at in range(5):
        world.publish("events", {"id": 1, "n": at})
    topic = world.engine.topic("events")
    first, newest = (topic.records.events.last("1", 3)[at] for at in (0, -1))
    for event in (first, newest):
        messages = topic.records.read([b'{"id":1,"n":%d}' % (event.seq * 100)])
        world.engine.pass_on(topic, topic.edit(messages._replace(author="ann"), event, world.now))
    world.settle()
    follower.catch_up()
    events = follower.engine.topic("events").records.events
    assert events.last("1", 3) == topic.records.events.last("1", 3)
    assert shown(follower.engine, "events") == shown(world.engine, "events")


def test_a_large_change_is_applied_in_steps_and_logged_as_it_was(monkeypatch):
    monkeypatch.setattr(module, "RECORDS_AT_ONCE", 7)
    world = World(ORDERS, SUMS)
    follower = Follower(world)
    world.publish("orders", *({"id": at, "symbol": "A", "n": 1} for at in range(50)))
    world.settle()
    (entry,) = world.journal.read(0)
    assert sum(1 for _ in follower.following.apply([entry])) >= 8
    follower.catch_up()
    assert shown(follower.engine, "sums") == shown(world.engine, "sums")
    assert sum(map(len, follower.journal.read(0))) == 50


def short_entries(world, *topics):
    """Publishes of one record each, with a time and a lifetime of its own."""
    for at in range(40):
        world.advance(7)
        for name in topics:
            topic = world.engine.publishable(name)
            messages = topic.records.read([b'{"id":%d,"symbol":"A","n":%d}' % (at % 9, at)])
            expires_us = world.now + SECOND if name == "plain" and at % 2 else 0
            world.engine.put(topic, messages, world.now, expires_us)
    world.settle()
    return [*world.journal.read(0)]


def steps_of(follower, entries):
    return sum(1 for _ in follower.following.apply(entries))


def test_short_entries_are_applied_together_where_nobody_notices_and_each_at_its_time():
    world = World(ORDERS, PLAIN)
    follower = Follower(world)
    entries = short_entries(world, "plain")
    assert len(entries) == 40
    assert steps_of(follower, entries) == 1
    follower.catch_up()
    assert shown(follower.engine, "plain") == shown(world.engine, "plain")
    ours, theirs = (one.topics["plain"].records.table for one in (follower.engine, world.engine))
    names = [f"{at}" for at in range(9)]
    assert ours.expiries(names, 0) == theirs.expiries(names, 0)
    assert 0 < sum(map(bool, ours.expiries(names, 0))) < 9
    assert hash_of(follower.engine) == hash_of(world.engine)
    assert [*follower.journal.read(0)] == entries


def test_a_short_entry_costs_the_same_however_many_are_applied_with_it():
    """The log of a busy server has hundreds of them in each step."""
    world = World(ORDERS)
    entries, counts = short_entries(world, "orders"), list[int]()
    for count in (10, 40):
        follower, calls = Follower(world), [0]

        def counted(_frame, event, _argument, calls=calls):
            calls[0] += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            assert steps_of(follower, entries[:count]) == 1
        finally:
            sys.setprofile(None)
        counts.append(calls[0])
    ten, forty = counts
    assert forty < 4 * ten


def test_they_are_not_where_somebody_follows_or_something_falls_due():
    for topics, published in (
        ((ORDERS, SLOW), ("orders",)),
        ((ORDERS, SUMS), ("orders",)),
        ((EVENTS,), ("events",)),
        ((ORDERS, PLAIN), ("orders", "plain")),
    ):
        world = World(*topics)
        follower = Follower(world)
        entries = short_entries(world, *published)
        assert steps_of(follower, entries) >= len(entries)


def test_its_views_release_together_what_the_primarys_have():
    world = World(ORDERS, SUMS)
    follower = Follower(world)
    for number in range(6):
        body = b'{"id":%d,"symbol":"A","n":1}' % number
        world.engine.publish("orders", [body], world.now)
        world.clock.advance(1)
        if number % 3 == 2:
            world.settle()
    for _ in follower.following.apply([*world.journal.read(0)]):
        follower.settle()
    follower.settle()
    released = [one.topics["sums"].view.updates_out for one in (world.engine, follower.engine)]
    assert released == [2, 2]
    assert shown(follower.engine, "sums") == shown(world.engine, "sums")


def test_a_view_is_released_with_the_primarys_where_other_topics_change_in_between():
    quotes = Topic("quotes", "json", ("/id",))
    seen = View("seen", "json", ("quotes",), ("/id", "COUNT(1) AS /n"), ("/id",))
    world = World(ORDERS, SUMS, quotes, seen)
    follower = Follower(world)
    for topic in ("orders", "quotes", "orders", "quotes"):
        world.engine.publish(topic, [b'{"id":1,"symbol":"A","n":1}'], world.now)
        world.clock.advance(1)
    world.settle()
    for _ in follower.following.apply([*world.journal.read(0)]):
        follower.settle()
    follower.settle()
    for name in ("sums", "seen"):
        assert follower.engine.topics[name].view.updates_out == 1
        assert shown(follower.engine, name) == shown(world.engine, name)


def test_what_is_not_in_the_log_is_the_primarys():
    world = World(*ALL)
    follower = Follower(world)
    world.publish("fleeting", {"id": 1})
    world.settle()
    follower.catch_up()
    assert follower.engine.seq == world.engine.seq
    for name in ("fleeting", "fleeting-C"):
        with pytest.raises(NotPrimary, match="http://primary") as refused:
            follower.engine.topic(name)
        assert refused.value.fields() == {"primary": "http://primary"}
    with pytest.raises(NotPrimary):
        follower.engine.publish("orders", [b'{"id":1}'], world.now)
