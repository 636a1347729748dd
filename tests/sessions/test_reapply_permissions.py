"""Reguarding: sessions whose rights change, in steps, between other things."""

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Topic
from sow.core.security_definitions import Authentication, Role, Security, User
from sow.errors import Busy, Full, TooLarge
from sow.protocol.commands import Command, Identified, Options
from sow.security.authorization import RoleSet
from sow.sessions.replace_subscription import SubscriptionReplacer
from tests.laws.guarding import A, B, desk, guarded, reading, regrant, rights, two_desks
from tests.laws.harness import SECOND, World, short


@pytest.fixture
def world():
    return two_desks()


def test_a_session_that_nobody_is_connected_to_is_sent_when_it_is_taken_up(world):
    client = guarded(world, desk("a"))
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    client.session.disconnect()
    assert short(regrant(client, desk("b"))) == [("entitlement", A), ("p", B)]


def test_one_that_ends_meanwhile_is_passed_over(world):
    client = guarded(world, desk("a"))
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    client.say(c="sow_and_subscribe", t="orders", opts="oof,conflation=1s")
    steps = world.executor.reguard(client.session, desk("b"))
    next(steps)
    client.say(c="unsubscribe", s="all")
    run_to_completion(steps)
    assert not client.subscriptions
    world.check()


def test_rights_that_change_once_more_meanwhile_end_nothing(world):
    client = guarded(world, desk("a"))
    for _ in range(3):
        client.say(c="sow_and_subscribe", t="orders", opts="oof")
        client.say(c="sow_and_subscribe", t="orders", opts="oof,conflation=1s")
    first = world.executor.reguard(client.session, desk("b"))
    next(first)
    second = world.executor.reguard(client.session, desk("a", "b"))
    next(second)
    run_to_completion(first)
    assert client.session.holds_back, "until all that it follows goes by the last ones"
    run_to_completion(second)
    world.advance(SECOND)
    said = client.lines()
    assert len(client.subscriptions) == 6
    assert {line["c"] for line in said} <= {"p", "oof"}
    world.publish("orders", A | {"px": 7}, B | {"px": 8})
    world.advance(2 * SECOND)
    told = client.data()
    assert [told.count(("p", one)) for one in (A | {"px": 7}, B | {"px": 8})] == [6, 6]
    world.check()


def test_who_began_to_ask_before_has_to_ask_again(world):
    before = desk("a")
    client = guarded(world, before)
    regrant(client, desk("b"))
    requested = Command("sow_and_subscribe", topic="orders", rights=before)
    with pytest.raises(Busy, match="has changed meanwhile; send this again"):
        run_to_completion(world.executor.subscriptions.sow_and_subscribe(client.session, requested))
    assert not client.subscriptions


def test_a_subscription_without_snapshot_is_not_sent_of_what_it_may_see_now(world):
    client = guarded(world, desk("a"))
    client.say(c="subscribe", t="orders", opts="oof")
    world.publish("orders", A)
    client.lines()
    assert short(regrant(client, desk("b")))[-1:] == [("entitlement", A)]
    world.publish("orders", B)
    assert client.data() == [("p", B)]


FAILURES = (TooLarge("too much"), Busy("too much waits"), Full("no room"), RuntimeError("a bug"))


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_what_fails_ends_and_says_so_and_the_rest_goes_over(world, monkeypatch, error):
    client = guarded(world, desk("a"))
    client.say(c="sow_and_subscribe", t="orders")
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    replace, world.failures = SubscriptionReplacer.replace, []

    def failing(self, session, command, *more, **named):
        if not command.options.oof:
            raise error
        return replace(self, session, command, *more, **named)

    monkeypatch.setattr(SubscriptionReplacer, "replace", failing)
    first, *others = regrant(client, desk("b"))
    assert (first["c"], first["reason"]) == ("unsubscribed", "AUTHORIZATION")
    assert short(others) == [("entitlement", A), ("p", B)]
    assert len(client.subscriptions) == 1
    assert len(world.failures) == isinstance(error, RuntimeError)
    world.failures = None


def test_a_change_of_fields_reports_all_again():
    world = World(Topic("orders", "json", keys=("/id",)))
    world.publish("orders", A, B)
    client = guarded(world, rights(reading(select=("-/px",))))
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    told = regrant(client, rights(reading()))
    assert short(told) == [("p", A), ("p", B)]


def test_who_logs_on_again_as_another_claims_is_sent_apart_anew(world):
    security = Security(
        authentication=Authentication(tokens_file="tokens"),
        roles=(Role("r", ("*",), (reading(filter="/desk = ${user.desk}"),)),),
    )
    world.executor.go_on_under(RoleSet(security))
    client = guarded(world, desk("none"))

    def logon(name):
        found = Identified(User("ann", claims={"desk": name}), world.executor.role_set)
        world.executor.execute(client.session, Command("logon", identified=found), world.now)
        world.settle()
        return client.data()

    logon("a")
    assert short(client.say(c="sow_and_subscribe", t="orders", opts="oof")) == [("sow", A)]
    assert logon("b") == [("entitlement", A), ("p", B)]


GROUPS = Options(oof=True, projection=("SUM(/px) AS /px", "/desk"), grouping=("/desk",))


@pytest.mark.parametrize("name", "ab")
def test_groups_that_are_being_answered_do_not_go_on_under_the_rights_of_before(world, name):
    client = guarded(world, desk("a"))
    requested = Command(
        "sow_and_subscribe", topic="orders", options=GROUPS, rights=client.session.rights
    )
    steps = world.executor.subscriptions.sow_and_subscribe(client.session, requested)
    while not client.subscriptions:
        next(steps)
    told = regrant(client, desk(name))
    for _ in steps:
        pass
    assert ("unsubscribed" in {line["c"] for line in told}) is (name == "b")
    assert len(client.subscriptions) == (name == "a")
    world.publish("orders", A | {"px": 7})
    assert len(client.lines()) == (name == "a")
    world.check()
