"""How bodies are read: in pieces, as there is room, and for as long as they come."""

import asyncio
import gzip
from types import SimpleNamespace

import pytest

from sow.core.definitions import Limits
from sow.errors import Busy, ClientError, TooLarge
from sow.server.http.middleware import CLIENT_ADDRESS
from sow.server.http.read_backpressure import FREE_BYTES
from sow.server.http.request_memory import HELD, Requests, TooSlow, client_key
from tests.server.stand_ins import request_of, stepped

LIMITS = Limits(frame_bytes_max=100_000, request_bytes_max=1_000_000, idle_timeout_us=60_000_000)
CRAMPED = Limits(frame_bytes_max=100_000, request_bytes_max=160_000)


class Content:
    """A body that comes in pieces, each after so many seconds."""

    def __init__(self, *pieces, every_s=0.0):
        self.pieces, self.every_s = list(pieces), every_s

    def at_eof(self):
        return not self.pieces

    async def readany(self):
        await asyncio.sleep(self.every_s)
        return self.pieces.pop(0)


def request(*pieces, every_s=0.0, client="192.0.2.7", headers=()):
    made = request_of("POST", headers=headers, payload=Content(*pieces, every_s=every_s))
    made[CLIENT_ADDRESS] = client
    return made


@stepped
async def test_a_body_is_put_together_and_held_until_its_request_is_answered():
    requests = Requests(lambda: LIMITS)
    held = []

    async def handler(requested):
        body = await requests.read(requested)
        held.append(requests.budget.used)
        return body

    assert await requests.hold(request(b"one ", b"two"), handler) == b"one two"
    assert (held, requests.budget.used) == ([7], 0)


@stepped
async def test_what_went_wrong_gives_back_what_was_held():
    requests = Requests(lambda: LIMITS)

    async def handler(requested):
        await requests.read(requested)
        raise KeyError

    with pytest.raises(KeyError):
        await requests.hold(request(b"x" * 1000), handler)
    assert requests.budget.used == 0


@stepped
async def test_a_body_over_the_limit_is_refused_at_its_header_or_on_the_way():
    requests = Requests(lambda: LIMITS)
    declared = request(b"", headers={"Content-Length": "100001"})
    for requested in (declared, request(b"x" * 60_000, b"x" * 60_000)):
        with pytest.raises(TooLarge, match=r"limit of 100000 bytes \(Limits/FrameSize\)"):
            await requests.read(requested)


@stepped
async def test_a_compressed_body_counts_as_what_it_stands_for():
    requests = Requests(lambda: LIMITS)
    zipped = {"Content-Encoding": "gzip"}
    small = request(gzip.compress(b"y" * 10_000), headers=zipped)
    assert await requests.read(small) == b"y" * 10_000
    with pytest.raises(TooLarge):
        await requests.read(request(gzip.compress(b"y" * 200_000), headers=zipped))
    cut = gzip.compress(b"y" * 10_000)[:-8]
    with pytest.raises(ClientError, match="it ends too early"):
        await requests.read(request(cut, headers=zipped))


@stepped
async def test_a_body_that_stands_for_nothing_ends_at_the_limit_too():
    requests = Requests(lambda: LIMITS)
    nothing = b"\x00\x00\x00\xff\xff" * 12_000  # blocks of no bytes, and none is the last
    with pytest.raises(TooLarge):
        await requests.read(request(nothing, nothing, headers={"Content-Encoding": "deflate"}))


@stepped
async def test_where_there_is_no_room_small_bodies_still_are_taken():
    requests = Requests(lambda: CRAMPED)
    first = request(b"x" * 39_000)
    await requests.read(first)
    refused = request(b"x" * 39_000)
    with pytest.raises(Busy, match="Limits/RequestMemory"):
        await requests.read(refused)
    assert await requests.read(request(b"x" * FREE_BYTES)) == b"x" * FREE_BYTES
    other = request(b"x" * 39_000, client="192.0.2.8")
    assert len(await requests.read(other)) == 39_000, "a quarter is each client's"
    first[HELD].release()
    assert len(await requests.read(request(b"x" * 30_000))) == 30_000


@stepped
async def test_a_body_that_does_not_come_is_given_up_after_the_idle_time():
    requests, loop = Requests(lambda: LIMITS), asyncio.get_running_loop()
    with pytest.raises(TooSlow, match="nothing for 60 s") as caught:
        await requests.read(request(b"x", every_s=1000))
    assert (round(loop.time()), caught.value.status) == (60, 408)


@stepped
async def test_a_body_that_comes_slowly_but_steadily_is_waited_for():
    requests = Requests(lambda: LIMITS)
    pieces = [b"x" * 1600] * 60
    assert len(await requests.read(request(*pieces, every_s=0.1))) == 96_000
    with pytest.raises(TooSlow):
        await requests.read(request(*[b"x"] * 100, every_s=1))


def test_programs_of_this_machine_count_for_their_connection_others_for_their_address():
    far, near, gone = (SimpleNamespace(protocol=object()) for _ in range(3))
    for requested, address in ((far, "192.0.2.7"), (near, "127.0.0.1"), (gone, "")):
        requested.get = {CLIENT_ADDRESS: address}.get
    assert client_key(far) == "192.0.2.7"
    assert client_key(near) is near.protocol
    assert client_key(gone) is gone.protocol
