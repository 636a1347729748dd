"""Commands carried out: in order, all or nothing, and every mistake answered."""

import json
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Limits
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.engine import bulk_publish
from sow.protocol.commands import ACKS, COMMANDS, Command, Identified
from sow.protocol.publish_batching import read_frames
from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.security.authorization import RoleSet
from sow.sessions.commands import executor, record_ops
from tests.executing import execute_all
from tests.laws.guarding import guarded, reading, rights
from tests.laws.harness import ORDERS, World


@pytest.fixture
def world():
    return World(ORDERS)


def frame(*lines):
    return "\n".join(map(json.dumps, lines)).encode()


def publish(id_, **more):
    return {"c": "publish", "t": "orders", "d": {"id": id_}} | more


def test_a_large_publish_is_acknowledged_at_its_end_with_its_last_bookmark(world, monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    client = world.client()
    bodies = b"\n".join(b'{"id":%d}' % n for n in range(5))
    line = b'{"c":"publish","t":"orders","n":5,"cid":"1","a":"persisted"}\n'
    steps = world.executor.carry_out(
        client.session, list(read_frame(line + bodies)), lambda: world.now
    )
    while not world.engine.seq:
        next(steps)
    world.publish("orders", {"id": 9})
    assert client.lines() == []
    run_to_completion(steps)
    world.settle()
    (ack,) = client.lines()
    assert (ack["cid"], ack["bm"]) == ("1", "6")


def test_a_run_is_stored_as_one_batch_and_acknowledged_one_by_one(world):
    lines = world.client().send(
        frame(*(publish(n, cid=str(n), a="persisted") for n in range(1, 4)))
    )
    acks = [(line["cid"], line["bm"]) for line in lines if line["a"] == "persisted"]
    assert acks == [("1", "1"), ("2", "2"), ("3", "3")]
    assert len(list(world.journal.read(0))) == 1


def test_a_bad_one_among_them_fails_alone(world):
    bad = {"c": "publish", "t": "orders", "d": 5, "cid": "bad"}
    lines = world.client().send(frame(publish(1, cid="1"), bad, publish(2, cid="2")))
    assert [(line["cid"], line["status"]) for line in lines] == [
        ("1", "success"),
        ("bad", "failure"),
        ("2", "success"),
    ]
    assert world.records("orders") == [{"id": 1}, {"id": 2}]


def test_messages_are_counted_once_also_where_one_among_them_is_bad(world):
    limits = Limits(publishes_per_second_max=10)
    world.engine.configuration = replace(world.engine.configuration, limits=limits)
    bad = {"c": "publish", "t": "orders", "d": 5, "cid": "bad"}
    lines = world.client().send(frame(bad, *(publish(n, cid=f"{n}") for n in range(9))))
    assert [line["cid"] for line in lines if line["status"] == "failure"] == ["bad"]
    (line,) = world.client().send(frame(publish(9, cid="9")))
    assert line["reason"] == "busy"


def minimal(kind):
    """The least that each command needs."""
    line = {"c": kind.name, "cid": "1"}
    line |= {"t": "orders"} if "t" in kind.fields else {}
    line |= {"d": {"id": 1}} if kind.takes_bodies else {}
    return line | ({"s": "all"} if kind.name == "unsubscribe" else {})


@pytest.mark.parametrize("kind", COMMANDS.values(), ids=lambda kind: kind.name)
def test_the_first_ack_of_every_command_names_the_options_that_were_ignored(world, kind):
    ignored = {"opts": "max_backlog=50,ack_conflation=1s"}
    requested = minimal(kind) | {"a": "processed,completed"}
    lines = world.client().say(**requested, **ignored)
    named = [line.get("ignored") for line in lines if line["c"] == "ack"]
    assert named[0] == ["max_backlog", "ack_conflation"]
    assert named[1] is None or kind.name == "logon"
    assert all("ignored" not in line for line in world.client().say(**requested))


def test_a_session_that_is_taken_up_is_sent_what_was_ignored(world):
    client = world.client()
    (named,) = client.say(c="logon", cid="1", client="a")
    client.say(c="subscribe", t="orders")
    world.executor.sessions.drop(client.session, world.now)
    again = world.client()
    (ack,) = again.say(c="logon", cid="2", session=named["session"], opts="pretty")
    assert (ack["resumed"], ack["ignored"]) == (True, ["pretty"])


@pytest.mark.parametrize("requested", ["", *ACKS, ",".join(ACKS)])
@pytest.mark.parametrize("kind", COMMANDS.values(), ids=lambda kind: kind.name)
def test_every_command_with_a_cid_is_acknowledged(world, kind, requested):
    lines = world.client().say(**minimal(kind), **({"a": requested} if requested else {}))
    acks = [line for line in lines if line["c"] == "ack"]
    assert {(ack["cid"], ack["status"]) for ack in acks} == {("1", "success")}
    assert [ack["a"] for ack in acks] == (requested or "processed").split(",")


@pytest.mark.parametrize("name", [name for name, kind in COMMANDS.items() if "t" in kind.fields])
def test_a_command_without_a_topic_is_sent_that_t_is_missing(world, name):
    for line in ({"c": name, "cid": "1"}, {"c": name, "cid": "1", "t": ""}):
        more = {"d": {"id": 1}} if COMMANDS[name].takes_bodies else {}
        (ack,) = world.client().say(**line, **more)
        answer = f'{name} names no topic; give t, such as "t":"orders"'
        assert (ack["reason"], ack["detail"]) == ("bad request", answer)


def test_a_bad_one_among_frames_of_one_fails_alone(world):
    session = world.client().session
    lines = [publish(1, cid="1"), {"c": "publish", "t": "orders", "d": 5, "cid": "bad"}]
    frames = [json.dumps(line, separators=(",", ":")).encode() for line in (*lines, publish(2))]
    for read in (frames, frames[::2]):
        execute_all(world.executor, session, read_frames(read), world.now)
    world.settle()
    client = world.client()
    client.session = session
    assert [(line["cid"], line["status"]) for line in client.lines()] == [
        ("1", "success"),
        ("bad", "failure"),
        ("1", "success"),
    ]
    assert [len(entry) for entry in world.journal.read(0)] == [1, 1, 2]


def test_what_could_not_be_read_is_answered_and_nothing_is_done(world):
    (line,) = world.client().send(b'{"c":"publish","t":"nobody","d":{"id":1},"cid":"1"}')
    assert (line["status"], line["reason"]) == ("failure", "invalid topic")
    (line,) = world.client().send(b"{")
    assert line["status"] == "failure"
    assert world.engine.seq == 0


def test_commands_are_carried_out_one_a_step(world):
    session = world.executor.sessions.open(LINES, world.now)
    lines = [publish(1), {"c": "heartbeat"}, publish(2)]
    steps = world.executor.carry_out(session, list(read_frame(frame(*lines))), lambda: world.now)
    counts = [len(world.records("orders")) for _ in steps]
    assert counts == [1, 1], "two of them end where another one follows"
    assert len(world.records("orders")) == 2


def test_one_publish_that_came_alone_is_one_step(world):
    session = world.executor.sessions.open(LINES, world.now)
    (read,) = read_frames([json.dumps(publish(1)).encode()])
    steps = world.executor.carry_out(session, [read], lambda: world.now)
    assert list(steps) == []
    assert world.records("orders") == [{"id": 1}]


def test_only_plain_publishes_to_one_topic_that_are_all_taken_are_carried_out_at_once(world):
    client = world.client()

    def at_once(*lines):
        texts = [json.dumps(line, separators=(",", ":")).encode() for line in lines]
        return world.executor.publish_at_once(client.session, read_frames(texts), world.now)

    assert at_once(publish(1), publish(2))
    bad = {"c": "publish", "t": "orders", "d": 5}
    for lines in ([], [{"c": "heartbeat"}], [publish(3), {"c": "heartbeat"}], [publish(3), bad]):
        assert not at_once(*lines)
    assert not at_once(*(publish(id_) for id_ in range(executor.TOGETHER_MAX + 1)))
    assert world.records("orders") == [{"id": 1}, {"id": 2}]
    world.settle()
    assert client.lines() == []


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({"filter": "/id = 1"}, [{"id": 2}]),
        ({"d": {"id": 2}}, [{"id": 1}]),
        ({"filter": "/id > 0"}, []),
    ],
)
def test_exactly_one_selector_says_what_is_deleted(world, selector, left):
    world.publish("orders", {"id": 1}, {"id": 2})
    (line,) = world.client().say(c="sow_delete", t="orders", cid="1", **selector)
    assert line["status"] == "success"
    assert world.records("orders") == left


