"""Sessions that outlive their sockets: resumed at the exact line, or started from scratch."""

import pytest

from sow.core.definitions import SessionSettings, Topic
from tests.laws.guarding import reading, rights
from tests.laws.harness import SECOND, World


class Resuming:
    """A client that counts what it sees, drops its socket and comes back."""

    def __init__(self, world, *commands):
        self.world = world
        self.client = world.client()
        (ack,) = self.client.say(c="logon", client="me")
        self.name = ack["session"]
        self.seen = 0
        self.lines = []
        for command in commands:
            self.keep(self.client.say(**command))

    def keep(self, lines):
        self.seen += len(lines)
        self.lines += lines
        return lines

    def read(self):
        return self.keep(self.client.lines())

    def drop(self):
        self.world.executor.sessions.drop(self.client.session, self.world.now)

    def back(self, **more):
        self.client = self.world.client()
        (ack, *lines) = self.client.say(
            **({"c": "logon", "session": self.name, "seen": self.seen, "cid": "r"} | more)
        )
        self.keep(lines)
        return ack


def ids(lines):
    return [line["d"]["id"] for line in lines if line["c"] in ("p", "sow")]


SUBSCRIBE = {"c": "subscribe", "t": "orders", "cid": "1"}


@pytest.fixture
def world():
    return World()


def test_a_session_goes_on_where_it_was(world):
    client = Resuming(world, SUBSCRIBE)
    world.publish("orders", {"id": 1})
    client.read()
    client.drop()
    world.publish("orders", {"id": 2})
    ack = client.back()
    assert (ack["resumed"], ack["session"]) == (True, client.name)
    world.publish("orders", {"id": 3})
    client.read()
    assert ids(client.lines) == [1, 2, 3]


def test_what_was_sent_and_not_seen_is_sent_again_to_the_line(world):
    client = Resuming(world, SUBSCRIBE)
    world.publish("orders", *({"id": number} for number in range(10)))
    client.client.lines()  # handed to the socket, and lost with it but for four lines
    client.seen += 4
    client.lines += [{"c": "p", "d": {"id": number}} for number in range(4)]
    client.drop()
    world.publish("orders", {"id": 10})
    assert client.back()["resumed"] is True
    assert ids(client.lines) == list(range(11))


def test_a_session_can_be_taken_up_more_than_once(world):
    client = Resuming(world, SUBSCRIBE)
    for number in range(5):
        world.publish("orders", {"id": 2 * number})
        client.read()
        world.publish("orders", {"id": 2 * number + 1})
        client.drop()
        assert client.back()["resumed"] is True
    assert ids(client.lines) == list(range(10))


def test_without_seen_everything_handed_over_counts_as_seen(world):
    client = Resuming(world, SUBSCRIBE)
    world.publish("orders", {"id": 1})
    client.client.lines()
    client.drop()
    world.publish("orders", {"id": 2})
    client.back(seen=None)
    assert ids(client.lines) == [2]


class Socket:
    """Counts how often it has lost a session."""

    lost = 0
    is_stuck = False

    def lose(self):
        self.lost += 1


def test_a_session_is_taken_from_a_socket_that_does_not_know_it_is_dead(world):
    client, socket = Resuming(world, SUBSCRIBE), Socket()
    session = client.client.session
    session.belong_to(socket)
    world.publish("orders", {"id": 1})
    assert session.belongs_to(socket)
    assert client.back()["resumed"] is True
    assert socket.lost == 1
    assert not session.belongs_to(socket)
    assert ids(client.lines) == [1]


def test_commands_behind_the_logon_are_carried_out_for_the_resumed_session(world):
    client = Resuming(world, SUBSCRIBE)
    client.drop()
    again = world.client()
    lines = again.send(
        b'{"c":"logon","session":"%b","seen":1}\n{"c":"subscribe","t":"orders","cid":"2"}'
        % client.name.encode()
    )
    assert [line["c"] for line in lines] == ["ack", "ack"]
    assert again.session.name == client.name
    assert len(again.subscriptions) == 2


