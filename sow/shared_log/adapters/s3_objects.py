"""Objects of a store that others operate: S3, MinIO, Google Cloud Storage.

What a log needs of it: put an object unless one of that name is there, get one, see whether one is
there, list and delete. Each answer comes in time or is none, nothing is sent again, and a store
that would write over an object is found out by a probe, before anything else is written.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError
from obstore.store import from_url

from sow.errors import ConfigError, LogUnanswered, UnsafeLog

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
