"""Long answers: produced and written in pieces, with `Content-Length` where they are not too long.

Pieces of at most some hundred kilobytes are produced in slices of the scheduler
(`sow.server.loop.scheduler`). An answer of up to `WHOLE_BYTES_MAX` is complete before its head is
written, which has its `Content-Length` and `ETag` (a digest of bytes and content type), so that
clients can rely on the length, read ranges (`sow.server.http.preconditions`), and get 304 for what
they have. The memory of answers is accounted (`sow.core.quota`); without room, and for longer
answers, the rest is produced as the client reads. A long message cannot be produced in pieces:
without room for it the client has to retry. For HEAD the answer is produced and measured, but not
kept.

If the client disconnects, the handler is cancelled and nothing more is produced. A client that
stays and does not read is disconnected, since the rest of its answer is kept for it; so is one that
loses its permissions because users and roles were reloaded. If the answer is compressed
(`sow.server.http.negotiation`), so is each piece.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TypeVar

from aiohttp import hdrs, web

from sow.core.cooperative import Task
from sow.core.media_types import COLUMNS_HEADER, JSON
from sow.core.quota import QuotaHolder
from sow.errors import Busy, SowError
from sow.server.http.authn_middleware import reauthorize_stream
from sow.server.http.body_reading import REQUESTS, client_key
from sow.server.http.negotiation import PACKER, is_known
from sow.server.http.preconditions import Conditions, has_ranges, range_of
from sow.server.http.request_bodies import documents_of
from sow.server.http.responses import json_text
from sow.server.loop.scheduler import FairScheduler

WRITE_BYTES = 256 * 1024
"""Bytes produced before a write: as much as a socket takes at once, and enough for the cost of a
write not to count."""
WHOLE_BYTES_MAX = 64 * 1024 * 1024
"""The longest answer that is completed first: most answers are shorter, and one client may hold as
much by default (`RequestMemory`)."""
TAG_BYTES = 16
"""Size of the digest: no two different answers share one by chance."""
PART_BYTES = 1024 * 1024
"""Longest part of a long message that is handed to the socket at once: a millisecond or two, as it
is copied."""
WRITE_S_MAX = 60.0
"""How long a client may take for one such write: 4 KB a second, less than any working line."""


class Made:
    """An answer as far as it is produced: its parts, in order, accounted by `holder`. `keeps`: the
    parts are kept, and not only counted. `digest` is updated with them."""

    def __init__(self, holder: QuotaHolder, keeps: bool, digest: blake2b) -> None:
        self.parts: deque[bytes] = deque()
        self.is_whole = False
        self.size = 0
        self._holder = holder
        self._keeps = keeps
        self._digest = digest

    @property
    def tag(self) -> str:
        """The entity tag of a complete answer."""
        return f'"{self._digest.hexdigest()}"'

    def making(self, pieces: Iterator[bytes]) -> Task[None]:
        """Produce the answer, or as much as there is room for, in steps; raises Busy where there is
        no room for a long message. Bytes that this answer holds itself are not in the way: they are
        sent first."""
        while part := (yield from gathered(pieces)):
            self._digest.update(part)
            self.size += len(part)
            # What is sent in one write needs no room.
            is_first = self.size == len(part)
            lacks = self._keeps and not (is_first and len(part) <= PART_BYTES)
            lacks = lacks and self._holder.lack(len(part)) is not None
            held = self.size - len(part)
            if lacks and len(part) > max(held, PART_BYTES):
                raise no_room(self._holder, len(part))
            if self._keeps or is_first:
                self.parts.append(part)
                self._holder.add(len(part))
            if lacks or self.size > WHOLE_BYTES_MAX:
                return
            yield
        self.is_whole = True

    def rest(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The parts that are produced, released one by one, then the rest. Each is accounted until
        the next is requested: by then the client has it. Raises ConnectionResetError where there is
        no room for a long message."""
        while self.parts:
            yield self.parts[0]
            self._holder.add(-len(self.parts.popleft()))
        for piece in pieces:
            if len(piece) > PART_BYTES and self._holder.lack(len(piece)) is not None:
                raise ConnectionResetError(no_room(self._holder, len(piece)).detail)
            self._holder.add(len(piece))
            yield piece
            self._holder.add(-len(piece))