def test_a_session_that_stayed_away_too_long_has_expired(world):
    client = Resuming(world, SUBSCRIBE)
    client.drop()
    world.advance(61 * SECOND)
    assert list(world.executor.sessions) == []
    ack = client.back()
    assert (ack["resumed"], ack["reason"]) == (False, "expired")
    assert ack["session"] != client.name
    assert list(world.engine.topics["orders"].router.feeds()) == []


def test_an_unknown_session_is_a_new_one(world):
    ack = world.client().say(c="logon", session="nobody", seen=3)[0]
    assert (ack["status"], ack["resumed"], ack["reason"]) == ("success", False, "unknown session")


def test_a_session_is_known_to_others_by_an_id_that_takes_nothing_up(world):
    client = Resuming(world, SUBSCRIBE)
    (session,) = world.executor.sessions
    session_id = session.id
    assert session_id != client.name
    client.drop()
    ack = world.client().say(c="logon", session=session_id, seen=0)[0]
    assert (ack["resumed"], ack["reason"]) == (False, "unknown session")
    # The acks of a logon say both, and a session that is taken up keeps both.
    ack = client.back()
    assert (ack["id"], ack["session"]) == (session_id, client.name)


def test_a_session_is_resumed_by_its_own_user_only(world):
    client = Resuming(world, SUBSCRIBE)
    client.client.session.entitle(rights(reading(), name="ann"))
    client.drop()
    other = world.client()
    other.session.entitle(rights(reading(), name="bob"))
    ack = other.say(c="logon", session=client.name, seen=client.seen)[0]
    assert (ack["resumed"], ack["reason"]) == (False, "unknown session"), "to him it is not there"
    client.client = world.client()
    client.client.session.entitle(rights(reading(), name="ann"))
    ack = client.client.say(c="logon", session=client.name, seen=client.seen)[0]
    assert ack["resumed"] is True


def test_a_name_is_of_no_more_use_once_its_session_is_gone(world):
    client = Resuming(world, SUBSCRIBE)
    (session,) = world.executor.sessions
    world.executor.sessions.close(session)
    ack = client.back()
    assert (ack["resumed"], ack["reason"]) == (False, "disconnected")


def test_more_lost_than_is_kept_is_reported(world):
    world = World(sessions=SessionSettings(recovery_messages_max=5))
    client = Resuming(world, SUBSCRIBE)
    for number in range(20):
        world.publish("orders", {"id": number})
    client.client.raw()
    for number in range(20):
        world.publish("orders", {"id": number})
        client.client.raw()
    client.drop()
    ack = client.back()
    assert (ack["resumed"], ack["reason"]) == (False, "recovery buffer exceeded")
    assert client.client.subscriptions == {}


def test_a_session_closed_meanwhile_says_why(world):
    client = Resuming(world, SUBSCRIBE)
    client.drop()
    world.executor.sessions.end(client.client.session, "closed by an operator")
    assert client.back()["reason"] == "closed for closed by an operator"


def test_a_session_that_follows_nothing_is_not_kept(world):
    client = Resuming(world)
    client.drop()
    assert list(world.executor.sessions) == []


def test_an_operator_can_keep_no_sessions_at_all():
    world = World(sessions=SessionSettings(reconnect_timeout_us=0))
    client = Resuming(world, SUBSCRIBE)
    client.drop()
    assert list(world.executor.sessions) == []


def test_a_dropped_session_is_conflated_and_goes_on_exactly(world):
    world = World(Topic("t", "json", keys=("/id",)), sessions=SessionSettings(queue_messages_max=5))
    client = Resuming(world, {"c": "sow_and_delta_subscribe", "t": "t", "cid": "1"})
    world.publish("t", {"id": 1, "px": 0, "text": "x" * 100})
    client.read()
    client.drop()
    for px in range(1, 50):
        world.publish("t", {"id": 1, "px": px, "text": "x" * 100})
    client.back()
    last = [line for line in client.lines if line["c"] == "p"][-1]
    assert (last["d"], last["delta"]) == ({"id": 1, "px": 49}, True)


