"""Questions: what a command asks for, read before anything is done."""

from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Topic
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.errors import Busy, ClientError, UnknownTopic
from sow.protocol.commands import Command, Options
from sow.protocol.replies import LINES
from sow.security.authorization import RoleSet
from sow.sessions.queries.query_planning import QueryPlanner, feed_key, shape_of, sow_keys
from tests.laws.guarding import desk, guarded
from tests.laws.harness import ORDERS, SLOW, World


@pytest.fixture
def world():
    return World()


@pytest.fixture
def planner(world):
    return QueryPlanner(world.engine, ())


def names(found):
    return [topic.name for topic in found[0]]


def test_a_command_names_one_topic_or_those_of_a_pattern(planner):
    assert names(run_to_completion(planner.requested(Command("sow", topic="orders")))) == ["orders"]
    requested = run_to_completion(planner.requested(Command("subscribe", topic="^orders")))
    assert sorted(names(requested)) == ["orders", "orders-C"]
    assert requested.pattern is not None


@pytest.mark.parametrize("name", ["order", "^nothing"])
def test_a_topic_that_is_not_there_is_refused(planner, name):
    with pytest.raises(UnknownTopic):
        run_to_completion(planner.requested(Command("sow", topic=name)))


def test_equal_commands_make_equal_keys():
    requested = Command("subscribe", topic="orders", filter="/a = 1", options=Options(oof=True))
    assert feed_key(requested, LINES, True) == feed_key(requested, LINES, True)
    assert feed_key(requested, LINES, True) != feed_key(requested, LINES, False), (
        "one keeps account"
    )
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


def test_an_answer_is_of_one_moment_and_says_how_many_match(world, planner):
    world.publish("orders", *({"id": number} for number in range(5)))
    session = world.client().session
    requested = Command("sow", topic="orders", filter="/id > 1", options=Options(top_n=2))
    _, taken = run_to_completion(planner.take_all(session, requested))
    (snapshot,) = taken
    world.publish("orders", {"id": 2, "px": 1})
    assert (taken.returned, taken.matches) == (len(snapshot), 3) == (2, 3)
    assert snapshot.bodies.part(0, 2) == [b'{"id":2}', b'{"id":3}']


@pytest.mark.parametrize("gone", ["orders-B", "orders-C"])
def test_a_topic_of_a_pattern_that_goes_meanwhile_is_left_out(gone, monkeypatch):
    monkeypatch.setattr("sow.query.index_build.NOTES_FEW", 0)
    monkeypatch.setattr("sow.query.answers.FEW_ROWS", 0)
    monkeypatch.setattr("sow.indexes.STEP_NOTES_MAX", 1)
    copies = [replace(SLOW, name=name) for name in ("orders-B", "orders-C")]
    world = World(ORDERS, *copies)
    world.publish("orders", *({"id": number} for number in range(5)))
    world.advance(2 * SLOW.interval_us)
    planner = world.executor.subscriptions.planner
    requested = Command("sow", topic="^orders", filter="/id > 1")
    steps = planner.take_all(world.client().session, requested)
    next(steps)
    left = [copy for copy in copies if copy.name != gone]
    world.executor.reconfigure(replace(world.configuration, topics=(ORDERS, *left)), world.now)
    world.publish("orders", {"id": 4, "px": 1})
    source, copy = run_to_completion(steps)[1]
    assert (source.topic.name, copy.topic.name) == ("orders", left[0].name)
    assert source.bodies.part(2, 3) == [b'{"id":4,"px":1}']


DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")


@pytest.fixture
def desks(monkeypatch):
    """A world with six topics of a pattern, of which two are looked at in a step."""
    for name in ("MATCHED_AT_ONCE", "TAKEN_AT_ONCE"):
        monkeypatch.setattr(f"sow.sessions.queries.query_planning.{name}", 2)
    world = World(DESKS)
    for number in range(6):
        world.publish(f"/desk/{number}", {"id": 1, "v": 0})
    return world


def held(taken):
    """What an answer holds of each topic."""
    return {one.topic.name: one.bodies.part(0, 9) for one in taken}


def test_the_topics_of_a_pattern_are_looked_at_in_steps_and_are_those_of_the_last(desks):
    steps = desks.executor.subscriptions.planner.requested(
        Command("subscribe", topic="^/desk/[0-9]")
    )
    next(steps)
    desks.publish("/desk/6", {"id": 1})
    assert names(run_to_completion(steps)) == [f"/desk/{number}" for number in range(7)]


