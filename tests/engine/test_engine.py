"""Engine: who hears of what, and what a turn of it hands over."""

from sow.definitions import Configuration, Topic
from sow.engine.engine import Engine

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")


def test_a_second_listener_does_not_cut_off_the_first():
    engine = Engine(Configuration("test", (DESKS,)))
    first, second, woken = [], [], []
    for heard in (first, second):
        engine.hear_of_topics(lambda topic, heard=heard: heard.append(topic.definition.name))
        engine.hear_of_work(lambda heard=heard: woken.append(heard))
    engine.publish("/desk/1", [b'{"id":1}'], 0)
    engine.tell_of_work()
    assert first == second == ["/desk/1"]
    assert woken == [first, second]
