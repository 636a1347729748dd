"""Reguarding: sessions whose rights change, in steps, between other things."""

import pytest

from sow.commands import Command, Identified, Options
from sow.definitions import Topic
from sow.errors import Busy, Full, TooLarge
from sow.requests.replacing import Replacing
from sow.rights import Entitlements
from sow.security import Authentication, Role, Security
from sow.steps import at_once
from sow.users import User
from tests.core.guarding import A, B, desk, guarded, reading, regrant, rights, two_desks
from tests.core.harness import SECOND, World, short


@pytest.fixture
def world():
    return two_desks()


def test_a_session_that_nobody_is_connected_to_is_told_when_it_is_taken_up(world):
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
    at_once(steps)
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
    at_once(first)
    assert client.session.holds_back, "until all that it follows goes by the last ones"
    at_once(second)
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
    asked = Command("sow_and_subscribe", topic="orders", rights=before)
    with pytest.raises(Busy, match="has changed meanwhile; send this again"):
        at_once(world.executor.subscriptions.sow_and_subscribe(client.session, asked))
    assert not client.subscriptions


def test_a_subscription_without_snapshot_is_not_told_of_what_it_may_see_now(world):
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
    replace, world.failures = Replacing.replace, []

    def failing(self, session, command, *more, **named):
        if not command.options.oof:
            raise error
        return replace(self, session, command, *more, **named)

    monkeypatch.setattr(Replacing, "replace", failing)
    first, *others = regrant(client, desk("b"))
    assert (first["c"], first["reason"]) == ("unsubscribed", "AUTHORIZATION")
    assert short(others) == [("entitlement", A), ("p", B)]
    assert len(client.subscriptions) == 1
    assert len(world.failures) == isinstance(error, RuntimeError)
    world.failures = None


def test_a_change_of_fields_tells_all_again():
    world = World(Topic("orders", "json", keys=("/id",)))
    world.publish("orders", A, B)
    client = guarded(world, rights(reading(select=("-/px",))))
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    told = regrant(client, rights(reading()))
    assert short(told) == [("p", A), ("p", B)]


def test_who_logs_on_again_as_another_claims_is_told_apart_anew(world):
    security = Security(
        authentication=Authentication(tokens_file="tokens"),
        roles=(Role("r", ("*",), (reading(filter="/desk = ${user.desk}"),)),),
    )
    world.executor.go_on_under(Entitlements(security))
    client = guarded(world, desk("none"))

    def logon(name):
        found = Identified(User("ann", claims={"desk": name}), world.executor.entitlements)
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
    asked = Command(
        "sow_and_subscribe", topic="orders", options=GROUPS, rights=client.session.rights
    )
    steps = world.executor.subscriptions.sow_and_subscribe(client.session, asked)
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
