"""A shared log in numbered objects of a store such as S3.

    append    what waits goes into one object, at the first number that nobody has put
    read      objects by their numbers; the next one is requested until it is there
    last      the greatest number without a gap, found by doubling and halving
    trim      a mark says which number is the first from now on; then those before it go

An object is put only if none of its number is there, so there is one order and no gap. Object n has
the positions up to n times `OBJECT_BLOCKS`, counted from its end: where it ends needs no look into
it. The newest object is never trimmed, so the end is never forgotten.

A number that was deleted could be put once more, by a node that had stopped for long and goes on.
So marks stay forever, numbered as objects are, and a client that has put or got an object looks for
the next mark before it believes it: what stands before the first number is not in the log.
"""

import asyncio
import secrets
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress

from sow.errors import LogTrimmed, UnsafeLog
from sow.shared_log.adapters.appender import Appender
from sow.shared_log.adapters.s3_objects import Objects, S3Place
from sow.shared_log.protocol import BLOCK_BYTES_MAX, StoredBlock

OBJECT_BLOCKS, OBJECT_BYTES = 1024, 4 * BLOCK_BYTES_MAX
"""What one object holds at most. The first is part of the format: positions are made of it."""
READ_AHEAD = 4
"""Objects that a reader holds at most while it catches up."""
POLL_S = 0.05
"""How often a reader requests the next object; a store sends no news. That is what a follower is
behind, and $0.70 a day at S3's prices."""
QUIET_POLLS = 20
"""After so many in vain a reader looks whether what it waits for was trimmed."""
FORMAT = b"sow1"
TOKEN_BYTES = 16
"""So that no two attempts are alike."""
HEAD_BYTES = len(FORMAT) + TOKEN_BYTES
LENGTH = struct.Struct(">I")
STORED_BYTES_MAX = HEAD_BYTES + OBJECT_BLOCKS * LENGTH.size + OBJECT_BYTES
"""A larger object is not ours."""
LOG_FOLDER, MARK_FOLDER = "log", "trim"
"""Folders of the place, beside that of the probe."""


def object_name(folder: str, number: int) -> str:
    """Names stand in the order of their numbers."""
    return f"{folder}/{number:016d}"


def packed(token: bytes, blocks: list[bytes]) -> bytes:
    """Blocks as one object; the token is that of one attempt to put it."""
    return FORMAT + token + b"".join(LENGTH.pack(len(block)) + block for block in blocks)


def unpacked(body: bytes) -> list[bytes]:
    """The blocks of an object; one that somebody else has put is a block that is void."""
    if not body.startswith(FORMAT):
        return [b""]
    blocks, at = [], HEAD_BYTES
    while at < len(body):
        begin = at + LENGTH.size
        if begin > len(body) or (at := begin + LENGTH.unpack_from(body, at)[0]) > len(body):
            return [b""]
        blocks.append(body[begin:at])
    return blocks if 0 < len(blocks) <= OBJECT_BLOCKS else [b""]


def stored_blocks(number: int, body: bytes) -> Iterator[StoredBlock]:
    """The blocks of an object with their positions."""
    blocks = unpacked(body)
    for position, block in enumerate(blocks, number * OBJECT_BLOCKS - len(blocks) + 1):
        yield StoredBlock(position, block)


async def newest(is_there: Callable[[int], Awaitable[bool]], known: int) -> int:
    """The greatest number of those that follow a known one without a gap."""
    step = 1
    while await is_there(known + step):
        known += step
        step *= 2
    while step := step // 2:
        if await is_there(known + step):
            known += step
    return known


