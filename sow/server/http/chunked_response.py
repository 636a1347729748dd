"""Long answers: made and written a little at a time, with their length where they are not too long.

Pieces are made in turns with everybody else's work (`sow.server.loop.scheduler`), some hundred
kilobytes at most. An answer of up to `WHOLE_BYTES_MAX` is made whole before its head is written,
which says its length (`Content-Length`) and its tag (`ETag`, of the bytes and what they are), so
that a program that reads an address by its length can, or a part at a time
(`sow.server.http.ranges`), and who has it already is told so. What answers hold meanwhile is
counted (`sow.core.quota`); where there is no room for more, and of what is longer, the rest is made
as the client takes it. A long message cannot be made a little at a time: where there is no room for
it, the client has to ask again. Who asks for the head alone has the answer made and counted, and
nothing is held.

Who waits for a turn or for the client is cancelled when the client goes, so that nothing more is
made for it. One that stays and takes nothing is given up, since what is left of its answer is held
for it; and one that may not have the rest any more, since users and roles have been read again, is
cut off. Where the answer is packed (`sow.server.http.compression`), so is each piece, a part at a
time.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

from aiohttp import hdrs, web

from sow.core.cooperative import Task
from sow.core.media_types import COLUMNS_HEADER
from sow.core.quota import QuotaHolder
from sow.errors import Busy, SowError
from sow.server.http.authn_middleware import check_stream_continues
from sow.server.http.compression import PACKER
from sow.server.http.negotiation import is_known
from sow.server.http.preconditions import Conditions
from sow.server.http.ranges import has_ranges, range_of
from sow.server.http.request_memory import REQUESTS, client_key
from sow.server.loop.scheduler import FairScheduler

WRITE_BYTES = 256 * 1024
"""So much is made before it is written: as much as a socket takes in one go, and more than enough
for what a write costs not to count."""
WHOLE_BYTES_MAX = 64 * 1024 * 1024
"""Of an answer that is made whole: what programs read by its length is mostly shorter, and one
client may hold so much by default (`RequestMemory`)."""
TAG_BYTES = 16
"""Of a digest that stands for an answer: two that differ have the same by no chance."""
PART_BYTES = 1024 * 1024
"""Of a piece that is longer, which is one long message, so much is handed to the socket in one go:
a millisecond or two, as it is copied."""
TAKEN_S_MAX = 60.0
"""How long a client may take for one such write: 4 KB a second, less than any line that works."""


class Made:
    """An answer as far as it has been made: its parts, in order, which `holder` holds. `keeps`:
    they are kept, and not only counted. `digest` is that of what they are."""

    def __init__(self, holder: QuotaHolder, keeps: bool, digest: blake2b) -> None:
        self.parts: deque[bytes] = deque()
        self.is_whole = False
        self.size = 0
        self._holder = holder
        self._keeps = keeps
        self._digest = digest

    @property
    def tag(self) -> str:
        """What names a whole answer."""
        return f'"{self._digest.hexdigest()}"'

    def making(self, pieces: Iterator[bytes]) -> Task[None]:
        """Make the whole answer, or as much as there is room for, in steps; raises Busy where there
        is no room for a long message, but for what this answer holds itself, which goes first."""
        while part := (yield from gathered(pieces)):
            self._digest.update(part)
            self.size += len(part)
            # What is written in one go waits for nobody.
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
        """What has been made, which is let go part by part, and what has not. Each counts until
        the next is wanted, as the client has taken it by then; raises ConnectionResetError where
        there is no room for a long message."""
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
    """What a client is told for whose long message there is no room."""
    return Busy(
        f"{holder.lack(size)}, of answers that are not read yet (Limits/RequestMemory), and the "
        f"answer has a message of {size} bytes: read the others first, or ask again in a moment"
    )


async def answer_in_pieces(
    turns: FairScheduler,
    name: str,
    request: web.Request,
    pieces: Iterable[bytes],
    kind: str,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """An answer of the media type `kind`; each piece is made in a short step, and `name` is what an
    operator calls this work.

    Raises ConnectionResetError if the client takes nothing, or may not have the rest,
    PreconditionFailed, and Busy where there is no room for a long message.
    """
    keeps = request.method != hdrs.METH_HEAD
    holder = request.app[REQUESTS].answers.holder(client_key(request))
    more = iter(pieces)
    try:
        made = Made(holder, keeps, digest_of(kind, headers))
        await turns.take(name, made.making(more))
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
) -> web.StreamResponse:
    """One message, which is written a part at a time where it is long. Raises ConnectionResetError
    as `answer_in_pieces` does, and Busy."""
    if len(body) <= PART_BYTES or request.method == hdrs.METH_HEAD:
        return web.Response(body=body, content_type=kind, headers=headers)
    holder = request.app[REQUESTS].answers.holder(client_key(request))
    try:
        if holder.lack(len(body)) is not None:
            raise no_room(holder, len(body))
        holder.add(len(body))
        response = web.StreamResponse(headers=headers)
        response.content_type = kind
        if has_ranges(request):
            response.content_length = len(body)
        await response.prepare(request)
        await write_pieces(turns, name, request, response, [body])
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
    """A short answer that is made already, by its tag; raises PreconditionFailed."""
    if tag is None:
        digest = digest_of(kind, headers)
        digest.update(body)
        tag = f'"{digest.hexdigest()}"'
    if known := conditional(request, tag, headers):
        return known
    response = web.Response(content_type=kind, headers=headers)
    start, stop = mark_whole(request, response, tag, len(body))
    response.body = body[start:stop]
    # aiohttp says no length of nothing to who asks for the head alone.
    response.headers[hdrs.CONTENT_LENGTH] = str(stop - start)
    return response


def digest_of(kind: str, headers: Mapping[str, str] | None) -> blake2b:
    """The digest of an answer before its bytes: of what headers say that the bytes are. The same
    bytes under another media type, or with other columns, are another answer."""
    columns = (headers or {}).get(COLUMNS_HEADER, "")
    return blake2b(f"{kind}\0{columns}\0".encode(), digest_size=TAG_BYTES)


def mark_whole(
    request: web.Request, response: web.StreamResponse, tag: str, size: int
) -> tuple[int, int]:
    """Say of an answer what it is, or a part of which; returns where the part begins and ends.
    Raises RangeNotSatisfiable."""
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
    """The bytes of pieces from `start` on, up to `stop`."""
    at = 0
    for piece in pieces:
        yield piece[max(0, start - at) : max(0, stop - at)]
        at += len(piece)


def conditional(
    request: web.Request, tag: str, headers: Mapping[str, str] | None
) -> web.Response | None:
    """What is answered instead of the bytes that `tag` names, to who has them already; raises
    PreconditionFailed where the client wants others."""
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
    """Write the rest of a response whose head is written; each piece is made in a short step. Who
    asks for the head alone has it already.

    Raises ConnectionResetError if the client takes nothing, or may not have the rest.
    """
    packer = request.get(PACKER)
    if packer is not None:
        pieces = packer.pieces(pieces)
    rest = iter(pieces if request.method != hdrs.METH_HEAD else ())
    while written := await turns.take(name, gathered(rest)):
        try:
            await check_stream_continues(request)
        except SowError as error:
            raise ConnectionResetError(f"the rest may not be told: {error.detail}") from None
        for start in range(0, len(written), PART_BYTES):
            if start:
                await asyncio.sleep(0)  # others have their turn between two parts
            await write_part(response, memoryview(written)[start : start + PART_BYTES])
    await response.write_eof()


async def write_part(response: web.StreamResponse, part: memoryview) -> None:
    """Hand a part to the socket when the client has taken what came before; raises
    ConnectionResetError for one that takes nothing."""
    try:
        async with asyncio.timeout(TAKEN_S_MAX):
            await response.write(part)
    except TimeoutError:
        raise ConnectionResetError("the client takes nothing of its answer") from None


def gathered(pieces: Iterator[bytes]) -> Task[bytes]:
    """The next pieces, up to some `WRITE_BYTES` together; nothing when there are no more."""
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size >= WRITE_BYTES:
            break
        yield
    return b"".join(found)
