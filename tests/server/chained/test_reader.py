"""Commands of a chained server's clients: passed on in order, and refused in upstream's words."""

import asyncio

import pytest

from sow.protocol.wire import BODIES_MAX, LineSplitter
from sow.server.chained import reader
from sow.server.chained.link import Link
from sow.server.chained.reader import pieces
from sow.server.chained.shared import Shares
from sow.server.chained.shared_subscription import SharedSubscription
from sow.streaming.sessions import SESSION_FAILED
from tests.edge.serving import records
from tests.server.chained.chains import ALL, begin


def cut(frame):
    found = [one for one in pieces(LineSplitter(frame)) if one is not None]
    return [(head.get("c"), piece) for head, piece in found]


@pytest.mark.parametrize("count", ['"2"', "2.0", "true", "-1", str(BODIES_MAX + 1), "[2]"])
def test_what_may_be_bodies_is_no_command(pair, count):
    line = f'{{"c":"publish","t":"orders","cid":"1","n":{count}}}'.encode()
    frame = line + b'\n{"c":"sow_delete","t":"orders","filter":"1=1"}\n{"id":2}'
    assert cut(frame) == [("publish", line + b"\n{}")]
    pair.upstream.publish("orders", {"id": 1})
    with pair.chained.socket() as one, pair.upstream.socket() as other:
        for socket in (one, other):
            socket.send_frame(frame)
        assert one.settled() == other.settled()
    assert pair.chained.records("orders") == [{"id": 1}]


def test_a_frame_of_nonsense_is_refused_as_upstream_refuses_it(pair):
    with pair.chained.socket() as one, pair.upstream.socket() as other:
        for socket in (one, other):
            socket.send_frame(b"nonsense\n" * 5_000)
        assert one.settled() == other.settled()


@pytest.mark.parametrize(
    "line",
    [
        b'{"c":[]}',
        b'{"c":{},"cid":"1"}',
        b'{"c":7,"cid":1}',
        b'{"c":"flush","cid":[]}',
        b'{"c":"flush","cid":1.5}',
        b'{"c":"flush","cid":true,"a":"processed"}',
        b'{"c":"publish","t":"orders","cid":"1","d":{"id":1},"a":5}',
        b'{"c":"publish","t":"orders","cid":"1","d":{"id":1},"a":{"processed":1}}',
        b'{"c":"publish","t":"orders","cid":"1","d":{"id":1},"a":[5]}',
        b'{"c":"publish","t":"orders","cid":"%b","d":{"id":1}}' % (b"x" * 200),
        b'{"c":"sow","t":["orders"],"cid":"1"}',
        b'{"c":"subscribe","t":"orders","cid":"1","n":1}\n{"id":1}',
    ],
)
def test_a_line_of_wrong_types_is_refused_and_the_next_is_carried_out(pair, line):
    with pair.chained.socket() as one, pair.upstream.socket() as other:
        for socket in (one, other):
            socket.send_frame(line)
        assert one.settled() == other.settled()
        # What waits for answers has all of them.
        assert begin(one, ALL, "2")[-1]["status"] == "success"


@pytest.mark.parametrize(
    "command",
    [
        {"t": "orders", "bm": "0", "opts": "pause"},
        {"t": "orders", "bm": "0", "opts": "rate=1"},
        {"s": "f1", "opts": "resume"},
    ],
)
def test_replays_are_neither_paused_nor_held_to_a_rate_here(pair, command):
    with pair.chained.socket() as one:
        one.send({"c": "subscribe", "cid": "1", **command})
        (ack,) = one.settled()
        assert (ack["status"], ack["reason"]) == ("failure", "invalid options")
        assert "connect to the upstream" in ack["detail"]


def test_acks_reach_a_client_that_gives_all_commands_one_cid(pair):
    commands = [
        {"c": "publish", "t": "orders", "d": {"id": 1}, "a": "processed,persisted"},
        {"c": "publish", "t": "orders", "d": {"x": 1}, "a": "processed,persisted"},
        {"c": "publish", "t": "orders", "d": {"id": 2}, "a": "processed,persisted"},
    ]
    with pair.chained.socket() as one:
        one.send(*({"cid": "1", **command} for command in commands))
        acks = one.settled()
        assert sorted(ack["status"] for ack in acks) == ["failure", *["success"] * 4]
        assert begin(one, ALL, "2")[-1]["status"] == "success"


def test_a_long_frame_lets_others_have_their_turns(pair):
    steps, loop = [], pair.chained.loop

    async def watch():
        for _ in range(100):
            began_s = loop.time()
            await asyncio.sleep(0)
            steps.append(loop.time() - began_s)

    with pair.chained.socket() as one:
        one.send_frame(
            b'{"c":"heartbeat"}\n' * 2_000 + b'{"c":"flush","cid":"end"}' + b"\n" * 10**6
        )
        pair.chained.wait(watch())
        one.until(c="ack", cid="end")
    assert len(steps) == 100


def fail(*_of):
    raise ZeroDivisionError("planted")


def note_planted(pair):
    """It was logged; by both, since they are one process."""
    for server in (pair.chained, pair.upstream):
        assert len(server.errors) == 1
        assert "planted" in server.errors.pop()


@pytest.mark.parametrize(
    ("failing", "name"), [(reader, "share_key_of"), (SharedSubscription, "first_frame")]
)
def test_an_error_of_the_server_ends_its_session_and_is_logged(pair, monkeypatch, failing, name):
    with pair.chained.socket() as other, pair.chained.socket() as one:
        begin(other, {**ALL, "filter": "/x > 7"})
        with monkeypatch.context() as planted:
            planted.setattr(failing, name, fail)
            one.send({**ALL, "cid": "1"})
            assert one.until(c="close")[-1]["reason"] == SESSION_FAILED
        note_planted(pair)
        begin(other, {**ALL, "filter": "/x > 8"}, "2")