def test_bodies_that_name_records_are_read_in_pieces(world, monkeypatch):
    monkeypatch.setattr(record_ops, "NAMED_AT_ONCE", 2)
    world.publish("orders", *({"id": n} for n in range(6)))
    bodies = [b'{"id":%d}' % (n % 5) for n in range(10)]
    (line,) = world.client().send(
        b'{"c":"sow_delete","t":"orders","n":10,"cid":"1"}\n' + b"\n".join(bodies)
    )
    assert line["deleted"] == 5
    bodies[7] = b"5"
    (line,) = world.client().send(
        b'{"c":"sow_delete","t":"orders","n":10,"cid":"1"}\n' + b"\n".join(bodies)
    )
    assert "message 7" in line["detail"]
    assert world.records("orders") == [{"id": 5}]


def test_two_selectors_or_none_are_refused(world):
    for selectors in ({}, {"filter": "/id = 1", "keys": "1"}):
        (line,) = world.client().say(c="sow_delete", t="orders", cid="1", **selectors)
        assert line["status"] == "failure"


def known(world, *names):
    """Clients of these users."""
    roles = (Role("all", ("*",), (Allow("orders", read=True),)),)
    role_set = RoleSet(Security(authentication=Authentication(), roles=roles))
    world.executor.go_on_under(role_set)
    for name in names:
        client = world.client()
        shown = object()
        world.executor.sessions.entitle(client.session, role_set.rights(User(name)), shown)
        yield client.session, shown


