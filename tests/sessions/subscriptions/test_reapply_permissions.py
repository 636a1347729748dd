"""Reguarding: sessions whose rights change, in steps, between other things."""

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import SessionSettings, Topic
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.errors import Busy, Full, TooLarge
from sow.protocol.commands import Command, Identified, Options
from sow.protocol.publish_batching import read_frames
from sow.security.authorization import RoleSet
from sow.sessions.subscriptions import log_replay
from sow.sessions.subscriptions.pending_updates import ReportedSince
from sow.sessions.subscriptions.reapply_permissions import prepare
from sow.sessions.subscriptions.replace_subscription import SubscriptionReplacer
from sow.streaming.sessions import OUTDATED, SLOW
from tests.engine.test_atomic_change import begin, made
from tests.executing import execute_all
from tests.laws.guarding import A, B, desk, guarded, reading, regrant, rights, two_desks
from tests.laws.harness import SECOND, SlowDisk, World, short


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


def test_what_is_withdrawn_may_be_reported_without_oof(world):
    """A chained server holds lines of its own, also of what it follows without a snapshot."""
    client = guarded(world, desk("a"))
    for command in ("subscribe", "sow_and_subscribe", "sow_and_delta_subscribe"):
        client.say(c=command, t="orders", opts="withdrawn")
    client.lines()
    left = [one for one in short(regrant(client, desk("b"))) if one[0] == "entitlement"]
    assert left == [("entitlement", A)] * 3


@pytest.mark.parametrize("opts", ["oof", "withdrawn"])
@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
def test_what_is_withdrawn_is_reported_where_a_newer_line_of_it_waited(world, command, opts):
    client = guarded(world, desk("a", "b"))
    client.say(c=command, t="orders", opts=opts)
    world.publish("orders", A | {"px": 2})
    client.lines()
    world.publish("orders", A | {"px": 3})
    assert short(regrant(client, desk("b"))) == [("entitlement", A | {"px": 2})]
    world.check()


@pytest.mark.parametrize(
    ("command", "opts"), [("sow_and_subscribe", ""), ("subscribe", "withdrawn")]
)
def test_one_that_began_beside_a_load_ends_where_its_records_would_be_compared(
    monkeypatch, command, opts
):
    """What the log has sent it so far is not known."""
    monkeypatch.setattr("sow.sessions.commands.commit_plan.STORED_AT_ONCE", 1)
    monkeypatch.setattr("sow.sessions.commands.staged_writes.WAITED_ROWS_MAX", 0)
    world = made()
    world.publish("orders", A | {"id": 11}, B | {"id": 12})
    client = guarded(world, desk("a"))
    applying = begin(world)
    client.say(c=command, t="orders", opts=opts)
    assert world.engine.atomic.topic is not None, "it did not wait"
    (line,) = regrant(client, desk("b"))
    assert (line["c"], line["reason"]) == ("unsubscribed", "AUTHORIZATION")
    run_to_completion(applying)
    world.check()


def test_lines_of_a_replay_are_not_sent_again_under_other_rights(world):
    client = guarded(world, desk("a"))
    session = client.say(c="logon", client="me", cid="1")[0]["session"]
    assert short(client.say(c="subscribe", t="orders", bm="0", opts="rate=1")) == [("p", A)]
    world.executor.sessions.drop(client.session, world.now)
    assert regrant(client, desk("b")) == []
    again = guarded(world, desk("b"))
    (ack, *others) = again.say(c="logon", client="me", session=session, seen=0, cid="1")
    assert (ack["resumed"], ack["reason"], others) == (False, "entitlement", [])
    world.check()


def test_what_a_replay_has_read_before_it_is_durable_waits_for_that_under_new_rights(monkeypatch):
    for name in ("RECORDS_AT_ONCE", "LAST_RECORDS"):
        monkeypatch.setattr(log_replay, name, 2)
    world = SlowDisk()
    for _ in range(10):
        world.publish("orders", A, B)
    client = guarded(world, desk("a", "b"))
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    (name,) = client.subscriptions
    client.pull()
    world.held = True
    for number in range(3):
        world.publish("orders", A | {"px": 10 + number}, B)
    while client.subscriptions[name].replay._reached < world.journal.last_seq + 4:
        client.pull()
    run_to_completion(world.executor.reguard(client.session, desk("a")))
    assert not any(client.pull() for _ in range(10))
    world.held = False
    world.settle()
    assert client.data() == [("p", A | {"px": 10 + number}) for number in range(3)]
    world.check()


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


