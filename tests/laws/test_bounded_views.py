"""A view of more groups than there may be (`Limits/ViewGroups`) stops; all else goes on."""

from dataclasses import replace

import pytest

from sow.core.definitions import Join, Limits, Topic, View
from sow.errors import Stopped
from tests.laws.harness import World

T = Topic("t", "json", keys=("/id",))
OTHER = Topic("other", "json", keys=("/id",))
DESKS = View("desks", "json", ("t",), ("/desk", "COUNT(1) AS /n"), ("/desk",))
TOTAL = View("total", "json", ("desks",), ("SUM(/n) AS /n",), ("/none",))
JOINED = View(
    "joined", "json", ("t", "other"), ("[t]./desk AS /desk", "COUNT(1) AS /n"), ("[t]./desk",),
    joins=(Join("t", "/desk", "other", "/id", "left"),),
)  # fmt: skip
OTHERS = View("others", "json", ("t",), ("/id", "COUNT(1) AS /n"), ("/none",))
FEW = Limits(view_groups_max=3)


def bounded(*topics, limits=FEW):
    world = World(*topics)
    world.configuration = replace(world.configuration, limits=limits)
    world.engine.adopt(world.configuration)
    said = []
    world.engine.on_stopped(said.append)
    return world, said


def records(*desks):
    return [{"id": at, "desk": desk} for at, desk in enumerate(desks)]


@pytest.mark.parametrize("one", [DESKS, JOINED], ids=lambda one: one.name)
def test_a_view_of_too_many_groups_stops_and_nothing_that_was_published_is_lost(one):
    world, said = bounded(T, OTHER, one, OTHERS)
    client = world.client()
    client.say(c="sow_and_subscribe", t=one.name, opts="oof")
    world.publish("t", *records("a", "b", "c"))
    assert (len(world.records(one.name)), said) == (3, [])
    client.lines()
    bookmark = world.publish("t", {"id": 3, "desk": "d"})
    world.advance(0)
    assert bookmark == 4, "taken and acknowledged"
    (why,) = said
    assert f"the view {one.name} has stopped: it has 4 groups, and the limit is 3" in why
    assert "(Limits/ViewGroups)" in why
    assert [line["reason"] for line in client.lines() if line["c"] == "oof"] == ["deleted"] * 3
    with pytest.raises(Stopped, match="ViewGroups"):
        world.engine.topic(one.name)
    assert len(world.records("t")) == 4
    assert world.records("others") == [{"id": 3, "n": 4}]
    world.advance(0)
    world.engine.check()


def test_what_a_stopped_view_kept_takes_no_memory():
    world, said = bounded(T, DESKS)
    bare, _ = bounded(T)
    for one in (world, bare):
        one.publish("t", *records("a", "b", "c", "d", "e"))
        one.advance(0)
    assert len(said) == 1
    assert world.engine.capacity.used_bytes == bare.engine.capacity.used_bytes
    assert world.engine.due_us() is None


def test_what_is_made_of_it_is_refused_with_its_reason():
    world, said = bounded(T, DESKS, TOTAL)
    world.publish("t", *records("a", "b", "c", "d"))
    world.advance(0)
    assert len(said) == 1
    ack = world.client().say(c="sow", t="total")[-1]
    assert (ack["status"], ack["reason"]) == ("failure", "stopped")
    assert "the view desks has stopped: it has 4 groups" in ack["detail"]


def test_groups_that_go_make_room_for_those_that_come_in_one_turn():
    world, said = bounded(T, DESKS)
    world.publish("t", *records("a", "b", "c"))
    world.publish("t", *records("d", "e", "f"))
    assert said == []
    assert sorted(row["desk"] for row in world.records("desks")) == ["d", "e", "f"]
    world.engine.check()


def test_a_reload_with_a_higher_limit_makes_it_again_and_one_with_a_lower_stops_it():
    world, said = bounded(T, DESKS)
    world.publish("t", *records("a", "b", "c", "d"))
    world.advance(0)

    def reload(most):
        world.configuration = replace(world.configuration, limits=Limits(view_groups_max=most))
        world.executor.reconfigure(world.configuration, world.now)
        world.settle()

    reload(4)
    assert len(world.records("desks")) == 4
    reload(2)
    assert len(said) == 2
    assert "it has 4 groups, and the limit is 2" in said[1]
    with pytest.raises(Stopped):
        world.engine.topic("desks")
    reload(2)
    assert len(said) == 3, "it was made again, and is still too much"
    reload(9)
    world.publish("t", {"id": 9, "desk": "x"})
    assert len(world.records("desks")) == 5
    world.engine.check()


def test_a_reload_that_adds_or_changes_a_view_is_bounded_too():
    world, said = bounded(T, OTHERS)
    world.publish("t", *records("a", "b", "c", "d"))
    few = replace(DESKS, filter="/desk != 'd'")
    for topics, stopped in (((T, OTHERS, few), 0), ((T, OTHERS, DESKS), 1)):
        world.configuration = replace(world.configuration, topics=topics)
        world.executor.reconfigure(world.configuration, world.now)
        world.settle()
        assert len(said) == stopped
    world.executor.reconfigure(replace(world.configuration, topics=(T, OTHERS)), world.now)
    world.executor.reconfigure(world.configuration, world.now)
    world.settle()
    assert len(said) == 2, "one that is added"
    world.publish("t", {"id": 9, "desk": "x"})
    assert (len(world.records("t")), world.records("others")) == (5, [{"id": 9, "n": 5}])


def test_a_server_starts_with_a_view_of_too_many_groups():
    world = World(T, DESKS)
    world.publish("t", *records("a", "b", "c", "d"))
    assert len(world.records("desks")) == 4
    world.configuration = replace(world.configuration, limits=FEW)
    again, said = world.restart(T, DESKS), []
    again.engine.on_stopped(said.append)
    again.settle()
    assert "it has 4 groups, and the limit is 3" in said[0]
    assert len(again.records("t")) == 4
    again.publish("t", {"id": 9, "desk": "x"})
    again.engine.check()
