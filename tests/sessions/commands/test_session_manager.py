"""Sessions that there are: found, kept for a while without a socket, counted when gone."""

import inspect

import pytest

from sow.core.definitions import SessionSettings
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.protocol.replies import LINES
from sow.security.authorization import RoleSet
from sow.sessions.commands.session_manager import FORGOTTEN_MAX, NOT_RECOVERED, OPERATOR
from sow.streaming.sessions import AUTHORIZATION, BARRED
from tests.laws.harness import ORDERS, SECOND, World


@pytest.fixture
def world():
    return World(ORDERS)


@pytest.fixture
def sessions(world):
    return world.executor.sessions


def test_there_are_those_that_were_opened_and_not_closed_since(world, sessions):
    opened = [sessions.open(LINES, world.now) for _ in range(3)]
    assert len({session.id for session in opened} | {session.name for session in opened}) == 6
    for session in sessions:  # whoever looks through them may close some
        if session is not opened[1]:
            sessions.close(session)
    assert (list(sessions), len(sessions)) == ([opened[1]], 1)


def test_a_session_is_found_by_its_id_and_by_its_secret_name(world, sessions):
    session = sessions.open(LINES, world.now)
    assert sessions.find(session.id) is session
    assert sessions.find(session.name) is session
    assert sessions.named(session.id) is None, "an id takes nothing up"
    sessions.close(session)
    assert sessions.find(session.id) is None
    assert sessions.find(session.name) is None
    assert sessions.closed["disconnected"] == 1


def test_a_session_that_said_who_it_is_waits_for_its_client_and_not_for_ever():
    world = World(ORDERS, sessions=SessionSettings(reconnect_timeout_us=5 * SECOND))
    client, nobody, sessions = world.client(), world.client(), world.executor.sessions
    client.say(c="logon", client="grid", cid="1")
    client.say(c="subscribe", t="orders")
    assert sessions.drop(client.session, world.now)
    assert not sessions.drop(nobody.session, world.now)
    world.advance(5 * SECOND - 1)
    assert sessions.find(client.session.id) is client.session
    world.advance(1)
    assert sessions.find(client.session.id) is None
    assert sessions.closed["expired"] == 1


def test_why_sessions_are_gone_is_remembered_of_so_many(world, sessions):
    for _ in range(FORGOTTEN_MAX + 5):
        sessions.close(sessions.open(LINES, world.now), "disconnected")
    assert len(sessions._gone) <= FORGOTTEN_MAX
    assert list(sessions) == []


def test_an_operator_ends_a_session_with_a_reason(world, sessions):
    client = world.client()
    sessions.end(client.session, "maintenance")
    (line,) = client.lines()
    assert line["c"] == "close"
    assert "maintenance" in line["reason"]


@pytest.mark.parametrize(
    ("reason", "why"), [(None, "disconnected"), (OPERATOR, "operator"), ("a mistake", "refused")]
)
def test_what_is_gone_is_counted_once_by_why(world, sessions, reason, why):
    session = world.client().session
    if reason:
        session.end(reason, world.now)
    for _ in range(2):
        sessions.close(session)
    assert {name: n for name, n in sessions.closed.items() if n} == {why: 1}


def test_the_owner_of_a_name_hears_why_its_session_is_gone(world, sessions):
    client = world.client()
    client.say(c="logon", client="grid", cid="1")
    name = client.session.name
    assert sessions.why_gone(name) == "unknown session"
    sessions.close(client.session, NOT_RECOVERED)
    assert sessions.why_gone(name) == NOT_RECOVERED
    assert sessions.closed["recovery"] == 1


def test_who_comes_back_is_waited_for_no_more(world, sessions):
    client = world.client()
    client.say(c="logon", client="grid", cid="1")
    client.say(c="subscribe", t="orders")
    assert sessions.drop(client.session, world.now)
    sessions.come_back(client.session)
    world.advance(3600 * SECOND)
    assert list(sessions) == [client.session]