class S3Log:
    """A client of the log at a place; each answer may take `answer_s`."""

    def __init__(self, place: S3Place, answer_s: float = 5.0) -> None:
        self.place = place
        self.answer_s = answer_s
        self._objects = Objects(place, lambda: self.answer_s)
        self._appender = Appender(self._stored, OBJECT_BYTES, OBJECT_BLOCKS)
        self._is_open = False
        self._opening = asyncio.Lock()
        self._marks, self._begin, self._end = 0, 1, 0
        """Marks, the first object and the newest one, as far as is known."""
        self._more = asyncio.Event()

    async def append(self, block: bytes) -> int:
        """See `SharedLog`."""
        return await self._appender.append(block)

    async def read(self, after: int) -> AsyncGenerator[StoredBlock, None]:
        """See `SharedLog`."""
        what = f"a read from position {after}"
        await self._open(what)
        number, width, quiet = after // OBJECT_BLOCKS + 1, 1, 0
        while True:
            more = self._more
            found = await self._bodies(what, number, width)
            if found or quiet % QUIET_POLLS == 0:
                await self._hear_of_trims(what)
            if number < self._begin:
                until = (self._begin - 1) * OBJECT_BLOCKS
                raise LogTrimmed(
                    f"the log at {self.place.shown} begins behind position {until}, and what "
                    f"follows {after} is needed",
                    until,
                )
            for body in found:
                for stored in stored_blocks(number, body):
                    if stored.position > after:
                        yield stored
                number += 1
            width = min(2 * width, READ_AHEAD) if len(found) == width else 1
            quiet = 0 if found else quiet + 1
            if not found:
                with suppress(TimeoutError):
                    await asyncio.wait_for(more.wait(), POLL_S)

    async def last(self) -> int:
        """See `SharedLog`."""
        return await self._newest("its newest position") * OBJECT_BLOCKS

    async def trim(self, before: int) -> None:
        """See `SharedLog`."""
        what = "a trim"
        # The newest object stays, and with it the end.
        begin = min((before - 1) // OBJECT_BLOCKS + 1, await self._newest(what))
        while begin > self._begin:
            await self._objects.put_new(
                what, object_name(MARK_FOLDER, self._marks + 1), b"%d" % begin
            )
            await self._hear_of_trims(what)
        await self._objects.delete_before(what, LOG_FOLDER, object_name(LOG_FOLDER, self._begin))

    async def close(self) -> None:
        """What is on its way is answered, or is not, in time."""
        await self._appender.close()

    async def _stored(self, blocks: list[bytes]) -> range:
        """Append blocks as one object; their positions."""
        what = "an append"
        await self._open(what)
        body = packed(secrets.token_bytes(TOKEN_BYTES), blocks)
        number = max(self._end + 1, self._begin)
        while not await self._objects.put_new(what, object_name(LOG_FOLDER, number), body):
            # It is ours if somebody on the way to the store has sent it twice.
            found = await self._objects.get(what, object_name(LOG_FOLDER, number), STORED_BYTES_MAX)
            if found == body:
                break
            if found is None:
                self._objects.unanswered(what, "somebody else puts the same object")
            number = await newest(self._is_object(what), number) + 1
        await self._hear_of_trims(what)
        if number < self._begin:
            self._objects.unanswered(what, "the log was trimmed, and it stands before its begin")
        self._end = max(self._end, number)
        more, self._more = self._more, asyncio.Event()
        more.set()
        last = number * OBJECT_BLOCKS
        return range(last - len(blocks) + 1, last + 1)

    async def _bodies(self, what: str, number: int, n: int) -> list[bytes]:
        """Objects that follow each other, as far as they are there."""
        names = [object_name(LOG_FOLDER, one) for one in range(number, number + n)]
        bodies = [self._objects.get(what, name, STORED_BYTES_MAX) for name in names]
        found = []
        for body in await asyncio.gather(*bodies):
            if body is None:
                break
            found.append(body)
        return found

    async def _newest(self, what: str) -> int:
        """The number of the newest object."""
        await self._open(what)
        while True:
            end = await newest(self._is_object(what), max(self._end, self._begin - 1))
            await self._hear_of_trims(what)
            if end >= self._begin - 1:
                self._end = max(self._end, end)
                return end

    def _is_object(self, what: str) -> Callable[[int], Awaitable[bool]]:
        return lambda number: self._objects.is_there(what, object_name(LOG_FOLDER, number))

    async def _hear_of_trims(self, what: str) -> None:
        """Read the newest mark, if there is one that is not known."""
        marks = await newest(
            lambda number: self._objects.is_there(what, object_name(MARK_FOLDER, number)),
            self._marks,
        )
        if marks == self._marks:
            return
        said = await self._objects.get(what, object_name(MARK_FOLDER, marks), 20)
        if not said or not said.isdigit():
            self._objects.unanswered(
                what, f"{object_name(MARK_FOLDER, marks)} is no mark of a trim"
            )
        self._marks, self._begin = max(self._marks, marks), max(self._begin, int(said))

    async def _open(self, what: str) -> None:
        """Find out once whether the store will do, and where the log begins."""
        async with self._opening:
            if self._is_open:
                return
            if not self.place.unsafe:
                await self._objects.refuse_overwriting()
            await self._hear_of_trims(what)
            await self._refuse_holes(what)
            self._is_open = True

    async def _refuse_holes(self, what: str) -> None:
        """Objects that follow no other one: somebody else deletes them."""
        begin = 0
        while begin != self._begin:  # until no trim came between
            begin = self._begin
            before = object_name(LOG_FOLDER, begin - 1)
            first = await self._objects.first_behind(what, LOG_FOLDER, before)
            await self._hear_of_trims(what)
        expected = object_name(LOG_FOLDER, begin)
        if first != expected and (first or begin > 1) and not self.place.unsafe:
            raise UnsafeLog(
                f"{expected} is missing at {self.place.shown}, where the log begins, so objects "
                "were deleted that nobody has trimmed: take a lifecycle rule that expires them "
                "away, and begin a new log by another <Url>"
            )