def test_a_half_read_session_counts_acks_and_heartbeats_too(world):
    client = Resuming(world, SUBSCRIBE, {"c": "heartbeat", "cid": "2"}, {"c": "flush", "cid": "3"})
    world.publish("orders", {"id": 1})
    client.read()
    assert client.seen == 5
    client.drop()
    world.publish("orders", {"id": 2})
    assert client.back()["resumed"] is True
    assert ids(client.lines) == [1, 2]


def test_lines_before_the_logon_are_not_counted(world):
    early = world.client()
    early.say(c="heartbeat", cid="1")
    lines = early.send(
        b'{"c":"flush","cid":"2"}\n{"c":"logon","client":"me"}\n'
        b'{"c":"subscribe","t":"orders","cid":"3"}'
    )
    world.publish("orders", {"id": 1})
    early.lines()
    world.executor.sessions.drop(early.session, world.now)
    again = world.client()
    (ack, update) = again.say(c="logon", session=lines[1]["session"], seen=1)
    assert (ack["resumed"], update["d"]) == (True, {"id": 1})


@pytest.mark.parametrize("seen", [-1, 4, 10**30])
def test_a_seen_that_cannot_be_is_refused_and_costs_the_session_nothing(world, seen):
    client = Resuming(world, SUBSCRIBE)
    world.publish("orders", {"id": 1})
    client.read()
    client.drop()
    world.publish("orders", {"id": 2})
    ack = client.back(seen=seen)
    assert (ack["status"], ack["reason"]) == ("failure", "invalid seen")
    assert f"seen is {seen}, and 2 lines were sent" in ack["detail"]
    assert client.back()["resumed"] is True
    assert ids(client.lines)[-1] == 2


def test_a_session_that_followed_nothing_is_reported_as_disconnected(world):
    client = Resuming(world)
    client.drop()
    ack = client.back()
    assert (ack["resumed"], ack["reason"]) == (False, "disconnected")


def test_a_session_that_was_closed_says_why_whether_it_had_a_socket_or_not(world):
    client = Resuming(world, SUBSCRIBE)
    world.executor.sessions.end(client.client.session, "closed by an operator")
    assert client.back()["reason"] == "closed for closed by an operator"
    world.executor.sessions.drop(world.executor.sessions._by_name[client.name], world.now)
    assert client.back()["reason"] == "closed for closed by an operator"


def test_what_waits_is_as_old_as_its_line(world):
    client = Resuming(world, SUBSCRIBE)
    start = world.now
    world.publish("orders", {"id": 1})
    outbox = client.client.session.outbox
    world.advance(SECOND)
    client.client.execute(b'{"c":"heartbeat","cid":"1"}')
    assert outbox.oldest_us() == start
    client.client.lines()
    assert outbox.oldest_us() is None
    world.advance(SECOND)
    client.client.execute(b'{"c":"heartbeat","cid":"2"}')
    assert outbox.oldest_us() == start + 2 * SECOND
    client.drop()
    again = world.client()
    again.execute(b'{"c":"logon","session":"%b","seen":1}' % client.name.encode())
    assert outbox.oldest_us() == start, "sent again, and as old as it is"
    world.check()
    world.executor.sessions.end(again.session, "closed by an operator")
    assert outbox.oldest_us() == world.now


def test_what_waits_for_a_session_goes_when_the_session_does(world):
    world.publish("orders", *[{"id": number} for number in range(1000)])
    world.settle()
    client = world.client()
    client.execute(b'{"c":"sow","t":"orders"}')
    assert client.session.outbox
    world.executor.sessions.drop(client.session, world.now)
    assert not client.session.outbox