def known_until(world, client, expires_us):
    user = User("ann", expires_us=expires_us)
    roles = (Role("all", ("*",), (Allow("orders", read=True),)),)
    role_set = RoleSet(Security(authentication=Authentication(), roles=roles))
    world.executor.go_on_under(role_set)
    world.executor.sessions.entitle(client.session, role_set.rights(user))


def test_when_its_users_credentials_expire_a_session_ends_and_reports_nothing_more():
    world = World(ORDERS)
    client, sessions = world.client(), world.executor.sessions
    known_until(world, client, world.now + 5 * SECOND)
    client.say(c="logon", cid="1")
    name = client.say(c="subscribe", t="orders", cid="2")[-1]["s"]
    world.advance(5 * SECOND - 1)
    world.publish("orders", {"id": 1})
    assert client.session.ended is None
    world.advance(1)
    assert client.session.is_barred
    lines = client.lines()
    assert [(one["c"], one.get("s"), one.get("reason")) for one in lines] == [
        ("unsubscribed", name, AUTHORIZATION),
        ("close", None, BARRED),
    ], "what waited was not told"
    sessions.close(client.session)
    assert list(sessions) == []
    assert world.engine.timers.due_us() is None


def test_a_session_without_a_socket_ends_with_its_users_credentials():
    world = World(ORDERS)
    client, sessions = world.client(), world.executor.sessions
    known_until(world, client, world.now + SECOND)
    client.say(c="logon", cid="1")
    client.say(c="subscribe", t="orders")
    assert sessions.drop(client.session, world.now)
    world.publish("orders", {"id": 1})
    world.advance(SECOND)
    assert list(sessions) == []
    assert sessions.why_gone(client.session.name) == f"closed for {BARRED}"


def test_credentials_that_are_shown_anew_hold_longer_or_shorter():
    world = World(ORDERS)
    client = world.client()
    for lasts_us in (5 * SECOND, 9 * SECOND, 3 * SECOND):
        known_until(world, client, world.now + lasts_us)
    world.advance(3 * SECOND - 1)
    assert client.session.ended is None
    known_until(world, client, world.now + 9 * SECOND)
    world.advance(8 * SECOND)
    assert client.session.ended is None
    world.advance(SECOND)
    assert client.session.is_barred


def test_credentials_expire_by_another_clock_that_is_ahead():
    world = World(ORDERS)
    client, other = world.client(), world.client()
    known_until(world, client, world.now + 5 * SECOND)
    sessions = world.executor.sessions
    sessions.bar_expired(world.now + 5 * SECOND - 1)
    assert client.session.ended is None
    sessions.bar_expired(world.now + 5 * SECOND)
    assert client.session.is_barred
    assert other.session.ended is None
    sessions.bar_expired(world.now + 9 * SECOND)


def test_who_comes_and_goes_is_sent_in_one_line_each_without_the_name_that_is_secret(
    world, sessions
):
    notices = []
    sessions.on_session_change(notices.append)
    session, given_up = (sessions.open(LINES, world.now) for _ in range(2))
    session.log_on("desk\n" + "x" * 1_000_000)
    sessions.note_logon(session, "10.0.0.7")
    sessions.close(session)
    sessions.end(given_up, OPERATOR)
    sessions.close(given_up)
    assert len(notices) == 2, "of who is given up, hear_of_slow_clients tells"
    assert notices[0].startswith(f"session {session.id} of client 'desk\\nxxx")
    assert notices[0].endswith(" has logged on from 10.0.0.7")
    assert notices[1].endswith(" is gone: disconnected")
    assert session.name not in "".join(notices)
    assert max(map(len, notices)) < 200


def test_a_crowd_that_leaves_does_not_hide_from_the_log_who_comes(world, sessions):
    places = []

    def note(_line):
        frame = inspect.currentframe().f_back
        places.append((frame.f_code.co_filename, frame.f_lineno))

    sessions.on_session_change(note)
    session = sessions.open(LINES, world.now)
    sessions.note_logon(session, None)
    sessions.close(session)
    assert len(set(places)) == 2
