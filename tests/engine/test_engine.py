"""Engine: who hears of what, and what a turn of it hands over."""

from sow.core.definitions import Configuration, Topic
from sow.engine.engine import Engine
from tests.laws.harness import World

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")


def test_a_second_listener_does_not_cut_off_the_first():
    engine = Engine(Configuration("test", (DESKS,)))
    woken = []
    for name in ("first", "second"):
        engine.on_work(lambda name=name: woken.append(name))
    engine.notify_work()
    assert woken == ["first", "second"]


def test_listeners_get_the_names_of_records_that_change():
    world, heard = World(), []
    listener = lambda records, names: heard.append((records.name, *names))  # noqa: E731
    with world.engine.on_changes(listener):
        world.publish("orders", {"id": 1}, {"id": 2})
        world.delete("orders", "/id = 1")
    world.publish("orders", {"id": 3})
    assert heard == [("orders", "1", "2"), ("orders", "1")]
