"""Backup and verification of the whole store over HTTP.

A backup is streamed to the client; the server writes no file. Each request reads and sums blocks in
its own thread, a few hundred kilobytes at a time, and sends them as fast as the client reads; a
client that reads nothing is disconnected. One backup runs at a time, because checkpoints and log
segments that it has yet to read are retained, and one verification, because it reads as much from
the disk.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, contextmanager
from itertools import islice
from typing import TypeVar

from aiohttp import web

from sow import __version__
from sow.core.media_types import FRAMES
from sow.errors import Busy, NotEntitled, SowError
from sow.server.http.authn_middleware import permissions_of, reauthorize_stream
from sow.server.http.chunked_response import write_part
from sow.server.http.responses import json_response
from sow.store.backup import CopiedStore, frames
from sow.store.verifying import VerifiedFile, verify_store

Piece = TypeVar("Piece")
SENT_BYTES = 256 * 1024
"""Read before it is sent: as much as a socket takes at once."""
BLOCKS_AT_ONCE = 16
"""Blocks verified between two checks that the client is still connected."""


class BackupHandler:
    """`/v1/backup` and `/v1/verify` of one open store; `now_us` is the time."""

    def __init__(self, store: CopiedStore, now_us: Callable[[], int]) -> None:
        self._store = store
        self._now_us = now_us
        self._under_way: set[str] = set()

    async def backup(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/backup`: the whole store as of one moment, as frames; raises Busy."""
        if not permissions_of(request).reads_everything:
            raise NotEntitled(
                "a backup holds all records of all topics; beside Admin it takes an Allow of Read "
                "with <Topic>.*</Topic>, without Filter and Select"
            )
        with self._alone("backup"):
            pieces = gathered_frames(frames(self._store, self._now_us(), __version__))
            response = web.StreamResponse()
            response.content_type = FRAMES
            await response.prepare(request)
            async with aclosing(_in_a_thread(pieces)) as made:
                async for piece in made:
                    try:
                        await reauthorize_stream(request)
                    except SowError as error:
                        why = f"the rest may not be sent: {error.detail}"
                        raise ConnectionResetError(why) from None
                    await write_part(response, memoryview(piece))
            await response.write_eof()
            return response

    async def verify(self, _request: web.Request) -> web.Response:
        """`POST /v1/verify`: read every block of the store again, and report damaged files; raises
        Busy."""
        with self._alone("verification"):
            found: list[VerifiedFile] = []
            async with aclosing(_in_a_thread(_some(verify_store(self._store)))) as made:
                async for some in made:
                    found += [one for one in some if one is not None]
        return json_response(
            {
                "whole": not any(one.problem for one in found),
                "files": [one._asdict() for one in found],
            }
        )

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        """Raises Busy if another one is running."""
        if what in self._under_way:
            raise Busy(f"a {what} is running already; try again when it is done")
        self._under_way.add(what)
        try:
            yield
        finally:
            self._under_way.discard(what)


def gathered_frames(found: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    """Joins frames up to what is sent at once; a longer one goes alone."""
    some: list[bytes] = []
    size = 0
    with closing(found):
        for one in found:
            some.append(one)
            size += len(one)
            if size >= SENT_BYTES:
                yield b"".join(some)
                some, size = [], 0
        if some:
            yield b"".join(some)


def _some(
    found: Generator[VerifiedFile | None, None, None],
) -> Generator[list[VerifiedFile | None], None, None]:
    with closing(found):
        while some := list(islice(found, BLOCKS_AT_ONCE)):
            yield some


async def _in_a_thread(pieces: Generator[Piece, None, None]) -> AsyncGenerator[Piece, None]:
    """The items of a generator, each made in a thread of its own, which also closes the generator
    when the current item is done."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, thread_name_prefix="copying")
    try:
        while (piece := await loop.run_in_executor(thread, next, pieces, None)) is not None:
            yield piece
    finally:
        thread.submit(pieces.close)
        thread.shutdown(wait=False)
