"""Entitling: the rights of live sessions change at one moment, whenever each is got to."""

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import SessionSettings
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.protocol.publish_batching import read_frames
from sow.security.authorization import RoleSet
from sow.sessions.live_permission_reload import prepare
from sow.sessions.pending_updates import ReportedSince
from sow.streaming.sessions import OUTDATED, SLOW
from tests.laws.guarding import A, B, two_desks
from tests.laws.harness import World, short


def roles(desk):
    """Roles by which everybody reads the rows of one desk."""
    allow = Allow("orders", read=True, filter=f"/desk = '{desk}'")
    return RoleSet(
        Security(authentication=Authentication(), roles=(Role("all", ("*",), (allow,)),))
    )


class Shown:
    """What a client has shown."""


@pytest.fixture
def world():
    world = two_desks()
    world.executor.go_on_under(roles("a"))
    return world


def known(world, name="ann", **more):
    client = world.client()
    user = User(name, **more)
    world.executor.sessions.entitle(client.session, world.executor.role_set.rights(user), Shown())
    return client


def moment(world, desk, *clients, **more):
    """The rows of another desk may be read from now on; the sessions that are to be settled."""
    return moment_of(world, roles(desk), *clients, **more)


def moment_of(world, later, *clients, found=User("ann")):  # noqa: B008
    """Other roles hold from now on; the sessions that are to be settled."""
    prepared = {
        one.session: prepare(one.session, one.session.shown, found, later, User) for one in clients
    }
    return world.executor.go_on_under(later, prepared)


def settle(world, *sessions):
    for session in sessions:
        run_to_completion(world.executor.settle(session))
    world.settle()


FORMS = ("oof", "oof,conflation=1s", "oof,conflation=auto")


@pytest.mark.parametrize("opts", FORMS)
def test_what_changes_before_a_session_is_got_to_is_sent_by_its_new_rights(world, opts):
    client = known(world)
    client.say(c="sow_and_subscribe", t="orders", opts=opts)
    sessions = moment(world, "b", client)
    world.publish("orders", A | {"px": 10}, B | {"px": 20}, A | {"id": 3}, B | {"id": 4})
    world.advance(2_000_000)
    assert client.lines() == [], "nobody is told anything until it is known what he may see"
    settle(world, *sessions)
    # The last that he was told of what he lost: not what it has become since.
    assert short(client.lines()) == [
        ("entitlement", A),
        ("p", B | {"px": 20}),
        ("p", B | {"id": 4}),
    ]
    world.publish("orders", A | {"px": 11}, B | {"px": 21})
    world.advance(2_000_000)
    assert client.data() == [("p", B | {"px": 21})]
    world.check()


def test_fields_that_are_hidden_now_are_in_nothing_that_was_said_since(world):
    client = known(world)
    client.say(c="sow_and_subscribe", t="orders")
    client.say(c="sow_and_delta_subscribe", t="orders")
    allow = Allow("orders", read=True, select=("-/px",))
    later = RoleSet(
        Security(authentication=Authentication(), roles=(Role("all", ("*",), (allow,)),))
    )
    session = client.session
    prepared = prepare(session, session.shown, User("ann"), later, User)
    sessions = world.executor.go_on_under(later, {session: prepared})
    world.publish("orders", A | {"px": 99})
    settle(world, *sessions)
    said = client.lines()
    assert short(said) == [("p", {"id": 2, "desk": "b"}), ("p", {"id": 1, "desk": "a"})] * 2


def test_a_live_window_is_sent_the_difference_from_the_page_that_it_held(world):
    client = known(world)
    client.say(c="sow_and_subscribe", t="orders", opts="oof", order_by="/px", top_n=2, skip_n=0)
    sessions = moment(world, "b", client)
    world.publish("orders", A | {"px": 10}, B | {"px": 20})
    assert client.lines() == []
    settle(world, *sessions)
    assert short(client.lines()) == [("entitlement", A), ("sow", B | {"px": 20})]
    world.check()


def test_of_many_each_is_sent_by_the_new_rights_from_the_same_moment(world):
    clients = [known(world) for _ in range(3)]
    for client in clients:
        client.say(c="sow_and_subscribe", t="orders", opts="oof")
    first, *others = moment(world, "b", *clients)
    settle(world, first)
    world.publish("orders", A | {"px": 10}, B | {"px": 20})
    settle(world, *others)
    for at, client in enumerate(clients):
        told = client.lines()
        assert ("entitlement", A) in short(told)
        assert short(told)[-1] == ("p", B | {"px": 20})
        assert not any(line.get("d", {}).get("px") == 10 for line in told), at


