"""A long answer is written as its client takes it, in turns with everybody else."""

import asyncio
import http.client
from itertools import pairwise

import pytest
from aiohttp import web

from sow.core.cooperative import run_to_completion
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.errors import Unauthenticated
from sow.server.http import chunked_response
from sow.server.http.authn_middleware import AUTHN
from sow.server.http.chunked_response import (
    answer_array,
    answer_in_pieces,
    answer_message,
    answer_whole,
    gathered,
    write_pieces,
)
from sow.server.http.route import Route
from tests.server.http.test_compression import unpacked
from tests.server.stand_ins import (
    Served,
    World,
    authenticator_of,
    read_answer,
    request_of,
    stepped,
    turns,
)


class Place(Served):
    """A door that answers with as many pieces as it is asked for, whoever asks."""

    def __init__(self, authn=None):
        world, self.made = World(), 0
        self.kind, self.told = "text/csv", {}
        route = Route("GET", "/pieces/{count}", "logon", self.answer, "")
        whole = Route("GET", "/whole/{count}", "logon", self.whole, "")
        super().__init__(world, route, whole, authn=authn)

    def pieces(self, count):
        for _ in range(count):
            self.made += 1
            yield b"x" * 1000

    async def answer(self, request):
        await self.app[AUTHN].admit(request, "logon")
        response = web.StreamResponse()
        await response.prepare(request)
        pieces = self.pieces(int(request.match_info["count"]))
        await write_pieces(self.world.runtime.turns, "pieces", request, response, pieces)
        return response

    async def whole(self, request):
        pieces = self.pieces(int(request.match_info["count"]))
        turns = self.world.runtime.turns
        headers = {"X-Own": "1", **self.told}
        return await answer_in_pieces(turns, "pieces", request, pieces, self.kind, headers)

    @property
    def held(self):
        """What answers hold that are not written."""
        return self.requests.answers.used


@pytest.mark.parametrize("count", [0, 1, 262, 263, 999])
@stepped
async def test_a_whole_answer_has_its_length_and_a_tag_of_its_bytes(count):
    async with Place() as place:
        answer = await place.get(f"/whole/{count}")
        head = await place.ask("HEAD", f"/whole/{count}")
        assert (answer.body, head.body) == (b"x" * 1000 * count, b"")
        for one in (answer, head):
            assert one.headers["Content-Length"] == str(1000 * count)
            assert one.headers["Transfer-Encoding"] is None
            assert (one.headers["X-Own"], one.headers["ETag"][0]) == ("1", '"')
            assert one.headers["ETag"] == answer.headers["ETag"]
        others = [(await place.get(f"/whole/{count + more}")).headers["ETag"] for more in (0, 1)]
        assert [tag == answer.headers["ETag"] for tag in others] == [True, False]
        assert place.held == 0


@pytest.mark.parametrize("count", [0, 1, 999])
@stepped
async def test_the_same_bytes_that_are_something_else_have_another_tag(count):
    async with Place() as place:
        tags = set()
        for kind in ("text/csv", "application/x-ndjson"):
            for told in ({}, {"SOW-Columns": "[]"}, {"SOW-Columns": "{}"}, {"SOW-Matches": "1"}):
                place.kind, place.told = kind, told
                tags.add((await place.get(f"/whole/{count}")).headers["ETag"])
        assert len(tags) == 6


@pytest.mark.parametrize("told", [{}, {"SOW-Columns": "[]"}])
@stepped
async def test_a_short_answer_has_one_tag_however_it_is_made(told):
    async with Place() as place:
        place.told = told
        in_pieces = (await place.get("/whole/1")).headers["ETag"]
        run_to_completion = answer_whole(request_of(), b"x" * 1000, place.kind, told)
        assert run_to_completion.headers["ETag"] == in_pieces


@pytest.mark.parametrize("count", [1, 999])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@stepped
async def test_who_has_an_answer_or_wants_another_is_sent_so(count, method):
    async with Place() as place:
        address = f"/whole/{count}"
        tag = (await place.get(address)).headers["ETag"]
        known = await place.ask(method, address, headers={"If-None-Match": tag})
        assert (known.status, known.body, known.headers["ETag"]) == (304, b"", tag)
        assert known.headers["X-Own"] == "1"
        for match, status in ((tag, 200), ("*", 200), ('"other"', 412)):
            answer = await place.ask(method, address, headers={"If-Match": match})
            assert answer.status == status
        assert place.held == 0


