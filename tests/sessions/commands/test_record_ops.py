"""One record: nothing comes between the look at it and its change."""

import json

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Series, Topic
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.errors import ClientError, InvalidTopic, NotEntitled, Unauthenticated, UnknownRecord
from sow.security.authorization import EVERYTHING, RoleSet
from sow.sessions.commands import record_ops
from tests.laws.harness import ORDERS, World


def rights_of(*allowed):
    roles = (Role("desk", ("*",), allowed),)
    security = Security(authentication=Authentication(tokens_file="t"), roles=roles)
    return RoleSet(security).rights(User("ann"))


class Place:
    def __init__(self):
        self.world = World(ORDERS)
        self.engine = self.world.engine
        self.looked = []

    @property
    def records(self):
        return self.engine.topic("orders").records

    def look(self, records, slot):
        self.looked.append(None if slot is None else records.table.bodies[slot])

    def key(self, number):
        return self.records.sow_key_of(str(number))

    def put(self, document, rights=EVERYTHING, look=None, delta=False):
        topic = self.engine.catalog.publishable("orders")
        message = self.engine.read(
            topic, [json.dumps(document).encode()], None, now_us=self.world.now
        )
        return record_ops.put(
            self.engine,
            topic,
            message,
            self.world.now,
            rights=rights,
            look=look or self.look,
            delta=delta,
        )

    def delete(self, number, rights=EVERYTHING, look=None):
        return record_ops.delete(
            self.engine,
            "orders",
            self.key(number),
            self.world.now,
            rights=rights if callable(rights) else lambda: rights,
            look=look or self.look,
        )


def refuse(_records, _slot):
    raise ClientError("not so")


def test_who_puts_looks_at_what_was_there():
    place = Place()
    assert run_to_completion(place.put({"id": 1, "a": 1})) == 1
    assert run_to_completion(place.put({"id": 1, "b": 2}, delta=True)) == 2
    assert run_to_completion(place.put({"id": 1})) == 3
    assert [one and json.loads(one) for one in place.looked] == [
        None, {"id": 1, "a": 1}, {"id": 1, "a": 1, "b": 2},
    ]  # fmt: skip


def test_who_finds_it_otherwise_changes_nothing():
    place = Place()
    run_to_completion(place.put({"id": 1}))
    before = place.engine.seq
    for steps in (place.put({"id": 1, "a": 1}, look=refuse), place.delete(1, look=refuse)):
        with pytest.raises(ClientError, match="not so"):
            run_to_completion(steps)
    assert (place.engine.seq, len(place.records.table)) == (before, 1)


def test_what_changes_before_the_last_step_is_what_is_looked_at():
    place = Place()
    steps = place.put({"id": 1, "a": 2})
    place.world.publish("orders", {"id": 1, "a": 1})
    run_to_completion(steps)
    assert json.loads(place.looked[0]) == {"id": 1, "a": 1}


def test_who_deletes_looks_and_deletes_in_one_step():
    place = Place()
    place.world.publish("orders", {"id": 1}, {"id": 2})
    seen = []

    def look(records, slot):
        seen.append(len(records.table))

    assert run_to_completion(place.delete(1, look=look)) == 1
    assert (seen, len(place.records.table)) == ([2], 1)
    with pytest.raises(UnknownRecord):
        run_to_completion(place.delete(1))
    assert place.looked == [None]


def test_sow_keys_of_many_records_are_made_in_steps(monkeypatch):
    monkeypatch.setattr(record_ops, "KEYED_AT_ONCE", 10)
    place = Place()
    place.world.publish("orders", *({"id": at} for at in range(100)))
    steps = place.delete(50)
    taken = sum(1 for _ in steps)
    assert taken >= 9
    assert len(place.records.table) == 99


MINE = "/desk = 'A'"


def test_rights_are_requested_in_the_step_of_the_change():
    place = Place()
    place.world.publish("orders", {"id": 1, "desk": "B"}, {"id": 2, "desk": "A"})
    mine = rights_of(Allow("orders", read=True, write=True, delete=True, check=MINE))
    for steps in (place.put({"id": 1, "desk": "A"}, mine), place.delete(1, mine)):
        with pytest.raises(NotEntitled):
            run_to_completion(steps)
    blind = rights_of(Allow("orders", delete=True, check=MINE))
    place.looked.clear()
    with pytest.raises(UnknownRecord):
        run_to_completion(place.delete(1, blind))
    assert place.looked == [None], "conditions do not tell what he may neither see nor delete"
    assert run_to_completion(place.delete(2, blind)) == 1
    assert len(place.records.table) == 1


def test_what_a_user_may_is_requested_when_nothing_is_waited_for_any_more(monkeypatch):
    """A reload may have taken the right away meanwhile."""
    monkeypatch.setattr(record_ops, "KEYED_AT_ONCE", 1)
    place = Place()
    place.world.publish("orders", *({"id": number} for number in range(5)))
    allowed = [EVERYTHING]

    def rights():
        if not allowed:
            raise Unauthenticated("these rights are none any more")
        return allowed[0]

    deleting = place.delete(3, rights)
    next(deleting)  # it waits
    allowed.clear()
    with pytest.raises(Unauthenticated):
        run_to_completion(deleting)
    assert len(place.records.table) == 5


PRICES = Topic("prices", "json", keys=("/id",), series=Series(events_max=None))
OWN = "/desk = 'own'"


class Events:
    """A series with an event of the own desk, one of another, and one of the own."""

    def __init__(self):
        self.world = World(PRICES)
        for number, desk in enumerate(["own", "other", "own"]):
            self.world.publish("prices", {"id": 1, "desk": desk, "n": number})

    @property
    def seqs(self):
        return [event.seq for event in self.topic.records.events.last("1", 9)]

    @property
    def topic(self):
        return self.world.engine.topic("prices")

    def edit(self, seq, document, rights=EVERYTHING):
        engine, now_us = self.world.engine, self.world.now
        body = json.dumps({"id": 1, **document}).encode()
        message = engine.read(self.topic, [body], now_us=now_us, author="ann")
        steps = record_ops.edit(engine, "prices", seq, message, now_us, rights=lambda: rights)
        return run_to_completion(steps)


def test_only_events_that_may_be_written_are_edited_and_to_what_may_be():
    place = Events()
    first, other, last = place.seqs
    writes = rights_of(Allow("prices", read=True, write=True, check=OWN))
    sees = rights_of(Allow("prices", read=True, write=True, filter=OWN, check=OWN))
    assert place.edit(first, {"desk": "own", "n": 9}, writes) == 4
    with pytest.raises(NotEntitled, match="write this event"):
        place.edit(other, {"desk": "own"}, writes)
    with pytest.raises(UnknownRecord, match=f"no event {other}"):
        place.edit(other, {"desk": "own"}, sees)
    with pytest.raises(NotEntitled, match="message 0"):
        place.edit(last, {"desk": "other"}, writes)
    events = place.topic.records.events
    assert [json.loads(event.body)["n"] for event in events.last("1", 9)] == [9, 1, 2]
    assert [event.author for event in events.last("1", 9)] == ["ann", "", ""]
    place.world.check()


def test_a_topic_without_a_series_has_no_events():
    with pytest.raises(InvalidTopic, match="no series"):
        record_ops.events_of(World(ORDERS).engine.topic("orders"))