def test_whose_rights_stay_is_sent_all_of_it(world):
    client = known(world)
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    (session,) = moment(world, "a", client)
    steps = world.executor.settle(session)
    next(steps)
    world.publish("orders", A | {"px": 10})
    for _ in steps:
        pass
    world.settle()
    assert client.data() == [("p", A | {"px": 10})]


def test_what_ends_before_it_is_got_to_is_sent_nothing(world):
    client = known(world)
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    sessions = moment(world, "b", client)
    world.publish("orders", A | {"px": 10})
    client.say(c="unsubscribe", s="all")
    settle(world, *sessions)
    assert client.data() == []
    world.check()


def test_who_is_sent_more_meanwhile_than_may_wait_for_anybody_is_given_up(world):
    client = known(world)
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    moment(world, "b", client)
    most = client.session.settings.queue_messages_max
    for start in range(0, most + 1_000, 1_000):
        world.publish("orders", *[A | {"id": at} for at in range(start, start + 1_000)])
    assert client.session.ended is not None
    assert not client.session.holds_back


def test_an_answer_that_was_found_under_other_rights_is_written_no_further(world):
    world.publish("orders", *[A | {"id": at} for at in range(10, 5_000)])
    client = known(world)
    client.execute(b'{"c":"sow","t":"orders"}')
    assert client.session.outbox.says_answers
    assert moment(world, "a", client) == [client.session], "the same may go on"
    assert moment(world, "b", client) == []
    assert client.session.is_barred
    assert client.session.ended == OUTDATED, "its user is known as he was"


@pytest.mark.parametrize(
    ("settings", "size"),
    [({"queue_messages_max": 10}, 1), ({"queue_bytes_max": 10_000}, 900)],
    ids=["messages", "bytes"],
)
def test_what_is_kept_counts_until_it_has_been_looked_at(settings, size):
    world = World(sessions=SessionSettings(**settings))
    world.executor.go_on_under(roles("a"))
    client = known(world)
    client.say(c="sow_and_subscribe", t="orders")

    def publish(desk, count):
        text = "x" * size
        world.publish("orders", *[{"id": at, "desk": desk, "text": text} for at in range(count)])

    (session,) = moment(world, "b", client)
    publish("a", 8)
    (name,) = client.subscriptions
    steps = world.executor.settle(session)
    while session.held_back(name):
        next(steps)
    publish("b", 8)
    assert session.ended is None, "what he lost is kept no more"
    run_to_completion(steps)
    world.settle()
    assert len(client.data()) == 8
    moment(world, "a", client)
    publish("b", 30)
    assert session.ended == SLOW


def others():
    """Roles by which everybody reads another topic."""
    allow = Allow("others", read=True)
    return RoleSet(
        Security(authentication=Authentication(), roles=(Role("all", ("*",), (allow,)),))
    )


def test_an_answer_in_a_queue_that_is_being_folded_is_written_no_further(world):
    world.publish("orders", *[A | {"id": at} for at in range(10, 5_000)])
    client = known(world)
    client.say(c="subscribe", t="orders")
    for px in range(200):
        world.publish("orders", A | {"px": px})
    client.execute(b'{"c":"sow","t":"orders"}')
    client.session.conflate(world.now)
    assert client.session.folds
    assert moment(world, "b", client) == []


def test_an_answer_that_is_said_in_this_very_step_counts_as_waiting(world):
    client = known(world)
    requested = read_frames([b'{"c":"sow","t":"orders"}'])
    world.executor.execute_all(client.session, requested, world.now)
    assert moment_of(world, others(), client) == []
    world.settle()
    assert client.data() == []


def test_a_session_that_logs_on_meanwhile_has_no_rights_that_were_prepared_for_another(world):
    client = known(world)
    session = client.session
    prepared = prepare(session, session.shown, User("ann"), roles("b"), User)
    assert prepared.is_of(session)
    world.executor.sessions.entitle(session, session.rights, Shown())
    assert not prepared.is_of(session)
    assert world.executor.go_on_under(roles("b"), {session: prepared}) == []
    assert session.is_barred, "so that who logs on again and again keeps nothing"


@pytest.mark.parametrize("found", [None, User("ben")])
def test_who_is_known_no_longer_or_is_somebody_else_is_put_out(world, found):
    client = known(world)
    assert moment(world, "a", client, found=found) == []
    assert client.session.is_barred


def test_what_was_said_is_looked_at_some_at_a_time(world):
    client = known(world)
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    (name,) = client.subscriptions
    moment(world, "b", client)
    for start in range(0, 1_000, 100):
        world.publish("orders", *[A | {"id": at} for at in range(start, start + 100)])
    said = ReportedSince(client.session, name)
    looks = 0
    while said.is_behind:
        said.look()
        looks += 1
    assert looks > 1
    said.look_at_all()
    assert len(said.updates) == 1_000
