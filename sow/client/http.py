"""Requests over HTTP.

Query answers are read line by line as they arrive, so a large one never has to fit in memory.

The address may be that of another server, of a proxy's error page, or of another version of SOW.
Reading a field that an answer does not have raises an error that explains this, instead of a
KeyError. Types of values are not checked in advance: code that converts them runs within
`understood`, which reports a value of a wrong type in the same way.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import aiohttp
import msgspec
import orjson
from yarl import URL

from sow.client.connector import ANYBODY, ClientAuth, first_answer
from sow.client.errors import (
    Disconnected,
    OlderServer,
    Unreachable,
    failure,
    not_sow,
    reported,
)
from sow.client.tables import (
    AnswerTable,
    ShownTable,
    fields_html,
    from_stream,
    short_text,
    shown_table,
    to_pandas,
    to_polars,
)
from sow.core.addresses import Addresses
from sow.core.media_types import ADVICE_HEADER, ARROW, COLUMNS_HEADER, JSON, NDJSON, PREFER_COLUMNS
from sow.errors import NotPrimary, SowError, Unauthenticated, shown

SAFE_METHODS = ("GET", "HEAD")
"""Methods of requests that can be sent again, whatever became of the first."""

WHOLE_BYTES = 1024**2
"""A body up to so many bytes is written to the socket at once, as aiohttp advises."""


TAKEN_BYTES_MAX = 512 * 1024**2
"""Of an answer that is read as a whole and is not a table: twice a million records. A longer one
does not come from a SOW server, or has to be read row by row (`Rows`)."""


PRIMARY = "SOW-Primary"
"""The header in which a follower names the server for what it does not do itself."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole query answer, as of one moment.

    `records` are decoded bodies: a dict for JSON, str or bytes for other types. `matches` is the
    number of records that match, before `skip_n` and `top_n`; `index` names the access path;
    `bookmark` is the moment of the answer. `tables` converts its records to tables. `advice` are
    sentences on fields that the query names and no record has, such as misspelt ones.
    """

    records: list[Any]
    matches: int
    index: str
    bookmark: str
    tables: AnswerTable = field(repr=False, compare=False)
    advice: tuple[str, ...] = ()

    async def to_arrow(self) -> Any:
        """The records as a pyarrow Table, of the topic's types (docs/clients.md, Tables)."""
        await self.tables.settle()
        return self.tables.table(self.records)

    async def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError where there is no pandas."""
        return to_pandas(await self.to_arrow())

    async def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError where there is no polars."""
        return to_polars(await self.to_arrow())

    def preview(self) -> ShownTable:
        """The first records, as a table of bounded texts, and the advice."""
        found = shown_table(self.tables.topic, None, self.records, len(self.records), self.matches)
        return found._replace(caption="; ".join((found.caption, *map(short_text, self.advice))))

    def _repr_html_(self) -> str:
        """What notebooks show: the first records."""
        return self.preview().html()


def read_advice(header: str) -> tuple[str, ...]:
    """The sentences of the header with advice."""
    return tuple(unquote(one) for one in header.split("; ") if one)


class Rows:
    """A query answer while it arrives; iterate it once, for the rows as JSON texts (bytes).

    `matches` is the number of records that match before paging, `index` names the access path,
    `bookmark` is the moment of the answer; `advice` are sentences on fields that no record has.
    """

    def __init__(
        self,
        url: str,
        response: aiohttp.ClientResponse,
        topic: str,
        columns: Callable[[], Awaitable[Any]],
    ) -> None:
        self._url = url
        self._response = response
        self._topic = topic
        self._columns = columns
        self.matches = int(response.headers.get("SOW-Matches", 0))
        self.index = response.headers.get("SOW-Index", "")
        self.bookmark = response.headers.get("SOW-Bookmark", "")
        self.advice = read_advice(response.headers.get(ADVICE_HEADER, ""))

    def _repr_html_(self) -> str:
        """What notebooks show: what is known before the rows."""
        names = ("matches", "index", "bookmark", "advice")
        return fields_html(f"rows of {self._topic}", {name: getattr(self, name) for name in names})

    async def chunks(self) -> AsyncIterator[list[bytes]]:
        """The rows in lists, as they arrive from the network; raises Disconnected when the
        connection breaks before the last."""
        rest: list[bytes] = []
        async for data in pieces(self._url, self._response):
            first, *others = data.split(b"\n")
            rest.append(first)
            if others:
                yield [b"".join(rest), *others[:-1]]
                rest = [others[-1]]
        if last := b"".join(rest):
            yield [last]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for rows in self.chunks():
            for row in rows:
                yield row

    async def all(self) -> Answer:
        """All remaining rows, decoded; raises Disconnected."""
        texts = [row async for row in self]
        sent = self._response.headers.get(COLUMNS_HEADER)
        tables = AnswerTable(self._topic, texts, sent, self._columns)
        records = [msgspec.json.decode(row) for row in texts]
        return Answer(records, self.matches, self.index, self.bookmark, tables, self.advice)