def roles(desk):
    """Roles by which everybody reads the rows of one desk."""
    allow = Allow("orders", read=True, filter=f"/desk = '{desk}'")
    return RoleSet(
        Security(authentication=Authentication(), roles=(Role("all", ("*",), (allow,)),))
    )


class Shown:
    """What a client has shown."""


@pytest.fixture
def desks():
    desks = two_desks()
    desks.executor.go_on_under(roles("a"))
    return desks


def known(desks, name="ann", **more):
    client = desks.client()
    user = User(name, **more)
    desks.executor.sessions.entitle(client.session, desks.executor.role_set.rights(user), Shown())
    return client


def moment(desks, desk, *clients, **more):
    """The rows of another desk may be read from now on; the sessions that are to be settled."""
    return moment_of(desks, roles(desk), *clients, **more)


def moment_of(desks, later, *clients, found=User("ann")):  # noqa: B008
    """Other roles hold from now on; the sessions that are to be settled."""
    prepared = {
        one.session: prepare(one.session, one.session.shown, found, later, User) for one in clients
    }
    return desks.executor.go_on_under(later, prepared)


def settle(desks, *sessions):
    for session in sessions:
        run_to_completion(desks.executor.settle(session))
    desks.settle()


FORMS = ("oof", "oof,conflation=1s", "oof,conflation=auto")


@pytest.mark.parametrize("opts", FORMS)
def test_what_changes_before_a_session_is_got_to_is_sent_by_its_new_rights(desks, opts):
    client = known(desks)
    client.say(c="sow_and_subscribe", t="orders", opts=opts)
    sessions = moment(desks, "b", client)
    desks.publish("orders", A | {"px": 10}, B | {"px": 20}, A | {"id": 3}, B | {"id": 4})
    desks.advance(2_000_000)
    assert client.lines() == [], "nobody is told anything until it is known what he may see"
    settle(desks, *sessions)
    # The last that he was told of what he lost: not what it has become since.
    assert short(client.lines()) == [
        ("entitlement", A),
        ("p", B | {"px": 20}),
        ("p", B | {"id": 4}),
    ]
    desks.publish("orders", A | {"px": 11}, B | {"px": 21})
    desks.advance(2_000_000)
    assert client.data() == [("p", B | {"px": 21})]
    desks.check()


def test_fields_that_are_hidden_now_are_in_nothing_that_was_said_since(desks):
    client = known(desks)
    client.say(c="sow_and_subscribe", t="orders")
    client.say(c="sow_and_delta_subscribe", t="orders")
    allow = Allow("orders", read=True, select=("-/px",))
    later = RoleSet(
        Security(authentication=Authentication(), roles=(Role("all", ("*",), (allow,)),))
    )
    session = client.session
    prepared = prepare(session, session.shown, User("ann"), later, User)
    sessions = desks.executor.go_on_under(later, {session: prepared})
    desks.publish("orders", A | {"px": 99})
    settle(desks, *sessions)
    said = client.lines()
    assert short(said) == [("p", {"id": 2, "desk": "b"}), ("p", {"id": 1, "desk": "a"})] * 2


def test_a_live_window_is_sent_the_difference_from_the_page_that_it_held(desks):
    client = known(desks)
    client.say(c="sow_and_subscribe", t="orders", opts="oof", order_by="/px", top_n=2, skip_n=0)
    sessions = moment(desks, "b", client)
    desks.publish("orders", A | {"px": 10}, B | {"px": 20})
    assert client.lines() == []
    settle(desks, *sessions)
    assert short(client.lines()) == [("entitlement", A), ("sow", B | {"px": 20})]
    desks.check()


def test_of_many_each_is_sent_by_the_new_rights_from_the_same_moment(desks):
    clients = [known(desks) for _ in range(3)]
    for client in clients:
        client.say(c="sow_and_subscribe", t="orders", opts="oof")
    first, *others = moment(desks, "b", *clients)
    settle(desks, first)
    desks.publish("orders", A | {"px": 10}, B | {"px": 20})
    settle(desks, *others)
    for at, client in enumerate(clients):
        told = client.lines()
        assert ("entitlement", A) in short(told)
        assert short(told)[-1] == ("p", B | {"px": 20})
        assert not any(line.get("d", {}).get("px") == 10 for line in told), at


def test_whose_rights_stay_is_sent_all_of_it(desks):
    client = known(desks)
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    (session,) = moment(desks, "a", client)
    steps = desks.executor.settle(session)
    next(steps)
    desks.publish("orders", A | {"px": 10})
    for _ in steps:
        pass
    desks.settle()
    assert client.data() == [("p", A | {"px": 10})]