def test_an_error_of_the_server_about_a_loss_ends_the_sessions_that_follow(pair, monkeypatch):
    with pair.chained.socket() as one:
        begin(one, ALL)
        with monkeypatch.context() as planted:
            planted.setattr(Shares, "on_lost", fail)
            pair.upstream.call(pair.relay.drop)
            assert one.until(c="close")[-1]["reason"] == "upstream lost"
    note_planted(pair)
    with pair.chained.socket() as again:
        begin(again, ALL)


def test_who_waits_for_an_upstream_that_answers_nonsense_is_refused(pair, monkeypatch):
    async def nonsense(_link, _socket):
        return {"c": "ack", "status": "success"}

    with pair.chained.socket() as one:
        with monkeypatch.context() as planted:
            planted.setattr(Link, "_ack", nonsense)
            refused = one.ask(ALL)[-1]
        assert (refused["status"], refused["reason"]) == ("failure", "upstream lost")
        begin(one, ALL, "2")


def test_a_frame_is_cut_into_commands_with_their_bodies():
    frame = b'{"c":"publish","n":2}\n{"n":9}\nbody\n\n{"c":"flush"}\nnonsense'
    assert cut(frame) == [
        ("publish", b'{"c":"publish","n":2}\n{"n":9}\nbody'),
        ("flush", b'{"c":"flush"}'),
        (None, b"nonsense"),
    ]


def test_commands_that_are_not_shared_pass_through(pair):
    pair.upstream.publish("orders", {"id": 1, "x": 1}, {"id": 2, "x": 2})
    with pair.chained.socket() as one:
        top = {**ALL, "order_by": "/x DESC", "top_n": 1, "opts": "live"}
        assert [line["d"]["id"] for line in begin(one, top) if line["c"] == "sow"] == [2]
        pair.upstream.publish("orders", {"id": 3, "x": 3})
        assert [line["c"] for line in one.until(c="p")] == ["oof", "p"]
        groups = {**ALL, "opts": "projection=[COUNT(/id) AS /n],grouping=[/none]"}
        assert [line["d"] for line in begin(one, groups, "2") if line["c"] == "sow"] == [{"n": 3}]
        past = one.ask({"c": "subscribe", "t": "orders", "bm": "0"}, cid="3")
        assert past[-1]["status"] == "success"
        assert [one.until(c="p")[-1]["d"]["id"] for _ in range(3)] == [1, 2, 3]
        copies = begin(one, {**ALL, "t": "orders-C"}, "4")
        assert copies[-1]["status"] == "success"
        assert one.ask({"c": "unsubscribe", "s": "all"}, cid="5")[-1]["status"] == "success"


def test_what_upstream_refuses_is_refused_in_its_words(pair):
    commands = [
        {"c": "sow_and_subscribe", "t": "orders", "filter": "/id >"},
        {"c": "subscribe", "t": "nix"},
        {**ALL, "order_by": "/x", "top_n": 5_000, "opts": "live"},
        {**ALL, "opts": "conflation=1s,conflation_key=[/x],oof"},
        {**ALL, "opts": "grouping=[/x]"},
        {"c": "publish", "t": "orders", "d": {"x": 1}},
        {"c": "sow", "t": "orders", "filter": "("},
        {"c": "unsubscribe", "s": "nothing"},
        {"c": "nonsense"},
    ]
    with pair.chained.socket() as one, pair.upstream.socket() as other:
        for command in commands:
            found = [socket.ask(command)[-1] for socket in (one, other)]
            assert found[0] == found[1]


def test_what_was_published_is_seen_by_what_follows(pair):
    with pair.chained.socket() as one:
        for number in range(20):
            one.send({"c": "publish", "t": "orders", "d": {"id": number}, "cid": f"p{number}"})
            lines = one.ask({"c": "sow", "t": "orders", "filter": f"/id = {number}"})
            lines += one.until(c="group_end")
            assert [line["d"]["id"] for line in lines if line["c"] == "sow"] == [number]


def test_many_bodies_are_passed_on_with_one_ack(pair):
    bodies = [f'{{"id": {number},  "x": 1.50}}' for number in range(500)]
    with pair.chained.socket() as one:
        ack = one.ask({"c": "publish", "t": "orders", "n": 500}, *bodies)[-1]
        assert ack["status"] == "success"
    assert pair.chained.get(records("orders", filter="/id = 7")).body == b'[{"id": 7,  "x": 1.50}]'


def test_options_that_are_ignored_are_named(pair):
    commands = [
        {**ALL, "opts": "max_backlog=3"},
        {**ALL, "opts": "max_backlog=3,live", "top_n": 3},
        {"c": "subscribe", "t": "orders", "opts": "max_backlog=3"},
    ]
    with pair.chained.socket() as one:
        for at, command in enumerate(commands):
            one.send({**command, "cid": f"{at}"})
            assert one.until(c="ack", cid=f"{at}")[-1]["ignored"] == ["max_backlog"]


def test_what_may_not_report_departures_may_be_conflated(pair):
    wanted = {**ALL, "filter": "UNIX_TIMESTAMP() > 5", "opts": "conflation=20ms"}
    with pair.chained.socket() as one:
        assert begin(one, wanted)[-1]["status"] == "success"
        pair.upstream.publish("orders", {"id": 1})
        assert one.until(c="p")[-1]["d"] == {"id": 1}