class Http:
    """The HTTP API of the server at `url`, for requests without a method of their own
    (docs/http.md).

    Of several addresses a request goes to the one in use, and one that a follower does not answer
    to the primary. Every method raises Unreachable and Disconnected, and the errors that the server
    reports.
    """

    def __init__(
        self, addresses: Addresses, session: aiohttp.ClientSession, access: ClientAuth = ANYBODY
    ) -> None:
        self._addresses = addresses
        self._session = session
        self._access = access

    @property
    def url(self) -> str:
        """The address of the server in use."""
        return self._addresses.current

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, object] | None = None,
        *,
        accept: str = JSON,
        body: bytes | None = None,
        content_type: str | None = None,
        any_status: bool = False,
        prefer: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response whose body is not read yet (`async with`); a status of 400 or more raises an
        error, unless `any_status` is set.

        `path` is percent-encoded; `params` are the parameters, without those that are None;
        `accept` and `content_type` are media types, `body` is sent as it is, `prefer` (RFC 7240)
        and `idempotency_key` (docs/http.md, "Exactly once") are the headers of these names.
        """
        query = {name: _text(value) for name, value in (params or {}).items() if value is not None}
        is_read = method in SAFE_METHODS or path == "/v1/snapshots"
        if is_read and (least := self._addresses.min_bookmark):
            query.setdefault("min_bookmark", least)
        # Compression takes longer than it saves on a local network.
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        if content_type is not None:
            headers["Content-Type"] = content_type
        if prefer is not None:
            headers["Prefer"] = prefer
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key

        async def attempt(url: str) -> aiohttp.ClientResponse:
            sent = headers | self._access.headers()
            with reported(url):
                address = URL(url + path, encoded=True).update_query(query)
                response = await self._session.request(
                    method, address, headers=sent, data=_sent(body)
                )
                primary = response.headers.get(PRIMARY) if response.status == 421 else None
                if primary is not None or (response.status >= 400 and not any_status):
                    raise await _problem(url, response, query, primary)
            return response

        response = await first_answer(self._addresses, attempt, not is_read, is_read)
        if method == "DELETE":  # whose answer has no bookmark but this
            self._addresses.wrote(response.headers.get("SOW-Bookmark", ""))
        # Outside `reported`: errors of the caller's block are not errors of the network.
        async with response:
            yield response

    async def json(
        self,
        method: str,
        path: str,
        params: Mapping[str, object] | None = None,
        *,
        accept: str = JSON,
        body: bytes | None = None,
        content_type: str | None = None,
        any_status: bool = False,
        idempotency_key: str | None = None,
        kind: type[list[Any]] | type[dict[str, Any]] | None = None,
    ) -> Any:
        """The decoded answer of a request; arguments are those of `request`, and `kind` is the
        expected type: a `list` or a `dict`.

        Raises Unreachable for an answer that is not JSON or not of that type. Reading a field that
        it does not have raises Unreachable too: the server is not SOW, or another version.
        """

        async def content() -> bytes:
            opening = self.request(
                method,
                path,
                params,
                accept=accept,
                body=body,
                content_type=content_type,
                any_status=any_status,
                idempotency_key=idempotency_key,
            )
            async with opening as response:
                return await taken(self.url, response)

        if method in SAFE_METHODS:
            return decoded(self.url, await self._whole(content), kind)
        found = decoded(self.url, await content(), kind)
        if isinstance(found, dict):
            self._addresses.wrote(str(found.get("bookmark", "")))
        return found

    async def _whole(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """What `read` returns, which reads a whole answer: once more if the connection breaks
        meanwhile and there is another address."""
        try:
            return await read()
        except Disconnected:
            if not self._addresses.are_several:
                raise
            return await read()

    async def table(self, topic: str, params: Mapping[str, object]) -> Any:
        """A query answer as a pyarrow Table, with the types that the server gives.

        `params` are parameters of `GET /v1/topics/{topic}/records`.
        """

        async def content() -> bytes:
            async with self.request("GET", records_of(topic), params, accept=ARROW) as response:
                with reported(self.url):
                    return await response.read()

        return from_stream(await self._whole(content))

    async def columns(
        self,
        topic: str,
        select: object = None,
        *,
        projection: object = None,
        grouping: object = None,
    ) -> Any:
        """The pyarrow Schema of tables of a topic's records, or of some of their fields; or of
        aggregates over them, by `projection` and `grouping`."""
        requested = {"select": select, "projection": projection, "grouping": grouping}
        return (await self.table(topic, {"top_n": 0, **requested})).schema

    @asynccontextmanager
    async def rows(self, topic: str, params: Mapping[str, object]) -> AsyncIterator[Rows]:
        """A query answer, read as it arrives (`async with`).

        `params` are parameters of `GET /v1/topics/{topic}/records`.
        """
        opening = self.request(
            "GET", records_of(topic), params, accept=NDJSON, prefer=PREFER_COLUMNS
        )
        async with opening as response:
            kind = response.headers.get("Content-Type", NDJSON)
            if not kind.startswith(NDJSON):
                raise not_sow(self.url, kind)
            yield Rows(self.url, response, topic, partial(self._schema, topic, params))

    async def _schema(self, topic: str, requested: Mapping[str, object]) -> Any:
        """The pyarrow Schema of the answer to a query, which is sent for no rows."""
        return (await self.table(topic, {**requested, "top_n": 0, "skip_n": None})).schema


async def answer(http: Http, topic: str, params: Mapping[str, object]) -> Answer:
    """A query answer as a whole."""

    async def read() -> Answer:
        async with http.rows(topic, params) as rows:
            return await rows.all()

    return await http._whole(read)


async def taken(url: str, response: aiohttp.ClientResponse) -> bytes:
    """The whole body of an answer; raises Unreachable if it is too long, and Disconnected."""
    parts, size_bytes = [], 0
    async for part in pieces(url, response):
        parts.append(part)
        size_bytes += len(part)
        if size_bytes > TAKEN_BYTES_MAX:
            raise not_sow(url, f"over {TAKEN_BYTES_MAX >> 20} MiB")
    return b"".join(parts)


async def pieces(url: str, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body of an answer in pieces, as they arrive; raises Disconnected."""
    while True:
        with reported(url):
            piece = await response.content.readany()
        if not piece:
            return
        yield piece


