"""Where what was folded stands: in its old place or at the end, as docs/slow-clients.md draws."""

from sow.definitions import Merge
from tests.core.slow import FIGURES, figure, slow, topic, world_of


def test_no_conflation():
    world = world_of(topic(conflation_policy="off"), queue_messages_max=5)
    client = slow(world)
    for name, value in FIGURES:
        world.publish("t", {"id": name, "v": value})
    assert [f"{d['id']}{d['v']}" for _, d in client.data()] == ["A1", "B2", "C3", "A4", "C5"]


def test_simple_replace():
    assert figure("replace") == ["A4", "B2", "C5"]


def test_simple_append():
    assert figure("append") == ["B2", "A4", "C5"]


def test_merge_and_replace():
    assert figure("replace", merges=(Merge("/v", "sum"),)) == ["A5", "B2", "C8"]


def test_merge_and_append():
    assert figure("append", merges=(Merge("/v", "sum"),)) == ["B2", "A5", "C8"]


def test_append_starves_nobody():
    world = world_of(topic(placement="append", conflation_policy="always"))
    client = slow(world)
    world.publish("t", {"id": "other"}, {"id": "busy"})
    for px in range(30):
        world.publish("t", {"id": f"new{px % 7}"}, {"id": "busy", "px": px})
    names = [document["id"] for _, document in client.data()]
    assert names.index("busy") < len(names) - 1
