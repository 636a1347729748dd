"""A shared log in numbered objects of a store such as S3, MinIO or Google Cloud Storage.

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

`Objects` are those of the store: each answer comes in time or is none, nothing is sent again, and a
store that would write over an object is found out by a probe, before anything else is written.
"""

import asyncio
import secrets
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError
from obstore.store import from_url

from sow.errors import ConfigError, LogTrimmed, LogUnanswered, UnsafeLog
from sow.shared_log import BLOCK_BYTES_MAX, StoredBlock
from sow.shared_log.adapters import Appender

T = TypeVar("T")

SCHEMES = ("s3", "gs")
LIST_NAMES = 1000
"""What S3 lists, and deletes, in one request."""
NOT_THERE = (FileNotFoundError,)
THERE = (AlreadyExistsError, PreconditionError)
ANSWERS = (*NOT_THERE, *THERE, NotSupportedError)
"""Errors that are answers."""
NO_CONDITION = "NotImplemented"
"""How an S3 says that it does not know a header."""


@dataclass(frozen=True, kw_only=True)
class S3Place:
    """Where a log is; `<Log>` of config.xml. Options of the store follow the ? of its address."""

    url: str
    unsafe: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise ConfigError(
                f"<Url> {self.shown} of the shared log is no place for objects: write "
                "s3://bucket/name or gs://bucket/name; for another server of S3's kind "
                "s3://bucket/name?endpoint=http://host:9000"
            )

    @property
    def shown(self) -> str:
        """The address without its options: some are secret."""
        return self.url.partition("?")[0]

    def store(self) -> Any:
        """The store at this place; nothing is sent yet."""
        # Secret keys have a + in them, which is no blank here.
        options = dict(parse_qsl(urlsplit(self.url).query.replace("+", "%2B")))
        client: dict[str, Any] = {}
        if options.get("endpoint", "").startswith("http://"):
            client["allow_http"] = True
        try:
            return from_url(  # type: ignore[call-overload]
                self.shown, config=options, client_options=client, retry_config={"max_retries": 0}
            )
        except (BaseError, ValueError, TypeError) as error:
            why = str(error).partition("\n")[0]
            raise ConfigError(f"<Url> {self.shown} of the shared log: {why}") from None


class Objects:
    """The objects at a place; `answer_s` says how long an answer may take."""

    def __init__(self, place: S3Place, answer_s: Callable[[], float]) -> None:
        self._answer_s = answer_s
        self._place = place
        self._store = place.store()

    async def put_new(self, what: str, name: str, body: bytes) -> bool:
        """Put an object unless one of this name is there, and say whether it was put."""
        try:
            put = obstore.put_async(self._store, name, body, mode="create", use_multipart=False)
            await self._answer(what, put)
        except THERE:
            return False
        except NotSupportedError as error:
            self.unanswered(what, error)
        return True

    async def get(self, what: str, name: str, at_most: int) -> bytes | None:
        """An object; None: there is none, b"": it is larger than that."""
        return await self._answer(what, self._get(name, at_most))

    async def is_there(self, what: str, name: str) -> bool:
        """Whether there is an object of this name."""
        try:
            await self._answer(what, obstore.head_async(self._store, name))
        except NOT_THERE:
            return False
        return True

    async def first_behind(self, what: str, folder: str, name: str) -> str | None:
        """The first object of a folder that follows a name."""
        async for page in self._pages(what, folder, offset=name):
            return page[0] if page else None
        return None

    async def delete_before(self, what: str, folder: str, name: str) -> None:
        """Delete the objects of a folder that stand before a name, a page at a time."""
        async for page in self._pages(what, folder):
            before = [one for one in page if one < name]
            if before:
                with suppress(*NOT_THERE):  # somebody else has done it
                    await self._answer(what, obstore.delete_async(self._store, before))
            if len(before) < len(page):
                return

    async def refuse_overwriting(self) -> None:
        """Raise UnsafeLog where an object would be written over that is there."""
        what, name = "a probe", f"probe/{secrets.token_hex(8)}"
        try:
            is_put = await self.put_new(what, name, b"first")
            is_put_again = await self.put_new(what, name, b"second")
        except LogUnanswered as error:
            if isinstance(error.__cause__, NotSupportedError) or NO_CONDITION in error.detail:
                self._refuse("it does not know the condition")
            raise
        stays = await self.get(what, name, len(b"first")) == b"first"
        with suppress(*NOT_THERE):
            await self._answer(what, obstore.delete_async(self._store, name))
        if not is_put or is_put_again or not stays:
            self._refuse("it wrote over an object")

    def unanswered(self, what: str, why: object) -> NoReturn:
        """Nobody knows what came of it."""
        said = " ".join(str(why).split())[:300]
        raise LogUnanswered(
            f"the store has not answered {what} of {self._place.shown}: "
            f"{said or type(why).__name__}"
        ) from (why if isinstance(why, Exception) else None)

    def _refuse(self, why: str) -> NoReturn:
        raise UnsafeLog(
            f"the store at {self._place.shown} does not put an object only if none of that name is "
            f"there (If-None-Match: *): {why}, so two nodes would write over each other's entries; "
            "use S3, MinIO, or gs:// for Google Cloud Storage"
        )

    async def _get(self, name: str, at_most: int) -> bytes | None:
        try:
            got = await obstore.get_async(self._store, name)
            if got.meta["size"] > at_most:
                return b""
            return bytes(await got.bytes_async())
        except NOT_THERE:
            return None

    async def _pages(
        self, what: str, folder: str, offset: str | None = None
    ) -> AsyncIterator[list[str]]:
        pages = obstore.list(self._store, folder, offset=offset, chunk_size=LIST_NAMES)
        with suppress(StopAsyncIteration):
            while True:
                page = await self._answer(what, anext(pages))
                yield sorted(one["path"] for one in page)

    async def _answer(self, what: str, call: Awaitable[T]) -> T:
        seconds = self._answer_s()
        try:
            async with asyncio.timeout(seconds):
                return await call
        except ANSWERS:
            raise
        except TimeoutError:
            self.unanswered(what, f"nothing came within {seconds:g} s")
        except (BaseError, OSError, ValueError) as error:
            self.unanswered(what, error)


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
