"""Bodies are read within their memory, inflated in small steps, and only sent when wanted."""

import asyncio
import gzip
import json
import zlib
from types import SimpleNamespace

import pytest
from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from sow.core.definitions import Limits
from sow.errors import Busy, ClientError, TooLarge
from sow.server.http.body_reading import (
    EXPECTED,
    FEED_BYTES,
    FREE_BYTES,
    HELD,
    MEMBERS_MAX,
    STEP_BYTES,
    ExpectationFailed,
    Requests,
    TooSlow,
    check_expectation,
    client_key,
    end_unmet,
    inflater,
    send_continue,
    with_deferred_expectations,
)
from sow.server.http.request_origin import CLIENT_ADDRESS
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


TEXT = b'{"id":1,"text":"' + b"abc" * 100_000 + b'"}'


def inflated(encoding, data, cut=1000):
    stream, made = inflater(encoding), []
    for at in range(0, len(data), cut):
        made += stream.feed(data[at : at + cut])
    made += stream.finish()
    assert all(len(piece) <= STEP_BYTES for piece in made)
    return b"".join(made)


def raw(data):
    made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return made.compress(data) + made.flush()


@pytest.mark.parametrize("cut", [1, 1000, 10**9])
def test_every_encoding_gives_the_body(cut):
    assert inflated("gzip", gzip.compress(TEXT), cut) == TEXT
    assert inflated("X-GZIP", gzip.compress(TEXT) + gzip.compress(TEXT), cut) == TEXT * 2
    assert inflated("deflate", zlib.compress(TEXT), cut) == TEXT
    assert inflated("deflate", raw(TEXT), cut) == TEXT
    assert inflated("gzip", b"") == b""
    assert inflater("identity") is inflater("") is None


def test_a_bomb_is_made_in_steps_that_may_be_stopped():
    bomb = gzip.compress(b"a" * (64 << 20))
    steps = inflater("gzip").feed(bomb)
    assert sum(len(next(steps)) for _ in range(3)) == 3 * STEP_BYTES


def test_members_that_stand_for_nothing_are_steps_and_end(monkeypatch):
    made, begin = [], zlib.decompressobj

    class Counted:
        def __init__(self, bits):
            self.stream = begin(bits)

        def decompress(self, data, size_max):
            made.append(len(data))
            return self.stream.decompress(data, size_max)

        def __getattr__(self, name):
            return getattr(self.stream, name)

    monkeypatch.setattr(zlib, "decompressobj", Counted)
    steps = inflater("gzip").feed(gzip.compress(b"") * (MEMBERS_MAX + 1))
    for count in range(1, 101):
        assert next(steps) == b""
        assert len(made) == count, "each is a step"
    assert max(made) <= FEED_BYTES, "what stands behind it is not copied as a whole"
    with pytest.raises(ClientError, match="more than 10000 members; compress it as one"):
        list(steps)


@pytest.mark.parametrize("data", [b"junk", gzip.compress(TEXT)[:-9], gzip.compress(TEXT) + b"junk"])
def test_what_is_no_gzip_is_refused_with_a_sentence(data):
    with pytest.raises(ClientError, match="the body cannot be read: it is not gzip"):
        inflated("gzip", data)


def test_an_encoding_that_is_not_known_is_refused_by_name():
    with pytest.raises(ClientError, match="content encoding br is not understood") as refused:
        inflater("br")
    assert refused.value.status == 415


def made(expect=None, version=HttpVersion11):
    """A request as aiohttp is to see it."""
    headers = CIMultiDict({"Host": "localhost"} | ({} if expect is None else {"Expect": expect}))
    message = RawRequestMessage(
        "POST", "/", version, CIMultiDictProxy(headers), (), False, None, False, False, URL("/")
    )

    def make(message):
        return request_of("POST", headers=message.headers, payload=object())

    return with_deferred_expectations(make)(message)


async def handler(_request):
    return web.Response()


def test_what_a_request_expects_is_kept_from_aiohttp():
    request = made("100-continue")
    assert request[EXPECTED] == "100-continue"
    assert list(request.headers) == ["Host"]
    assert EXPECTED not in made()
    assert EXPECTED not in made("")
    assert EXPECTED not in made("100-continue", HttpVersion10)


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue", " 100-CONTINUE "])
@stepped
async def test_a_word_is_waited_for_until_the_body_is_read(expect):
    request = made(expect)
    await check_expectation(request, handler)
    assert request.writer.write.call_count == 0
    await send_continue(request)
    await send_continue(request)
    request.writer.write.assert_called_once_with(b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.mark.parametrize("expect", ["200-ok", "100-continue, more", "x" * 5000])
@stepped
async def test_another_expectation_is_refused(expect):
    with pytest.raises(ExpectationFailed) as refused:
        await check_expectation(made(expect), handler)
    assert refused.value.status == 417
    assert len(json.dumps(refused.value.detail)) < 400


@stepped
async def test_who_expects_nothing_is_sent_nothing():
    request = made()
    await check_expectation(request, handler)
    await send_continue(request)
    assert request.writer.write.call_count == 0


@pytest.mark.parametrize(("reads", "closes"), [(False, True), (True, False)])
@stepped
async def test_an_answer_before_the_body_is_the_last_one(reads, closes):
    request, response = made("100-continue"), web.Response()
    if reads:
        await send_continue(request)
    await end_unmet(request, response)
    assert ("Connection" in response.headers) == closes
    assert (response.keep_alive is False) == closes