def test_who_is_found_out_by_users_of_before_is_requested_to_come_again(world):
    client = world.client()
    [*known(world)]
    command = Command("logon", cid="1", token="t")
    command.be_identified(Identified(User("ann"), world.executor.role_set))
    [*known(world)]
    client.session.entitle(world.executor.rights(None))
    world.executor.execute(client.session, command, world.now)
    world.settle()
    assert client.lines()[-1]["reason"] == "busy", "he is not refused for good"
    assert client.session.rights.user is None


def test_frames_that_are_carried_out_together_are_published_by_who_may_write_alone(world):
    frames = [frame(publish(number, cid=str(number))) for number in (1, 2)]
    for may, stored in ((False, 0), (True, 2)):
        client = guarded(world, rights(reading(write=may)))
        run_to_completion(
            world.executor.carry_out(client.session, read_frames(frames), lambda: world.now)
        )
        world.settle()
        reasons = {line.get("reason") for line in client.lines()}
        assert reasons == ({None} if may else {"not entitled"})
        assert len(world.records("orders")) == stored


def test_who_loses_his_rights_while_his_messages_are_read_publishes_none(world, monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    client = guarded(world, rights(reading(write=True)))
    bodies = b"\n".join(b'{"id":%d}' % n for n in range(5))
    line = b'{"c":"publish","t":"orders","n":5,"cid":"1"}\n'
    steps = world.executor.carry_out(
        client.session, list(read_frame(line + bodies)), lambda: world.now
    )
    next(steps)
    client.session.entitle(rights(reading()))
    run_to_completion(steps)
    world.settle()
    assert [line["reason"] for line in client.lines()] == ["busy"]
    assert world.records("orders") == []


@pytest.mark.parametrize("named", [{"filter": "/id > 0"}, {"d": {"id": 1}}], ids=["filter", "body"])
def test_who_loses_his_rights_while_records_are_found_deletes_none(world, monkeypatch, named):
    world.publish("orders", {"id": 1}, {"id": 2})
    client = guarded(world, rights(reading(delete=True)))
    finish_before = world.engine.atomic.finish_before

    def waiting(name):
        yield from finish_before(name)
        client.session.entitle(rights(reading()))

    monkeypatch.setattr(world.engine.atomic, "finish_before", waiting)
    answer = client.say(c="sow_delete", t="orders", cid="1", **named)
    assert [line["reason"] for line in answer] == ["busy"]
    assert len(world.records("orders")) == 2


def test_a_session_that_is_taken_up_is_where_its_client_is_now(world):
    client = world.client()
    name = client.say(c="logon", client="me", cid="1")[-1]["session"]
    client.say(c="subscribe", t="orders")
    session = client.session
    session.address = "192.0.2.7"
    world.executor.sessions.drop(session, world.now)
    again = world.client()
    again.session.address = "2001:db8::8"
    again.execute(json.dumps({"c": "logon", "session": name}).encode())
    assert again.session is session
    assert session.address == "2001:db8::8"
