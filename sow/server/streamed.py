"""Streamed answers: long ones, made and written a little at a time.

Pieces are made in turns with everybody else's work (`sow.server.turns`), some hundred kilobytes at
most, and written when the client has taken what came before. Who waits for a turn or for the client
is cancelled when the client goes, so that nothing more is made for it. One that stays and takes
nothing is given up, since what is left of its answer is held for it; and one that may not have the
rest any more, since users and roles have been read again, is cut off. Where the answer is packed
(`sow.server.packing`), so is each piece, a part at a time.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from aiohttp import hdrs, web

from sow.errors import SowError
from sow.server.doorman import check_going_on
from sow.server.packing import PACKER
from sow.server.turns import Turns
from sow.steps import Steps

WRITE_BYTES = 256 * 1024
"""So much is made before it is written: as much as a socket takes in one go, and more than enough
for what a write costs not to count."""
PART_BYTES = 1024 * 1024
"""Of a piece that is longer, which is one long message, so much is handed to the socket in one go:
a millisecond or two, as it is copied."""
TAKEN_S_MAX = 60.0
"""How long a client may take for one such write: 4 KB a second, less than any line that works."""


async def answer_in_pieces(
    turns: Turns,
    name: str,
    request: web.Request,
    pieces: Iterable[bytes],
    kind: str,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """An answer of the media type `kind`, as `write_pieces` writes it."""
    response = web.StreamResponse(headers=headers)
    response.content_type = kind
    await response.prepare(request)
    await write_pieces(turns, name, request, response, pieces)
    return response


async def write_pieces(
    turns: Turns,
    name: str,
    request: web.Request,
    response: web.StreamResponse,
    pieces: Iterable[bytes],
) -> None:
    """Write the rest of a response whose head is written; each piece is made in a short step.

    `name` is what an operator calls this work. Who asks for the head alone has it already. Raises
    ConnectionResetError if the client takes nothing, or may not have the rest.
    """
    packer = request.get(PACKER)
    if packer is not None:
        pieces = packer.pieces(pieces)
    rest = iter(pieces if request.method != hdrs.METH_HEAD else ())
    while written := await turns.take(name, gathered(rest)):
        try:
            await check_going_on(request)
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


def gathered(pieces: Iterator[bytes]) -> Steps[bytes]:
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
