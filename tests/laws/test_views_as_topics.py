"""To everyone else a view is a topic like any: what topics can do, its rows can."""

import pytest

from sow.core.definitions import ConflatedTopic, SessionSettings, Topic, View
from sow.query import Query
from sow.server.chained.link import is_later, place_of
from sow.topic.views.groups import KEY_LENGTH_MAX
from tests.laws.harness import SECOND, World, short

T = Topic("t", "json", keys=("/id",))
DESKS = View(
    "desks", "json", ("t",), ("/desk", "/firm", "SUM(/qty) AS /qty", "COUNT(1) AS /n"), ("/desk",),
    hash_indexes=(("/firm",),), indexes=("/qty",),
)  # fmt: skip


def world_of(view=DESKS, **more):
    world = World(T, view, **more)
    world.publish("t", *[{"id": at, "desk": f"d{at % 5}", "firm": f"f{at % 5 % 2}", "qty": at}
                         for at in range(10)])  # fmt: skip
    return world


def requested(world, condition):
    answer = world.engine.queries.at_once("desks", Query(filter=world.engine.filter(condition)))
    return answer.index, answer.matches


def test_its_indexes_serve_queries_as_its_rows_change():
    world = world_of()
    assert requested(world, "/firm = 'f1'") == ("hash(/firm)", 2)
    assert requested(world, "/qty > 8")[1] == 3
    world.publish("t", {"id": 1, "desk": "d1", "firm": "f0", "qty": 1})
    world.publish("t", {"id": 6, "desk": "d9", "firm": "f1", "qty": 100})
    assert requested(world, "/firm = 'f1'") == ("hash(/firm)", 2)
    assert requested(world, "/qty >= 100")[1] == 1
    world.delete("t", "/desk = 'd9'")
    assert requested(world, "/firm = 'f1'") == ("hash(/firm)", 1)
    world.check()


@pytest.mark.parametrize("view", ["of a copy", "of a view of it"])
def test_a_snapshot_is_of_an_earlier_place_than_what_follows(view):
    """Whoever has it knows by their bookmarks what it contains, also where others publish."""
    copy = ConflatedTopic("t-C", "json", "t", interval_us=SECOND)
    rows = ("/desk", "COUNT(1) AS /n")
    world = World(
        T,
        Topic("other", "json", keys=("/id",)),
        copy,
        View("of a copy", "json", ("t-C",), rows, ("/desk",)),
        View("of a view of it", "json", ("of a copy",), rows, ("/desk",)),
    )
    world.publish("t", {"id": 1, "desk": "d1"})
    for at in range(3):
        world.publish("t", {"id": 10 + at, "desk": f"d{10 + at}"})
        world.publish("other", *({"id": one} for one in range(5)))
        client = world.client()
        lines = client.say(c="sow_and_subscribe", t=view)
        (snapshot,) = [line["bm"] for line in lines if line["c"] == "group_end"]
        world.advance(2 * SECOND)
        later = [line["bm"] for line in client.lines() if line["c"] == "p"]
        assert later
        assert all(is_later(place_of(one), place_of(snapshot)) for one in later), (snapshot, later)


def test_a_row_that_changes_is_a_delta_to_clients_that_request_deltas():
    world = world_of()
    client = world.client()
    client.say(c="sow_and_delta_subscribe", t="desks", opts="oof", filter="/desk = 'd1'")
    world.publish("t", {"id": 1, "desk": "d1", "firm": "f1", "qty": 2})
    (line,) = [line for line in client.lines() if line["c"] == "p"]
    assert (line["delta"], line["d"]) == (True, {"desk": "d1", "qty": 8})
    world.delete("t", "/desk = 'd1'")
    assert [one for one in short(client.lines()) if one[0] != "p"] == [
        ("deleted", {"desk": "d1", "firm": "f1", "qty": 8, "n": 2})
    ]


@pytest.mark.parametrize(
    ("policy", "told"), [("always", [3]), ("conflate", [3]), ("off", [1, 2, 3])]
)
def test_what_waits_for_a_slow_client_goes_by_its_policy(policy, told):
    view = View("desks", "json", ("t",), ("/desk", "COUNT(1) AS /n"), ("/desk",),
                conflation_policy=policy)  # fmt: skip
    world = World(T, view, sessions=SessionSettings(queue_messages_max=2))
    client = world.client()
    client.say(c="sow_and_subscribe", t="desks")
    for at in range(3):
        world.publish("t", {"id": at, "desk": "a"})
    assert [line["d"]["n"] for line in client.lines() if line["c"] == "p"] == told


def test_a_row_is_found_by_its_key_and_its_fields_are_selected():
    world = world_of()
    key = world.sow_key("desks", "d3")
    said = world.client().say(c="sow", t="desks", keys=str(key), select="/qty")
    assert [line["d"] for line in said if line["c"] == "sow"] == [{"qty": 11}]


def test_a_key_of_a_megabyte_makes_no_group_and_is_counted_and_nothing_is_lost():
    world = world_of()
    view = world.engine.topics["desks"].view
    kept = view.groups.kept_bytes
    long = "x" * 2**20
    world.publish("t", {"id": 1, "desk": long, "firm": "f1", "qty": 1}, {"id": 20, "desk": "d2"})
    assert view.groups.left_out == 1
    assert view.groups.kept_bytes < kept + 1000
    assert len(world.records("t")) == 11
    assert len(world.records("desks")) == 5
    ack = world.client().say(
        c="sow", t="t", opts="projection=[/desk,COUNT(1) AS /n],grouping=[/desk]", a="completed",
        cid="1",
    )[-1]  # fmt: skip
    assert ack["returned"] == 5
    world.publish("t", {"id": 1, "desk": "x" * (KEY_LENGTH_MAX - 1), "qty": 1})
    assert (view.groups.left_out, len(world.records("desks"))) == (0, 6)
    world.publish("t", {"id": 1, "desk": long})
    again = world.restart()
    assert again.engine.topics["desks"].view.groups.left_out == 1
    again.delete("t", "/id = 1")
    assert again.engine.topics["desks"].view.groups.left_out == 0
    again.check()
