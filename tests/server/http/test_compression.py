"""Compression: an answer has the coding that its client prefers, and its bytes stay the same."""

import gc
import gzip
import json
import random

import pyarrow as pa
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import ClientError
from sow.server.http import negotiation
from sow.server.http.chunked_response import write_pieces
from sow.server.http.negotiation import (
    CODED_BYTES,
    CODING,
    Encoder,
    NotAcceptable,
    coding_of,
    is_known,
)
from sow.server.http.route import Route
from tests.cases import all_cases
from tests.server.stand_ins import Served, World, request_of, stepped


def unpacked(coding, packed):
    if coding == "gzip":
        return gzip.decompress(packed)
    return pa.CompressedInputStream(pa.BufferReader(packed), coding).read()


def chosen(*lines):
    return coding_of(request_of(headers=[("Accept-Encoding", line) for line in lines]))


@all_cases(
    ("lines", "coding"),
    [
        ([], "identity"),
        ([""], "identity"),
        (["gzip"], "gzip"),
        (["x-gzip"], "gzip"),
        (["GZip ; Q=0.5"], "gzip"),
        (["gzip, deflate, br, zstd"], "zstd"),
        (["gzip, zstd;q=0.9"], "gzip"),
        (["gzip;q=0.5", "zstd;q=0.8"], "zstd"),
        (["br", ", ,"], "identity"),
        (["identity"], "identity"),
        (["identity, gzip"], "gzip"),
        (["identity;q=0.9, gzip;q=0.5"], "identity"),
        (["gzip;q=0"], "identity"),
        (["gzip;q=0, identity;q=0, *"], "zstd"),
        (["zstd;q=0, identity;q=0, *;q=0.1"], "gzip"),
        (["*"], "identity"),
        (["*;q=0, gzip"], "gzip"),
        (["*;q=0, identity;q=0.1"], "identity"),
        (["gzip;q=0, gzip"], "identity"),
        # What cannot be read asks for nothing.
        (["gzip;q=2"], "identity"),
        (["gzip;q="], "identity"),
        (["gzip;q=nan, zstd"], "zstd"),
        (["gzip;level=9"], "identity"),
        (["g zip, \x00, \xff, ;;;, q=1"], "identity"),
    ],
)
def test_the_coding_that_is_liked_best(lines, coding):
    assert chosen(*lines) == coding


@pytest.mark.parametrize(
    "line", ["identity;q=0", "*;q=0", "br, *;q=0", "gzip;q=0, zstd;q=0, identity;q=0, *"]
)
def test_where_none_will_do_it_is_said(line):
    with pytest.raises(NotAcceptable, match="accept zstd, gzip, identity"):
        chosen(line)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=60))
