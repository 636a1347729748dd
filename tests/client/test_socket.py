"""One WebSocket: logging on, commands, frames of lines, and how it ends."""

import asyncio

import aiohttp
import msgspec
import orjson
import pytest

from sow.client import Retry
from sow.client.connector import ClientAuth
from sow.client.errors import ClosedByServer, Disconnected, Unreachable
from sow.client.socket import GIVEN_UP, Message, Socket, Sockets, framed, read_lines
from sow.core.addresses import Addresses
from sow.errors import ClientError, NotPrimary, SowError, Unauthenticated
from sow.messages.json_texts import json_text

ACK = {"c": "ack", "cid": "1", "a": "processed", "status": "success", "session": "s-1"}
LOST = {"c": "notice", "reason": "upstream lost"}


class WebSocket:
    """aiohttp's side: answers each `receive` with the next of these frames, keeps what is sent."""

    def __init__(self, *frames):
        self.frames, self.sent, self.closed = list(frames), [], False

    async def receive(self):
        frame = self.frames.pop(0)
        if isinstance(frame, aiohttp.WSMessage):
            return frame
        lines = frame if isinstance(frame, list) else [frame]
        return aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, b"\n".join(map(orjson.dumps, lines)), None)

    async def send_bytes(self, frame):
        self.sent.append(frame)

    async def close(self):
        self.closed = True


class Network:
    """What a client connects by."""

    def __init__(self, *frames):
        self.socket, self.requested = WebSocket(*frames), None

    async def ws_connect(self, url, **settings):
        self.requested = (url, settings)
        return self.socket


def connected(network, **more):
    return asyncio.run(Socket.connect(network, "http://there", "me", **more))


def ended(data, extra=None):
    return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSE, data, extra)


def test_logging_on_says_who_it_is_and_learns_the_session():
    network = Network(ACK)
    socket = connected(network)
    assert network.requested[0] == "http://there/v1/ws"
    assert orjson.loads(network.socket.sent[0]) == {"c": "logon", "cid": "1", "client": "me"}
    assert (socket.session, socket.resumed, socket.reason) == ("s-1", False, "")
    assert socket.next_cid() == "2"


@pytest.mark.parametrize("frame", [LOST, [LOST, {**LOST, "reason": "upstream back"}]])
def test_what_a_chained_server_says_of_its_upstream_may_come_before_the_ack(frame):
    socket = connected(Network(frame, frame, ACK))
    assert socket.session == "s-1"


def test_a_refusal_may_come_with_what_is_said_of_its_upstream():
    refused = {"c": "ack", "cid": "1", "status": "failure", "reason": "upstream lost"}
    for frame in ([refused, LOST], [LOST, refused]):
        with pytest.raises(SowError) as error:
            connected(Network(frame))
        assert error.value.reason == "upstream lost"


def test_a_session_is_taken_up_after_what_was_seen_of_it():
    network = Network({**ACK, "resumed": False, "reason": "expired"})
    socket = connected(network, session="s-0", seen=0)
    sent = orjson.loads(network.socket.sent[0])
    assert (sent["session"], sent["seen"]) == ("s-0", 0)
    assert (socket.resumed, socket.reason) == (False, "expired")


def test_a_logon_that_is_refused_leaves_no_connection():
    network = Network({**ACK, "status": "failure", "reason": "bad request", "detail": "no"})
    with pytest.raises(ClientError, match="no"):
        connected(network)
    assert network.socket.closed


def test_all_lines_of_a_frame_come_together():
    socket = Socket("http://there", WebSocket([{"c": "sow", "k": "1"}, {"c": "group_end"}]))
    assert [line.c for line in asyncio.run(socket.receive())] == ["sow", "group_end"]


