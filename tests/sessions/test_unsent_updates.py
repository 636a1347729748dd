"""What waits in a queue when rights change: what stays where it stands, and what does not."""

import pytest

from sow.core.definitions import Topic
from sow.sessions import unsent_updates
from sow.sessions.unsent_updates import UnsentUpdates
from sow.topic.rendering import Shape
from tests.laws.guarding import desk, guarded, reading, regrant, rights
from tests.laws.harness import World, short

A, B, C = ({"id": at, "desk": name, "px": 0} for at, name in enumerate("abc"))


def world_of(**more):
    return World(Topic("orders", "json", keys=("/id",), **more))


def follower(world, command="sow_and_subscribe", given=None, opts="oof", read=True):
    client = guarded(world, given or desk("a", "b", "c"))
    client.execute(b'{"c":"%s","t":"orders","opts":"%s"}' % (command.encode(), opts.encode()))
    if read:
        client.lines()
    return client


def told(lines):
    return [(line["c"], line["d"]["id"], line["d"].get("px")) for line in lines if "d" in line]


def test_of_a_topic_that_is_not_folded_every_line_that_may_be_seen_stays_where_it_stands():
    world = world_of(conflation_policy="off")
    client = follower(world)
    for px in range(3):
        world.publish("orders", *(one | {"px": px} for one in (A, B, C)))
    lines = regrant(client, desk("a", "c"))
    assert told(lines) == [("p", at, px) for px in range(3) for at in (0, 2)]
    marks = [int(line["bm"]) for line in lines if "bm" in line]
    assert marks == sorted(marks)


def test_who_was_sent_of_a_record_before_is_sent_that_it_left_in_the_state_that_he_has():
    world = world_of()
    world.publish("orders", A, B)
    client = follower(world)
    world.publish("orders", B | {"px": 7}, C)
    lines = regrant(client, desk("a"))
    assert short(lines) == [("entitlement", B)]


def test_a_record_that_has_come_back_into_sight_is_sent_from_what_the_client_has():
    """The line between the two said what may not be seen; the delta after it was of that."""
    world = world_of()
    world.publish("orders", A)
    client = follower(world, "sow_and_delta_subscribe")
    world.publish("orders", A | {"desk": "b", "px": 1})
    world.publish("orders", A | {"desk": "c", "px": 1})
    (line,) = regrant(client, desk("a", "c"))
    assert line["d"] == {"id": 0, "desk": "c", "px": 1}


def test_a_record_that_came_out_of_sight_and_has_gone_leaves_no_word():
    world = world_of()
    client = follower(world)
    world.publish("orders", B)
    world.delete("orders", "/id = 1")
    assert regrant(client, desk("a")) == []


def test_a_record_that_is_out_of_sight_now_is_not_sent_in_a_state_that_was_not():
    world = world_of()
    client = follower(world)
    world.publish("orders", A)
    world.publish("orders", A | {"desk": "b"})
    assert regrant(client, desk("a")) == []


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe"])
def test_what_waits_loses_a_field(command):
    world = world_of()
    client = follower(world, command)
    world.publish("orders", A)
    world.publish("orders", A | {"px": 1})
    lines = regrant(client, rights(reading(select=("-/px",))))
    assert lines
    assert all("px" not in line["d"] for line in lines)


def test_updates_that_were_folded_before_are_sent_apart_too():
    world = world_of(conflation_policy="always")
    client = follower(world)
    for px in range(3):
        world.publish("orders", *(one | {"px": px} for one in (A, B, C)))
    assert told(regrant(client, desk("a", "c"))) == [("p", 0, 2), ("p", 2, 2)]
    world.check()


@pytest.mark.parametrize("policy", ["conflate", "always"])
def test_what_waits_is_looked_at_in_steps(monkeypatch, policy):
    monkeypatch.setattr(unsent_updates, "LOOKED_AT_ONCE", 2)
    world = world_of(conflation_policy=policy)
    client = follower(world)
    for at in range(7):
        world.publish("orders", {"id": at, "desk": "ab"[at % 2], "px": at})
    (name,) = client.subscriptions
    looking = UnsentUpdates(client.session, name, desk("a"), lambda _records: Shape())
    steps = 0
    while looking.is_behind:
        looking.look()
        steps += 1
    assert steps == 3
    taken = looking.taken(lambda _records, _slot: True)
    assert [update.identity for _, update in taken] == ["1", "3", "5"]
    looking.leave_rest(lambda _records: pytest.fail("they are worded as before"))
    assert told(client.lines()) == [("p", at, at) for at in (0, 2, 4, 6)]


def test_nothing_leaves_while_rights_change():
    world = world_of()
    client = follower(world)
    world.publish("orders", A, B)
    steps = world.executor.reguard(client.session, desk("a"))
    next(steps)
    assert client.lines() == []
    for _ in steps:
        pass
    world.settle()
    assert told(client.lines()) == [("p", 0, 0)]


@pytest.mark.parametrize("opts", ["oof", "oof,conflation=1s", "live,top_n=5"])
@pytest.mark.parametrize("waits", ["", "in the queue", "deleted"])
def test_what_he_never_saw_of_a_record_is_not_sent_when_it_goes(opts, waits):
    """Neither the old rights nor the new ones show him the note of this record."""
    world = world_of()
    world.publish("orders", A, B | {"note": "not for him"})
    before = rights(reading("orders", select=("-/note",)))
    client = follower(world, given=before, opts=opts)
    if waits == "in the queue":
        world.publish("orders", B | {"px": 7, "note": "nor this"})
    if waits == "deleted":
        world.delete("orders", "/id = 1")
    lines = regrant(client, desk("a"))
    left = [line["d"] for line in lines if line["c"] == "oof"]
    if not left:
        world.advance(1_000_000)
        left = [line["d"] for line in client.lines() if line["c"] == "oof"]
    assert left == [B]


def test_after_a_line_that_stays_the_last_state_is_what_that_line_has_sent():
    world = world_of(conflation_policy="off")
    client = follower(world, given=rights(reading("orders", select=("-/note",))))
    world.publish("orders", A | {"note": "seen"})
    world.delete("orders", "/id = 0")
    assert short(regrant(client, desk("a"))) == [
        ("p", A | {"note": "seen"}),
        ("deleted", A | {"note": "seen"}),
    ]
