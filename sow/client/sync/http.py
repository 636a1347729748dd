"""Requests over HTTP, without asyncio; see `sow.client.http`."""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, NamedTuple, Self

from sow.client.http import Answer as AsyncAnswer
from sow.client.http import Http as AsyncHttp
from sow.client.http import Rows as AsyncRows
from sow.client.sync.bridge import Bridge, SyncWrapper, handed, waited
from sow.client.tables import AnswerTable, to_pandas, to_polars
from sow.core.media_types import JSON
from sow.errors import ClientError


class Response(NamedTuple):
    """An HTTP response: its `status`, `headers` and whole `body`."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http(SyncWrapper[AsyncHttp]):
    """The HTTP API of one server, as `sow.client.http.Http`.

    Every method raises Unreachable and Disconnected, and the errors that the server reports.
    """

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.awaited.url

    @contextmanager
    def request(
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
    ) -> Iterator[Response]:
        """A response with its whole body (`with`); a status of 400 or more raises an error, unless
        `any_status` is set.

        `path` is percent-encoded; `params` are the parameters, without those that are None;
        `accept` and `content_type` are media types, `body` is sent as it is, `prefer` (RFC 7240)
        and `idempotency_key` (docs/http.md, "Exactly once") are the headers of these names.
        """
        opening = self.awaited.request(
            method,
            path,
            params,
            accept=accept,
            body=body,
            content_type=content_type,
            any_status=any_status,
            prefer=prefer,
            idempotency_key=idempotency_key,
        )
        with self._bridge.entered(opening) as response:
            read = self._bridge.wait(response.read())
            yield Response(response.status, response.headers, read)

    json = waited(AsyncHttp.json)
    table = waited(AsyncHttp.table)
    columns = waited(AsyncHttp.columns)

    def rows(self, topic: str, params: Mapping[str, object]) -> "Rows":
        """A query answer, read as it arrives (`with` or `for`).

        `params` are parameters of `GET /v1/topics/{topic}/records`.
        """
        return Rows(self._bridge, self.awaited.rows(topic, params))


class TopicAnswer(SyncWrapper[AsyncAnswer]):
    """A whole query answer as of one moment, like `sow.client.Answer`."""

    @property
    def records(self) -> list[Any]:
        """Decoded bodies: a dict for JSON, str or bytes for other types."""
        return self.awaited.records

    @property
    def matches(self) -> int:
        """The number of records that match, before paging."""
        return self.awaited.matches

    @property
    def index(self) -> str:
        """The access path of the query."""
        return self.awaited.index

    @property
    def bookmark(self) -> str:
        """The moment of the answer."""
        return self.awaited.bookmark

    @property
    def advice(self) -> tuple[str, ...]:
        """Sentences on fields that no record has."""
        return self.awaited.advice

    @property
    def tables(self) -> AnswerTable:
        """Converts the records to tables."""
        return self.awaited.tables

    preview = handed(AsyncAnswer.preview)

    def to_arrow(self) -> Any:
        """The records as a pyarrow Table, of the topic's types (docs/clients.md, Tables)."""
        if not self.tables.is_settled:
            with contextlib.suppress(ClientError):  # the client may be closed
                self._bridge.wait(self.tables.settle())
        return self.tables.table(self.records)

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError without pandas."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError without polars."""
        return to_polars(self.to_arrow())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicAnswer) and self.awaited == other.awaited

    __hash__ = None  # type: ignore[assignment]  # it holds a list

    def __repr__(self) -> str:
        return repr(self.awaited)


class Rows:
    """A query answer while it arrives; iterate it once, for the rows as JSON texts (bytes).

    The request is sent when it is first read or entered, and raises BadFilter, UnknownTopic,
    ClientError then. Its connection is released at its end or that of `with`.
    """

    def __init__(self, bridge: Bridge, opening: AbstractAsyncContextManager[AsyncRows]) -> None:
        self._bridge = bridge
        self._opening = opening
        self._rows: AsyncRows | None = None
        self._open = False

    def _opened(self) -> AsyncRows:
        if self._rows is None:
            self._rows = self._bridge.enter(self._opening)
            self._open = True
        return self._rows

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._bridge.leave(self._opening)

    @property
    def matches(self) -> int:
        """The number of records that match, before paging."""
        return self._opened().matches

    @property
    def index(self) -> str:
        """The access path of the query."""
        return self._opened().index

    @property
    def bookmark(self) -> str:
        """The moment of the answer."""
        return self._opened().bookmark

    @property
    def advice(self) -> tuple[str, ...]:
        """Sentences on fields that no record has."""
        return self._opened().advice

    def chunks(self) -> Iterator[list[bytes]]:
        """The rows in lists, as they arrive from the network; raises Disconnected when the
        connection breaks before the last."""
        try:
            yield from self._bridge.each(self._opened().chunks())
        finally:
            self._close()

    def __iter__(self) -> Iterator[bytes]:
        for rows in self.chunks():
            yield from rows

    def all(self) -> TopicAnswer:
        """All remaining rows, decoded; raises Disconnected."""
        try:
            return TopicAnswer(self._bridge, self._bridge.wait(self._opened().all()))
        finally:
            self._close()

    def _repr_html_(self) -> str | None:
        """What notebooks show, once it is opened: what is known before the rows."""
        return None if self._rows is None else self._rows._repr_html_()

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()