@pytest.mark.parametrize(
    ("frame", "kind", "says"),
    [
        ([{"c": "p"}, {"c": "close", "reason": "too slow"}], ClosedByServer, "too slow"),
        (ended(GIVEN_UP), ClosedByServer, "closed the connection"),
        (ended(1001, "server stops"), Disconnected, "server stops"),
        (ended(None), Disconnected, "no reason given"),
    ],
)
def test_an_end_says_why_and_whether_it_is_for_good(frame, kind, says):
    socket = Socket("http://there", WebSocket(frame))
    with pytest.raises(kind, match=says) as caught:
        asyncio.run(socket.receive())
    assert type(caught.value) is kind


def test_a_command_leaves_out_what_is_none():
    raw = WebSocket()
    socket = Socket("http://there", raw)
    assert asyncio.run(socket.command("subscribe", t="orders", filter=None, n=0)) == "1"
    assert orjson.loads(raw.sent[0]) == {"c": "subscribe", "cid": "1", "t": "orders", "n": 0}


def test_a_frame_is_a_command_and_its_bodies_as_they_are():
    frame = framed({"c": "publish", "k": None, "n": 2}, [b"\xff", b'{"a": 1}'])
    assert frame == b'{"c":"publish","n":2}\n\xff\n{"a": 1}'


def test_a_send_that_breaks_names_the_server():
    class Broken(WebSocket):
        async def send_bytes(self, _frame):
            raise ConnectionResetError("cut")

    with pytest.raises(Disconnected, match="http://there was lost: cut"):
        asyncio.run(Socket("http://there", Broken()).send(b"x"))


def waits(chance=lambda: 0.0, **settings):
    """The pauses before each attempt, and the seconds reported to each."""
    paused = []

    async def sleep(seconds):
        paused.append(seconds)

    async def work():
        retry = Retry(sleep=sleep, chance=chance, **settings)
        return [waited async for waited in retry.attempts()]

    reported = asyncio.run(work())
    return paused, reported


def test_waits_grow_and_end():
    paused, reported = waits(first_s=1, longest_s=4, give_up_s=12)
    assert paused == [1, 2, 4, 4, 4]
    assert reported == [1, 3, 7, 11, 15]


def test_no_time_is_no_attempt():
    assert waits(give_up_s=0) == ([], [])