def test_whatever_is_requested_is_chosen_or_refused(line):
    try:
        assert chosen(line) in ("zstd", "gzip", "identity")
    except NotAcceptable:
        assert "0" in line


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@given(st.lists(st.binary(max_size=50)))
def test_pieces_come_back_as_one(coding, pieces):
    packed = b"".join(Encoder(coding).pieces(pieces))
    assert unpacked(coding, packed) == b"".join(pieces)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_long_piece_is_packed_a_part_at_a_time(coding):
    piece = bytes(range(256)) * (3 * CODED_BYTES // 256) + b"end"
    encoder = Encoder(coding)
    parts = [*encoder.parts(piece)]
    assert len(parts) == 4
    packed = b"".join([*parts, encoder.end()])
    assert unpacked(coding, packed) == piece
    assert len(packed) < len(piece) / 10


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_no_more_is_made_than_is_packed(coding):
    made = []

    def pieces():
        for at in range(1000):
            made.append(at)
            yield b"x" * CODED_BYTES

    packed = Encoder(coding).pieces(pieces())
    for _ in range(3):
        next(packed)
    assert len(made) == 3


LONG = json.dumps([{"id": at, "symbol": "ACME"} for at in range(9000)]).encode()
TAG = '"12"'


class Answering(Served):
    """A door that answers with bodies of a length, at once or piece by piece."""

    def __init__(self):
        world = World()
        super().__init__(
            world,
            Route("GET", "/made/{length}", "logon", self.made, ""),
            Route("GET", "/streamed/{length}", "logon", self.streamed, ""),
            Route("GET", "/events", "logon", self.events, ""),
            Route("GET", "/refused", "logon", self.refused, ""),
            Route("POST", "/posted", "logon", self.posted, ""),
        )

    def body(self, request):
        return LONG[: int(request.match_info["length"])]

    async def made(self, request):
        if is_known(request, TAG):
            return web.Response(status=304, headers={"ETag": TAG})
        return web.Response(body=self.body(request), headers={"ETag": TAG, "Vary": "Origin"})

    async def streamed(self, request):
        response = web.StreamResponse()
        await response.prepare(request)
        body = self.body(request)
        pieces = (body[at : at + 1000] for at in range(0, len(body), 1000))
        await write_pieces(self.world.runtime.turns, "pieces", request, response, pieces)
        return response

    async def events(self, request):
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        return response

    async def refused(self, request):
        raise ClientError("no" * 2000)

    async def posted(self, request):
        return web.Response(body=LONG)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("path", ["/made", "/streamed"])
@stepped
async def test_a_long_answer_is_packed_for_who_asks(coding, path):
    async with Answering() as place:
        address = f"{path}/{len(LONG)}"
        packed = await place.get(address, **{"Accept-Encoding": coding})
        assert packed.headers["Content-Encoding"] == coding
        assert "Accept-Encoding" in packed.headers.get_all("Vary")
        assert unpacked(coding, packed.body) == LONG
        assert len(packed.body) < len(LONG) / 5
        for requested in ({}, {"Accept-Encoding": "identity"}, {"Accept-Encoding": "br, gzip;q=x"}):
            plain = await place.get(address, **requested)
            assert plain.body == LONG
            assert "Content-Encoding" not in plain.headers
            assert "Accept-Encoding" in plain.headers.get_all("Vary")


@pytest.mark.parametrize("path", ["/made", "/streamed"])
@stepped
async def test_a_head_says_what_the_answer_would(path):
    async with Answering() as place:
        requested = {"Accept-Encoding": "gzip"}
        answer = await place.get(f"{path}/{len(LONG)}", **requested)
        head = await place.ask("HEAD", f"{path}/{len(LONG)}", headers=requested)
        assert head.body == b""
        for name in ("Content-Encoding", "Content-Length", "ETag"):
            assert head.headers[name] == answer.headers[name]


@stepped
async def test_a_short_one_leaves_as_it_is():
    async with Answering() as place:
        short = await place.get("/made/1023", **{"Accept-Encoding": "gzip"})
        assert short.body == LONG[:1023]
        assert (short.headers["ETag"], short.headers["Content-Encoding"]) == (TAG, None)
        longer = await place.get("/made/1024", **{"Accept-Encoding": "gzip"})
        assert longer.headers["Content-Encoding"] == "gzip"
        assert int(longer.headers["Content-Length"]) == len(longer.body)
        nothing = await place.get("/streamed/0", **{"Accept-Encoding": "gzip"})
        assert unpacked("gzip", nothing.body) == b""


@stepped
async def test_what_would_not_become_shorter_leaves_as_it_is():
    noise = random.Random(1).randbytes(2000)
    async with Answering() as place:
        place.body = lambda _request: noise
        answer = await place.get("/made/1", **{"Accept-Encoding": "gzip"})
        assert (answer.body, answer.headers["ETag"]) == (noise, TAG)
        assert "Content-Encoding" not in answer.headers


@stepped
async def test_the_tag_of_a_packed_answer_is_weak_and_is_known_again():
    async with Answering() as place:
        packed = await place.get("/made/5000", **{"Accept-Encoding": "gzip"})
        assert packed.headers["ETag"] == f"W/{TAG}"
        known = await place.get(
            "/made/5000", **{"Accept-Encoding": "gzip", "If-None-Match": f'"9", W/{TAG}'}
        )
        assert (known.status, known.body, known.headers["ETag"]) == (304, b"", f"W/{TAG}")
        assert "Content-Encoding" not in known.headers
        assert known.headers["Vary"] == "Accept-Encoding"
        plain = await place.get("/made/5000", **{"If-None-Match": TAG})
        assert (plain.status, plain.headers["ETag"]) == (304, TAG)


@stepped
async def test_events_errors_and_what_is_posted_are_not_packed():
    async with Answering() as place:
        requested = {"Accept-Encoding": "gzip"}
        assert (await place.get("/events", **requested)).body == b"data: 1\n\n"
        assert json.loads((await place.get("/refused", **requested)).body)["status"] == 400
        assert (await place.ask("POST", "/posted", headers=requested)).body == LONG


@stepped
async def test_where_no_coding_will_do_it_is_refused_before_anything_is_done():
    async with Answering() as place:
        refused = await place.get("/made/5000", **{"Accept-Encoding": "*;q=0"})
        assert refused.status == 406
        assert "Accept-Encoding" in json.loads(refused.body)["detail"]


@stepped
async def test_beyond_so_many_at_once_answers_leave_as_they_are(monkeypatch):
    monkeypatch.setattr(negotiation, "ENCODERS_MAX", 1)
    pack = negotiation.Compression().pack

    async def coding():
        request, response = request_of(), web.StreamResponse()
        request[CODING] = "gzip"
        await pack(request, response)
        return response.headers.get("Content-Encoding"), request

    first, held = await coding()
    assert (first, (await coding())[0]) == ("gzip", None)
    del held
    gc.collect()
    assert (await coding())[0] == "gzip"