def no_room(holder: QuotaHolder, size: int) -> Busy:
    """The error for a long message that there is no room for."""
    return Busy(
        f"{holder.lack(size)}, of answers that are not read yet (Limits/RequestMemory), and the "
        f"answer has a message of {size} bytes: read the others first, or retry in a moment"
    )


async def answer_in_pieces(
    turns: FairScheduler,
    name: str,
    request: web.Request,
    pieces: Iterable[bytes],
    kind: str,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """An answer of the media type `kind`; each piece is produced in a short step, measured under
    `name`.

    Raises ConnectionResetError if the client does not read, or may not have the rest;
    PreconditionFailed; and Busy where there is no room for a long message.
    """
    keeps = request.method != hdrs.METH_HEAD
    holder = request.app[REQUESTS].answers.holder(client_key(request))
    more = iter(pieces)
    try:
        made = Made(holder, keeps, digest_of(kind, headers))
        await turns.run(name, made.making(more))
        if made.is_whole and made.size <= WRITE_BYTES:
            return answer_whole(request, b"".join(made.parts), kind, headers, made.tag)
        if made.is_whole and (known := conditional(request, made.tag, headers)):
            return known
        response, rest = web.StreamResponse(headers=headers), made.rest(more)
        response.content_type = kind
        if made.is_whole:
            start, stop = mark_whole(request, response, made.tag, made.size)
            if has_ranges(request):
                response.content_length = stop - start
            rest = part_of(rest, start, stop)
        await response.prepare(request)
        await write_pieces(turns, name, request, response, rest)
        return response
    finally:
        holder.release()


async def answer_message(
    turns: FairScheduler,
    name: str,
    request: web.Request,
    body: bytes,
    kind: str,
    headers: Mapping[str, str],
    tag: str,
) -> web.StreamResponse:
    """One message, written in parts if it is long. Raises ConnectionResetError as
    `answer_in_pieces` does, and Busy."""
    if len(body) <= PART_BYTES or request.method == hdrs.METH_HEAD:
        return _at_once(request, body, kind, headers, tag)
    holder = request.app[REQUESTS].answers.holder(client_key(request))
    try:
        if holder.lack(len(body)) is not None:
            raise no_room(holder, len(body))
        holder.add(len(body))
        response = web.StreamResponse(headers=headers)
        response.content_type = kind
        start, stop = mark_whole(request, response, tag, len(body))
        if has_ranges(request):
            response.content_length = stop - start
        await response.prepare(request)
        await write_pieces(turns, name, request, response, part_of(iter([body]), start, stop))
        return response
    finally:
        holder.release()


def answer_whole(
    request: web.Request,
    body: bytes,
    kind: str,
    headers: Mapping[str, str] | None = None,
    tag: str | None = None,
) -> web.Response:
    """A short answer that is complete, with its tag; raises PreconditionFailed."""
    if tag is None:
        digest = digest_of(kind, headers)
        digest.update(body)
        tag = f'"{digest.hexdigest()}"'
    return conditional(request, tag, headers) or _at_once(request, body, kind, headers, tag)


def _at_once(
    request: web.Request, body: bytes, kind: str, headers: Mapping[str, str] | None, tag: str
) -> web.Response:
    """The bytes of an answer, or the requested range of them."""
    response = web.Response(content_type=kind, headers=headers)
    start, stop = mark_whole(request, response, tag, len(body))
    response.body = body[start:stop]
    # aiohttp sends no length of an empty body for HEAD.
    response.headers[hdrs.CONTENT_LENGTH] = str(stop - start)
    return response


def digest_of(kind: str, headers: Mapping[str, str] | None) -> blake2b:
    """The digest of an answer before its bytes are added: of media type and columns. The same bytes
    under another media type, or with other columns, are another answer."""
    columns = (headers or {}).get(COLUMNS_HEADER, "")
    return blake2b(f"{kind}\0{columns}\0".encode(), digest_size=TAG_BYTES)


def mark_whole(
    request: web.Request, response: web.StreamResponse, tag: str, size: int
) -> tuple[int, int]:
    """Set the headers of a complete answer, or of a range of it; returns its bounds. Raises
    RangeNotSatisfiable."""
    response.headers[hdrs.ETAG] = tag
    if has_ranges(request):
        response.headers[hdrs.ACCEPT_RANGES] = "bytes"
    part = range_of(request, tag, size)
    if part is None:
        return 0, size
    response.set_status(206)
    response.headers[hdrs.CONTENT_RANGE] = f"bytes {part[0]}-{part[1] - 1}/{size}"
    return part


def part_of(pieces: Iterator[bytes], start: int, stop: int) -> Iterator[bytes]:
    """The bytes of pieces from `start` to `stop`."""
    at = 0
    for piece in pieces:
        yield piece[max(0, start - at) : max(0, stop - at)]
        at += len(piece)


def conditional(
    request: web.Request, tag: str, headers: Mapping[str, str] | None
) -> web.Response | None:
    """The answer 304 for a client that has the bytes of `tag` already, else None; raises
    PreconditionFailed if the client wants others."""
    if hdrs.IF_NONE_MATCH not in request.headers and hdrs.IF_MATCH not in request.headers:
        return None
    Conditions.of_reader(request).check([tag], is_there=True)
    if is_known(request, tag):
        return web.Response(status=304, headers={**(headers or {}), hdrs.ETAG: tag})
    return None


async def write_pieces(
    turns: FairScheduler,
    name: str,
    request: web.Request,
    response: web.StreamResponse,
    pieces: Iterable[bytes],
) -> None:
    """Write the body of a response whose head is written; each piece is produced in a short step.
    For HEAD there is none.

    Raises ConnectionResetError if the client does not read, or may not have the rest.
    """
    packer = request.get(PACKER)
    if packer is not None:
        pieces = packer.pieces(pieces)
    rest = iter(pieces if request.method != hdrs.METH_HEAD else ())
    while written := await turns.run(name, gathered(rest)):
        try:
            await reauthorize_stream(request)
        except SowError as error:
            raise ConnectionResetError(f"the rest may not be sent: {error.detail}") from None
        for start in range(0, len(written), PART_BYTES):
            if start:
                await asyncio.sleep(0)  # other work runs between two parts
            await write_part(response, memoryview(written)[start : start + PART_BYTES])
    await response.write_eof()


async def write_part(response: web.StreamResponse, part: memoryview) -> None:
    """Hand a part to the socket once the client has read what came before; raises
    ConnectionResetError if it does not read."""
    try:
        async with asyncio.timeout(WRITE_S_MAX):
            await response.write(part)
    except TimeoutError:
        raise ConnectionResetError("the client does not read its answer") from None


def gathered(pieces: Iterator[bytes]) -> Task[bytes]:
    """The next pieces, about `WRITE_BYTES` together; empty when there are no more."""
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size >= WRITE_BYTES:
            break
        yield
    return b"".join(found)


DESCRIBED_AT_ONCE = 50
"""Topics or sessions described in one step: half a millisecond."""

Thing = TypeVar("Thing")


async def answer_array(
    turns: FairScheduler,
    request: web.Request,
    things: Sequence[Thing],
    describe: Callable[[Thing], object],
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """The descriptions of things as an array, some at a time."""
    if len(things) <= DESCRIBED_AT_ONCE:
        text = json_text([describe(one) for one in things])
        return answer_whole(request, text, JSON, headers)
    chunks = (
        [json_text(describe(one)) for one in things[start : start + DESCRIBED_AT_ONCE]]
        for start in range(0, len(things), DESCRIBED_AT_ONCE)
    )
    pieces = documents_of(chunks, lines=False)
    return await answer_in_pieces(turns, "a list over HTTP", request, pieces, JSON, headers)