@pytest.mark.parametrize(("chance", "share"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_chance_takes_away_half_of_a_wait_at_most(chance, share):
    paused, _ = waits(lambda: chance, first_s=8, longest_s=8, give_up_s=8)
    assert paused[0] == 8 * share


def test_a_minute_is_a_dozen_or_two_attempts_as_it_comes():
    assert 10 < len(waits()[0]) < 25


A, B = "http://a:1", "http://b:1"
REFUSED = aiohttp.ClientConnectorError(None, OSError(111, "refused"))


class Networks:
    """A network in which each address answers with these frames, or an error."""

    def __init__(self, answers):
        self.answers, self.requested, self.sockets = answers, [], {}

    async def ws_connect(self, url, **_settings):
        url = url.removesuffix("/v1/ws")
        self.requested.append(url)
        answer = self.answers[url]
        if isinstance(answer, Exception):
            raise answer
        frames = answer if type(answer) is tuple else (answer,)
        self.sockets[url] = WebSocket(*frames)
        return self.sockets[url]


def sockets_of(answers, *urls):
    network = Networks(answers)
    return network, Sockets(Addresses(urls or [A, B]), lambda: network, ClientAuth(), "me")


def test_the_first_address_that_answers_is_used_and_kept():
    network, sockets = sockets_of({A: REFUSED, B: ACK})
    for _ in range(2):
        assert asyncio.run(sockets.connect()).url == B
    assert network.requested == [A, B, B]


def test_a_session_is_looked_for_where_it_was_first():
    network, sockets = sockets_of({A: ACK, B: ACK})
    asyncio.run(sockets.connect("s-0", 4))
    assert network.requested == [A]
    sent = orjson.loads(network.sockets[A].sent[0])
    assert (sent["session"], sent["seen"]) == ("s-0", 4)


def test_a_name_is_owned_at_the_primary():
    refused = {**ACK, "status": "failure", "reason": "not primary", "primary": B}
    network, sockets = sockets_of({A: refused, B: {**ACK, "sequence": 9}})
    socket = asyncio.run(sockets.connect_as("feed"))
    assert (socket.url, socket.sequence, sockets.addresses.current) == (B, 9, A)
    assert network.sockets[A].closed
    assert orjson.loads(network.sockets[B].sent[0])["sequence"] is True


def test_who_has_refused_is_not_asked_again_when_the_primary_does_not_answer():
    network, sockets = sockets_of({A: ACK, B: REFUSED}, A)
    refusal = NotPrimary("this is a follower", primary=B)
    with pytest.raises(Unreachable, match=r"^no server answers at http://b:1"):
        asyncio.run(sockets.after(refusal, A))
    assert network.requested == [B]


def test_a_refusal_of_another_kind_is_no_reason_to_go_elsewhere():
    refused = {**ACK, "status": "failure", "reason": "auth failure", "detail": "who is it"}
    network, sockets = sockets_of({A: refused, B: ACK})
    with pytest.raises(Unauthenticated, match="who is it"):
        asyncio.run(sockets.connect())
    assert network.requested == [A]


def test_what_speaks_against_each_address_is_said():
    _, sockets = sockets_of({A: REFUSED, B: ended(1001, "server stops")})
    with pytest.raises(Unreachable) as caught:
        asyncio.run(sockets.connect())
    assert caught.value.detail == (
        "none of 2 addresses can be used: no server answers at http://a:1 (connection refused); "
        "start one with sow serve, or give the address of one (--url or SOW_URL; url in a "
        "program); the server at http://b:1 closed the connection: server stops"
    )
    assert isinstance(caught.value.__cause__, aiohttp.ClientConnectorError)


def test_a_record_line_is_typed():
    (line,) = read_lines(b'{"c":"p","s":"f1","t":"orders","k":"7","d":{"px":1.10},"bm":"9"}')
    assert (line.c, line.s, line.t, line.k, line.bm) == ("p", "f1", "orders", "7", "9")
    assert line.body == b'{"px":1.10}'
    assert line.document() == {"px": 1.1}


def test_a_binary_body_is_bytes():
    (line,) = read_lines(b'{"c":"p","d":"AAEC","enc":"base64"}')
    assert line.body == line.document() == b"\x00\x01\x02"


def test_a_text_body_is_text():
    (line,) = read_lines(b'{"c":"p","d":"a\\"b"}')
    assert (line.body, line.document()) == (b'a"b', 'a"b')


def test_a_field_of_a_later_version_is_passed_over():
    assert read_lines(b'{"c":"heartbeat","new":[1]}')[0].c == "heartbeat"


def test_an_ack_names_the_options_that_were_ignored():
    named, plain = read_lines(b'{"c":"ack","ignored":["max_backlog"]}\n{"c":"ack"}')
    assert (named.ignored, plain.ignored) == (("max_backlog",), ())


def test_a_failure_ack_is_an_error():
    (line,) = read_lines(
        b'{"c":"ack","cid":"1","status":"failure","reason":"bad filter","detail":"x","position":4}'
    )
    assert line.failed
    assert line.error().position == 4


def test_a_number_that_no_double_holds_is_a_float_that_knows_its_text():
    line = b'{"px":12345678901234567890.1234567890,"n":9007199254740993,"near":0.1,"m":1.10}'
    found = Message("p", d=msgspec.Raw(line)).exact_document()
    assert found == msgspec.json.decode(line)
    assert (found["px"].text, type(found["near"]), type(found["m"])) == (
        "12345678901234567890.1234567890",
        float,
        float,
    )
    assert json_text(found).startswith(b'{"px":12345678901234567890.1234567890,')
    assert Message("p", d=msgspec.Raw(b'"AAE="'), enc="base64").exact_document() == b"\x00\x01"