@pytest.mark.parametrize("count", [1, 999])
@stepped
async def test_parts_of_an_answer_are_put_together_again(count):
    async with Place() as place:
        place.pieces = lambda count: (b"%06d" % at for at in range(count * 170))
        whole = await place.get(f"/whole/{count}")
        assert whole.headers["Accept-Ranges"] == "bytes"
        size, tag = len(whole.body), whole.headers["ETag"]
        cuts, found = [0, size // 3, size // 2, size], b""
        for start, stop in pairwise(cuts):
            requested = {"Range": f"bytes={start}-{stop - 1}", "If-Range": tag}
            part = await place.get(f"/whole/{count}", **requested)
            assert (part.status, part.headers["ETag"]) == (206, tag)
            assert part.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{size}"
            assert part.headers["Content-Length"] == str(len(part.body))
            found += part.body
        assert found == whole.body
        beyond = await place.get(f"/whole/{count}", Range=f"bytes={size}-")
        assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{size}")
        assert place.held == 0


@pytest.mark.parametrize("bound", ["length", "room"])
@stepped
async def test_a_longer_answer_comes_without_its_length_and_whole_all_the_same(monkeypatch, bound):
    async with Place() as place:
        if bound == "length":
            monkeypatch.setattr(chunked_response, "WHOLE_BYTES_MAX", 600_000)
        else:
            place.requests.answers.count("another client", 256 * 1024**2 - 600_000)
        before = place.held
        answer = await place.get("/whole/999")
        assert answer.body == b"x" * 999_000
        assert answer.headers["Content-Length"] is answer.headers["ETag"] is None
        assert place.held == before
        head = await place.ask("HEAD", "/whole/999")
        # Nothing is held for a head.
        assert (head.headers["Content-Length"] is None) == (bound == "length")


@stepped
async def test_what_is_made_for_a_client_is_held_until_it_takes_it_or_goes():
    async with Place() as place:
        socket = await place.begin("GET", "/whole/9000")
        await turns(2000)
        held = place.held
        assert 8_000_000 < held <= 9_000_000
        socket.take()
        await turns(200)
        assert place.held < held
        await gone(socket)
        await turns(20)
        assert place.held == 0


@stepped
async def test_clients_that_take_nothing_hold_no_more_than_all_may():
    async with Place() as place:
        place.requests.answers.count("another client", 256 * 1024**2 - 2_000_000)
        sockets = [await place.begin("GET", "/whole/9000") for _ in range(5)]
        await turns(3000)
        # Of each that has no room one part is made that is written next.
        over = place.held - 256 * 1024**2
        assert over <= 5 * 2 * chunked_response.WRITE_BYTES
        for socket in sockets:
            await gone(socket)


@stepped
async def test_a_long_answer_that_is_packed_has_a_weak_tag_and_no_length():
    async with Place() as place:
        tag = (await place.get("/whole/999")).headers["ETag"]
        packed = await place.get("/whole/999", **{"Accept-Encoding": "gzip"})
        assert (packed.headers["ETag"], packed.headers["Content-Length"]) == (f"W/{tag}", None)
        assert unpacked("gzip", packed.body) == b"x" * 999_000
        head = await place.ask("HEAD", "/whole/999", headers={"Accept-Encoding": "gzip"})
        assert (head.body, head.headers["ETag"]) == (b"", f"W/{tag}")


@pytest.mark.parametrize("count", [0, 1, 999])
@stepped
async def test_all_pieces_come_in_order(count):
    async with Place() as place:
        assert (await place.get(f"/pieces/{count}")).body == b"x" * 1000 * count
        assert place.world.runtime.watch.longest_s.keys() >= {"pieces"}


@stepped
async def test_a_long_message_is_written_in_parts(monkeypatch):
    parts, write = [], web.StreamResponse.write

    async def noted(response, part):
        parts.append(len(part))
        await write(response, part)

    monkeypatch.setattr(chunked_response, "PART_BYTES", 300)
    monkeypatch.setattr(web.StreamResponse, "write", noted)
    async with Place() as place:
        assert (await place.get("/pieces/2")).body == b"x" * 2000
    assert max(parts) == 300
    assert sum(parts) == 2000


@stepped
async def test_no_more_is_made_than_the_client_takes():
    async with Place() as place:
        socket = await place.begin("GET", "/pieces/100000")
        await turns(2000)
        made = place.made
        assert 1000 * made <= 3 * chunked_response.WRITE_BYTES, (
            "one write is on its way, one is made"
        )
        socket.take()
        await turns(2000)
        assert made < place.made <= 3 * made
        await gone(socket)


@stepped
async def test_nothing_is_made_for_a_client_that_has_gone():
    async with Place() as place:
        socket = await place.begin("GET", "/pieces/100000")
        await turns(5)
        await gone(socket)
        made = place.made
        await turns(2000)
        assert place.made == made


@stepped
async def test_who_takes_nothing_of_an_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(chunked_response, "WRITE_S_MAX", 0.0)
    async with Place() as place:
        socket = await place.begin("GET", "/pieces/100000")
        await turns(2000)
        made = place.made
        socket.take()
        await turns(2000)
        assert socket.closed
        assert place.made == made
        await gone(socket)


async def gone(socket):
    socket.protocol.connection_lost(None)
    await turns(5)


class Names:
    """Finds users by tokens that are their names."""

    def __init__(self, *names):
        self.names = names

    async def identify(self, shown, address=""):
        if shown.token not in self.names:
            raise Unauthenticated("not good")
        return User(shown.token)

    identify_again = identify


def security(topic):
    roles = (Role("desk", ("*",), (Allow(topic, read=True),)),)
    return Security(authentication=Authentication(tokens_file="tokens"), roles=roles)


@pytest.mark.parametrize(
    ("names", "topic", "goes_on"),
    [(("ann",), "orders", True), ((), "orders", False), (("ann",), "others", False)],
)
@stepped
async def test_an_answer_goes_on_for_whose_rights_stay_and_no_further_for_others(
    names, topic, goes_on
):
    here = authenticator_of(security("orders"), lambda _by: Names("ann"))
    async with Place(here) as place:
        socket = await place.begin("GET", "/pieces/1000", headers={"Authorization": "Bearer ann"})
        await turns(2000)
        told = len(socket.written)
        here.swap_security(here.read(security(topic))._replace(authenticator=Names(*names)))
        while not socket.closed:
            socket.take()
            await turns(5)
        if goes_on:
            assert read_answer(socket.written).body == b"x" * 1_000_000
        else:
            assert len(socket.written) - told <= 2 * chunked_response.WRITE_BYTES, (
                "what was made then"
            )
            with pytest.raises(http.client.IncompleteRead):
                read_answer(socket.written)
        await gone(socket)


@stepped
async def test_others_have_their_turn_between_two_pieces(monkeypatch):
    monkeypatch.setattr("sow.server.loop.scheduler.SLICE_S", 0.0)
    async with Place() as place:
        long = await place.begin("GET", "/pieces/200")
        short = await place.begin("GET", "/pieces/1")
        while not short.closed:
            short.take()
            await asyncio.sleep(0)
        assert read_answer(short.written).body
        assert place.made < 200
        await gone(long)
        await gone(short)


def test_a_write_is_of_bounded_size(monkeypatch):
    monkeypatch.setattr(chunked_response, "WRITE_BYTES", 10)
    pieces = iter([b"1234"] * 4)
    assert run_to_completion(gathered(pieces)) == b"1234" * 3
    assert run_to_completion(gathered(pieces)) == b"1234"
    assert run_to_completion(gathered(pieces)) == b""


LONG = 15_000_000


class LongPlace(Place):
    """A door whose answers are long messages, of which each reader holds a copy."""

    def pieces(self, count):
        for _ in range(count):
            self.made += 1
            yield b"x" * LONG

    async def answer(self, request):
        turns = self.world.runtime.turns
        body = b"".join(self.pieces(int(request.match_info["count"])))
        return await answer_message(turns, "a message", request, body, "text/csv", {}, '"1"')


@pytest.mark.parametrize("address", ["/whole/1", "/whole/2", "/pieces/1"])
@stepped
async def test_long_messages_that_are_not_taken_hold_no_more_than_all_may(address):
    async with LongPlace() as place:
        place.requests.answers.count("another client", 256 * 1024**2 - 4 * LONG)
        before, sockets = place.held, []
        for _ in range(4):
            sockets.append(await place.begin("GET", address))
            await turns(2000)
        assert before < place.held <= 256 * 1024**2
        refused = await place.get(address)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert "RequestMemory" in refused.json["detail"]
        assert (await place.ask("HEAD", address)).status == 200
        for socket in sockets:
            await gone(socket)
        assert place.held == before
        answer = await place.get(address)
        assert len(answer.body) == int(answer.headers["Content-Length"])
        assert place.held == before


@stepped
async def test_many_long_messages_are_written_one_after_the_other_to_who_takes_them():
    async with LongPlace() as place:
        answer = await place.get("/whole/6")  # more than one client may hold
        assert (answer.status, len(answer.body)) == (200, 6 * LONG)
        assert place.held == 0


@stepped
async def test_a_long_message_for_which_there_is_no_room_any_more_ends_its_answer(monkeypatch):
    monkeypatch.setattr(chunked_response, "WHOLE_BYTES_MAX", LONG - 1)
    async with LongPlace() as place:
        socket = await place.begin("GET", "/whole/3")
        await turns(2000)
        assert place.held == LONG
        place.requests.answers.count("another client", 256 * 1024**2)
        for _ in range(40):
            socket.take()
            await turns(200)
        assert socket.closed
        assert place.made == 2
        await gone(socket)
        assert place.held == 256 * 1024**2


class Describing(Served):
    """A handler that describes so many things."""

    def __init__(self):
        world = World()
        super().__init__(world, Route("GET", "/things/{count}", "logon", self.answer, ""))

    async def answer(self, request):
        things = range(int(request.match_info["count"]))
        turns = self.world.runtime.turns
        return await answer_array(turns, request, things, lambda at: {"at": at})


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("at_once", [1, 2, 50])
@stepped
async def test_descriptions_are_the_same_in_however_many_steps(monkeypatch, at_once, count):
    monkeypatch.setattr("sow.server.http.chunked_response.DESCRIBED_AT_ONCE", at_once)
    async with Describing() as place:
        found = (await place.get(f"/things/{count}")).json
        assert found == [{"at": at} for at in range(count)]
