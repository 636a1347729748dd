"""One WebSocket: logging on, commands, frames of lines, and how it ends."""

import asyncio

import aiohttp
import orjson
import pytest

from sow.client import Retry
from sow.client.errors import ClosedByServer, Disconnected
from sow.client.socket import GIVEN_UP, Socket, framed
from sow.errors import ClientError

ACK = {"c": "ack", "cid": "1", "a": "processed", "status": "success", "session": "s-1"}


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