def test_what_ends_before_it_is_got_to_is_sent_nothing(desks):
    client = known(desks)
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    sessions = moment(desks, "b", client)
    desks.publish("orders", A | {"px": 10})
    client.say(c="unsubscribe", s="all")
    settle(desks, *sessions)
    assert client.data() == []
    desks.check()


def test_who_is_sent_more_meanwhile_than_may_wait_for_anybody_is_given_up(desks):
    client = known(desks)
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    moment(desks, "b", client)
    most = client.session.settings.queue_messages_max
    for start in range(0, most + 1_000, 1_000):
        desks.publish("orders", *[A | {"id": at} for at in range(start, start + 1_000)])
    assert client.session.ended is not None
    assert not client.session.holds_back


def test_an_answer_that_was_found_under_other_rights_is_written_no_further(desks):
    desks.publish("orders", *[A | {"id": at} for at in range(10, 5_000)])
    client = known(desks)
    client.execute(b'{"c":"sow","t":"orders"}')
    assert client.session.outbox.has_found_records
    assert moment(desks, "a", client) == [client.session], "the same may go on"
    assert moment(desks, "b", client) == []
    assert client.session.is_barred
    assert client.session.ended == OUTDATED, "its user is known as he was"


@pytest.mark.parametrize(
    ("settings", "size"),
    [({"queue_messages_max": 10}, 1), ({"queue_bytes_max": 10_000}, 900)],
    ids=["messages", "bytes"],
)
def test_what_is_kept_counts_until_it_has_been_looked_at(settings, size):
    desks = World(sessions=SessionSettings(**settings))
    desks.executor.go_on_under(roles("a"))
    client = known(desks)
    client.say(c="sow_and_subscribe", t="orders")

    def publish(desk, count):
        text = "x" * size
        desks.publish("orders", *[{"id": at, "desk": desk, "text": text} for at in range(count)])

    (session,) = moment(desks, "b", client)
    publish("a", 8)
    (name,) = client.subscriptions
    steps = desks.executor.settle(session)
    while session.held_back(name):
        next(steps)
    publish("b", 8)
    assert session.ended is None, "what he lost is kept no more"
    run_to_completion(steps)
    desks.settle()
    assert len(client.data()) == 8
    moment(desks, "a", client)
    publish("b", 30)
    assert session.ended == SLOW


def others():
    """Roles by which everybody reads another topic."""
    allow = Allow("others", read=True)
    return RoleSet(
        Security(authentication=Authentication(), roles=(Role("all", ("*",), (allow,)),))
    )


def test_an_answer_in_a_queue_that_is_being_folded_is_written_no_further(desks):
    desks.publish("orders", *[A | {"id": at} for at in range(10, 5_000)])
    client = known(desks)
    client.say(c="subscribe", t="orders")
    for px in range(200):
        desks.publish("orders", A | {"px": px})
    client.execute(b'{"c":"sow","t":"orders"}')
    client.session.conflate(desks.now)
    assert client.session.folds
    assert moment(desks, "b", client) == []


def test_an_answer_that_is_said_in_this_very_step_counts_as_waiting(desks):
    client = known(desks)
    requested = read_frames([b'{"c":"sow","t":"orders"}'])
    execute_all(desks.executor, client.session, requested, desks.now)
    assert moment_of(desks, others(), client) == []
    desks.settle()
    assert client.data() == []


def test_a_session_that_logs_on_meanwhile_has_no_rights_that_were_prepared_for_another(desks):
    client = known(desks)
    session = client.session
    prepared = prepare(session, session.shown, User("ann"), roles("b"), User)
    assert prepared.is_of(session)
    desks.executor.sessions.entitle(session, session.rights, Shown())
    assert not prepared.is_of(session)
    assert desks.executor.go_on_under(roles("b"), {session: prepared}) == []
    assert session.is_barred, "so that who logs on again and again keeps nothing"


@pytest.mark.parametrize("found", [None, User("ben")])
def test_who_is_known_no_longer_or_is_somebody_else_is_put_out(desks, found):
    client = known(desks)
    assert moment(desks, "a", client, found=found) == []
    assert client.session.is_barred


def test_what_was_said_is_looked_at_some_at_a_time(desks):
    client = known(desks)
    client.say(c="sow_and_subscribe", t="orders", opts="oof")
    (name,) = client.subscriptions
    moment(desks, "b", client)
    for start in range(0, 1_000, 100):
        desks.publish("orders", *[A | {"id": at} for at in range(start, start + 100)])
    said = ReportedSince(client.session, name)
    looks = 0
    while said.is_behind:
        said.look()
        looks += 1
    assert looks > 1
    said.look_at_all()
    assert len(said.updates) == 1_000