@pytest.mark.parametrize("steps_before", range(1, 6))
def test_an_answer_over_many_topics_is_of_its_last_step(desks, steps_before):
    planner = desks.executor.subscriptions.planner
    steps = planner.take_all(desks.client().session, Command("sow", topic="^/desk/"))
    for _ in range(steps_before):
        next(steps)
    for name in ("/desk/0", "/desk/5", "/desk/6"):
        desks.publish(name, {"id": 1, "v": steps_before})
    desks.publish("/desk/1", {"id": 2})
    _, taken = run_to_completion(steps)
    changed = b'{"id":1,"v":%d}' % steps_before
    assert held(taken) == {
        "/desk/0": [changed],
        "/desk/1": [b'{"id":1,"v":0}', b'{"id":2}'],
        **{f"/desk/{number}": [b'{"id":1,"v":0}'] for number in (2, 3, 4)},
        "/desk/5": [changed],
        "/desk/6": [changed],
    }
    assert taken.returned == taken.matches == 8


def test_who_publishes_faster_than_topics_are_taken_is_not_waited_for(desks):
    planner = desks.executor.subscriptions.planner
    steps = planner.take_all(desks.client().session, Command("sow", topic="^/desk/"))
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as over:
            taken = over.value[1]
            break
        count += 1
        for number in range(6):
            desks.publish(f"/desk/{number}", {"id": 1, "v": count})
    assert count < 30
    assert set(map(tuple, held(taken).values())) == {(b'{"id":1,"v":%d}' % count,)}


def test_topics_weigh_what_rows_do(desks, monkeypatch):
    monkeypatch.setattr("sow.sessions.queries.query_results.ANSWER_CHUNK_ROWS", 50)
    planner = desks.executor.subscriptions.planner
    client = desks.client()
    client.execute(b'{"c":"sow","t":"^/desk/","cid":"1"}')
    assert planner.unread.rows == 6 + 5 * 20
    lines = client.lines()
    assert [line["t"] for line in lines if line["c"] == "sow"] == [f"/desk/{n}" for n in range(6)]
    assert [line["c"] for line in lines if line["c"].startswith("group")] == [
        "group_begin", "group_end",
    ]  # fmt: skip
    assert planner.unread.rows == 0


def test_patterns_together_may_have_so_many_fields_read(desks, monkeypatch):
    monkeypatch.setattr("sow.topic.fields.WATCHED_MAX", 3)
    client = desks.client()
    (ack,) = client.say(c="subscribe", t="^/none/", cid="1", filter="/a = 1 AND /b = 1")
    assert ack["status"] == "success"
    (ack,) = client.say(c="subscribe", t="^/none/", cid="1", filter="/c = 1 AND /d = 1")
    assert ack["reason"] == "too large"
    (ack,) = client.say(c="subscribe", t="/desk/1", cid="1", filter="/c = 1 AND /d = 1")
    assert ack["reason"] == "too large"
    client.say(c="unsubscribe", s="all")
    (ack,) = client.say(c="subscribe", t="^/none/", cid="1", filter="/c = 1 AND /d = 1")
    assert ack["status"] == "success"
    desks.check()


def rights_to(topics):
    roles = (Role("some", ("*",), (Allow(topics, read=True),)),)
    security = Security(authentication=Authentication(), roles=roles)
    return RoleSet(security).rights(User("ann"))


@pytest.mark.parametrize("name", ["sow", "subscribe", "sow_and_subscribe"])
@pytest.mark.parametrize("topic", ["orders", "^o"])
def test_rights_that_are_lost_while_it_is_looked_end_a_command(name, topic):
    world = World(ORDERS)
    client = world.client()
    world.publish("orders", {"id": "unseen"})
    client.session.entitle(rights_to("orders"))
    command = Command(name, cid="1", topic=topic, rights=client.session.rights)
    subscriptions = world.executor.subscriptions
    method = subscriptions.snapshot if name == "sow" else getattr(subscriptions, name)
    steps = method(client.session, command)
    client.session.entitle(rights_to("others"))
    with pytest.raises((UnknownTopic, Busy)):
        run_to_completion(steps)
    assert "unseen" not in str(client.lines())
    assert not client.subscriptions


@pytest.mark.parametrize("topic", ["orders", "^o"])
def test_an_answer_is_not_of_rows_that_were_lost_while_it_was_looked_for(topic):
    world = World(ORDERS)
    world.publish("orders", {"id": "unseen", "desk": "b"})
    client = guarded(world, desk("a", "b"))
    subscriptions = world.executor.subscriptions
    for given, refuses in ((desk("a"), True), (desk("a"), False)):
        command = Command("sow", cid="1", topic=topic, rights=client.session.rights)
        steps = subscriptions.snapshot(client.session, command)
        client.session.entitle(given)
        if refuses:
            with pytest.raises(Busy):
                run_to_completion(steps)
        else:
            run_to_completion(steps)
            world.settle()
        assert "unseen" not in str(client.lines())
