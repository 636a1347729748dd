"""Which topics are there for somebody, and what he may see of them."""

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Topic
from sow.engine.patterns import PatternTopic
from sow.security.authorization import EVERYTHING
from sow.server.api.topic_list import LOOKED_AT_ONCE, counting, members_of, there_for
from tests.laws.guarding import reading, rights
from tests.laws.harness import World

NAMES = [f"t{at}" for at in range(3)]
GIVEN = rights(reading("t0", filter="/desk = 'a'"), reading("t1"))


@pytest.fixture
def world():
    world = World(*[Topic(name, "json", keys=("/id",)) for name in NAMES])
    for name in NAMES:
        world.publish(name, {"id": 1, "desk": "a"}, {"id": 2, "desk": "b"})
    return world


def topics(world):
    return [world.engine.topic(name) for name in NAMES]


def test_those_are_listed_that_are_there_and_counted_of_which_some_rows_are(world):
    assert [one.name for one in run_to_completion(there_for(GIVEN, topics(world)))] == ["t0", "t1"]
    assert run_to_completion(counting(world.engine, GIVEN, topics(world))) == {"t0": 1, "t2": 0}


def test_some_are_requested_for_by_how_their_names_begin_and_how_many(world):
    def named(given, *how):
        return [one.name for one in run_to_completion(there_for(given, topics(world), *how))]

    assert named(EVERYTHING, "t", 2) == ["t0", "t1"]
    assert named(EVERYTHING, "", 1) == ["t0"]
    assert named(EVERYTHING, "t1") == ["t1"]
    assert named(EVERYTHING, "x") == named(EVERYTHING, "", 0) == []
    assert named(GIVEN, "t", 5) == ["t0", "t1"], "of those alone that are there for him"
    assert named(GIVEN, "t2") == []


def test_who_may_everything_has_all_and_nothing_is_counted(world):
    assert run_to_completion(there_for(EVERYTHING, topics(world))) == topics(world)
    assert run_to_completion(counting(world.engine, EVERYTHING, topics(world))) == {}


class Made(PatternTopic):
    """A pattern of these topics."""

    name = "all"

    def __init__(self, *topics):
        self.members = dict(enumerate(topics))


def test_of_a_pattern_those_topics_and_records_count_that_are_there(world):
    counts = run_to_completion(counting(world.engine, GIVEN, topics(world)))
    pattern = Made(*topics(world))
    assert run_to_completion(members_of(GIVEN, [pattern], counts)) == {
        "all": (2, 3, None, 0, 0, None)
    }
    assert run_to_completion(members_of(EVERYTHING, [pattern], {})) == {
        "all": (3, 6, 6, 0, 0, None)
    }
    many = Made(*topics(world)[:1] * (2 * LOOKED_AT_ONCE))
    assert sum(1 for _ in members_of(GIVEN, [many], counts)) == 2


def test_very_many_are_looked_at_in_steps(world):
    many = topics(world)[:1] * (2 * LOOKED_AT_ONCE)
    assert sum(1 for _ in there_for(GIVEN, many)) == 2
    assert sum(1 for _ in counting(world.engine, GIVEN, many)) >= 2


def test_a_topic_that_has_gone_meanwhile_holds_nothing(world):
    found = topics(world)
    world.engine.catalog.topics.pop("t0")
    assert run_to_completion(counting(world.engine, GIVEN, found[:1])) == {"t0": 0}