def topic_path(topic: str) -> str:
    """The path of a topic, its name percent-encoded."""
    return f"/v1/topics/{quote(topic, safe='')}"


def records_of(topic: str) -> str:
    """The path of a topic's records."""
    return f"{topic_path(topic)}/records"


def length_prefixed(bodies: list[bytes]) -> bytes:
    """Bodies in one request, each after its length as 4 bytes, big-endian."""
    return b"".join([len(body).to_bytes(4, "big") + body for body in bodies])


def _sent(body: bytes | None) -> bytes | BytesIO | None:
    """A body for aiohttp: a long one is read in pieces."""
    return BytesIO(body) if body is not None and len(body) > WHOLE_BYTES else body


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _problem(
    url: str, response: aiohttp.ClientResponse, params: Mapping[str, str], primary: str | None
) -> SowError:
    try:
        report = orjson.loads(await taken(url, response))
        assert isinstance(report, dict)
    except (orjson.JSONDecodeError, AssertionError):
        if response.status == Unauthenticated.status:
            # Perhaps from a proxy in front of the server.
            return Unauthenticated(
                f"{url} requires credentials: give a token (SOW_TOKEN), or a user and password"
            )
        return SowError(f"{url} does not speak SOW: it answered {response.status}")
    given = {"status": response.status, **report}
    if primary is not None:
        return failure({**given, "reason": NotPrimary.reason, "primary": primary})
    found = failure(given)
    unknown = [name for name in params if found.detail.startswith(f"no parameter {shown(name)}")]
    return OlderServer(url, found.detail) if unknown else found


SHOWN_CHARS = 40
"""Characters of an invalid answer that an error shows: enough to recognise a page."""


class AnsweredFields(dict[str, Any]):
    """An object of an answer; a missing field is an error of the server at `url`."""

    def __init__(self, url: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self._url = url

    def __missing__(self, name: str) -> Any:
        raise Unreachable(
            f"the answer of {self._url} has no {name!r}: it is of another version, or no SOW"
        )


def decoded(
    url: str, content: bytes, kind: type[list[Any]] | type[dict[str, Any]] | None = None
) -> Any:
    """The decoded answer of the server at `url`; raises Unreachable unless it is JSON, and of
    `kind` if one is given."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise not_sow(url, _shown(content)) from error
    if kind is not None and not isinstance(found, kind):
        raise not_sow(url, _shown(content))
    return _answered(url, found)


@contextmanager
def understood(url: str) -> Iterator[None]:
    """Read values of an answer of the server at `url`; raises Unreachable if one has a wrong type.
    Only code that reads the answer belongs in the block."""
    try:
        yield
    except (TypeError, ValueError, AttributeError) as error:
        raise Unreachable(
            f"the answer of {url} has a value of a wrong type: it is of another version, or no SOW"
        ) from error


def _answered(url: str, found: Any) -> Any:
    if isinstance(found, dict):
        return AnsweredFields(url, {name: _answered(url, value) for name, value in found.items()})
    if isinstance(found, list):
        return [_answered(url, value) for value in found]
    return found


def _shown(content: bytes) -> str:
    text = " ".join(content[: 4 * SHOWN_CHARS].decode(errors="replace").split())
    return repr(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…") if text else ""
