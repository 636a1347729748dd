"""Questions: what a command asks for, read before anything is done."""

from dataclasses import replace

import pytest

from sow.commands import Command, Options
from sow.encodings import LINES
from sow.errors import ClientError, UnknownTopic
from sow.requests.questions import Questions, feed_key, shape_of, sow_keys
from sow.steps import at_once
from tests.core.harness import ORDERS, SLOW, World


@pytest.fixture
def world():
    return World()


@pytest.fixture
def questions(world):
    return Questions(world.engine, world.journal)


def names(found):
    return [topic.name for topic in found[0]]


def test_a_command_names_one_topic_or_those_of_a_pattern(questions):
    assert names(questions.topics(Command("sow", topic="orders"))) == ["orders"]
    topics, pattern = questions.topics(Command("subscribe", topic="^orders"))
    assert sorted(names((topics, pattern))) == ["orders", "orders-C"]
    assert pattern is not None


@pytest.mark.parametrize("name", ["order", "^nothing"])
def test_a_topic_that_is_not_there_is_refused(questions, name):
    with pytest.raises(UnknownTopic):
        questions.topics(Command("sow", topic=name))


def test_equal_commands_make_equal_keys():
    asked = Command("subscribe", topic="orders", filter="/a = 1", options=Options(oof=True))
    assert feed_key(asked, LINES, True) == feed_key(asked, LINES, True)
    assert feed_key(asked, LINES, True) != feed_key(asked, LINES, False), "one keeps account"
    assert shape_of(Command("sow", options=Options(no_sowkey=True))).sow_keys is False


@pytest.mark.parametrize(
    ("name", "options"),
    [("subscribe", {"no_empties": True}), ("subscribe", {"conflation_key": ("/a",)})],
)
def test_options_that_mean_nothing_together_are_refused(name, options):
    with pytest.raises(ClientError):
        feed_key(Command(name, options=Options(**options)), LINES, True)


def test_keys_are_given_once():
    assert sow_keys(Command("sow", key="1,2")) == ("1", "2")
    with pytest.raises(ClientError, match="not both"):
        sow_keys(Command("sow", key="1", keys=("2",)))


def test_an_answer_is_of_one_moment_and_says_how_many_match(world, questions):
    world.publish("orders", *({"id": number} for number in range(5)))
    session = world.client().session
    asked = Command("sow", topic="orders", filter="/id > 1", options=Options(top_n=2))
    ((snapshot, matches),) = at_once(questions.take_all(session, asked))
    world.publish("orders", {"id": 2, "px": 1})
    assert (len(snapshot), matches) == (2, 3)
    assert snapshot.bodies.part(0, 2) == [b'{"id":2}', b'{"id":3}']


@pytest.mark.parametrize("gone", ["orders-B", "orders-C"])
def test_a_topic_of_a_pattern_that_goes_meanwhile_is_left_out(gone, monkeypatch):
    monkeypatch.setattr("sow.query.readiness.NOTES_FEW", 0)
    monkeypatch.setattr("sow.query.search.FEW_ROWS", 0)
    monkeypatch.setattr("sow.indexes.STEP_NOTES_MAX", 1)
    copies = [replace(SLOW, name=name) for name in ("orders-B", "orders-C")]
    world = World(ORDERS, *copies)
    world.publish("orders", *({"id": number} for number in range(5)))
    world.advance(2 * SLOW.interval_us)
    questions = world.executor.subscriptions.questions
    asked = Command("sow", topic="^orders", filter="/id > 1")
    steps = questions.take_all(world.client().session, asked)
    next(steps)
    left = [copy for copy in copies if copy.name != gone]
    world.executor.reconfigure(replace(world.configuration, topics=(ORDERS, *left)), world.now)
    world.publish("orders", {"id": 4, "px": 1})
    (source, _), (copy, _) = at_once(steps)
    assert (source.topic.name, copy.topic.name) == ("orders", left[0].name)
    assert source.bodies.part(2, 3) == [b'{"id":4,"px":1}']
