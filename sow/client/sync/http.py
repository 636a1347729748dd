"""Questions and answers over HTTP, without asyncio; see `sow.client.http`."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from sow.client.http import Answer as AsyncAnswer
from sow.client.http import Http as AsyncHttp
from sow.client.http import Rows as AsyncRows
from sow.client.sync.bridge import Bridge


class Response(NamedTuple):
    """An answer over HTTP that is no error: its `status`, `headers` and whole `body`."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    """The HTTP side of one server, as `sow.client.http.Http`.

    Every method raises Unreachable and Disconnected, and what the server answers as an error.
    """

    def __init__(self, bridge: Bridge, http: AsyncHttp) -> None:
        self._bridge = bridge
        self._http = http

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._http.url

    @contextmanager
    def request(
        self, method: str, path: str, asked: Mapping[str, object] | None = None, **more: Any
    ) -> Iterator[Response]:
        """A response that is no error, read whole (`with`).

        `path` is that of the address, percent-encoded; `asked` its parameters, of which those that
        are None are left out; `more` may be `accept`, `body`, `content_type` and
        `any_status`.
        """
        with self._bridge.entered(self._http.request(method, path, asked, **more)) as response:
            body = self._bridge.wait(response.read())
            yield Response(response.status, response.headers, body)

    def json(
        self, method: str, path: str, asked: Mapping[str, object] | None = None, **more: Any
    ) -> Any:
        """The decoded answer of a request; arguments are those of `request`."""
        return self._bridge.wait(self._http.json(method, path, asked, **more))

    def table(self, topic: str, asked: Mapping[str, object]) -> Any:
        """A query answer as a pyarrow Table, of the types that the server says; `asked` is that of
        `rows`."""
        return self._bridge.wait(self._http.table(topic, asked))

    def columns(self, topic: str, select: object = None) -> Any:
        """The pyarrow Schema of tables of a topic's records, or of some of their fields."""
        return self._bridge.wait(self._http.columns(topic, select))

    def rows(self, topic: str, asked: Mapping[str, object]) -> "Rows":
        """A query answer that is read as it arrives.

        `asked` are parameters of `GET /v1/topics/{topic}/records`.
        """
        return Rows(self._bridge, self._http.rows(topic, asked))


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """A whole query answer, as `sow.client.Answer`: `asked` is that one.

    A table is asked for when it is wanted, by the same question: it shows that moment.
    """

    bridge: Bridge = field(repr=False)
    asked: AsyncAnswer

    @property
    def records(self) -> list[Any]:
        """Decoded bodies: a dict for JSON, str or bytes for other types."""
        return self.asked.records

    @property
    def matches(self) -> int:
        """How many records match, before paging."""
        return self.asked.matches

    @property
    def index(self) -> str:
        """What served the query."""
        return self.asked.index

    @property
    def bookmark(self) -> str:
        """The moment that it shows."""
        return self.asked.bookmark

    def to_arrow(self) -> Any:
        """The records as a pyarrow Table, of the types that the server says (docs/http.md)."""
        return self.bridge.wait(self.asked.to_arrow())

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError where there is no pandas."""
        return self.bridge.wait(self.asked.to_pandas())

    def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError where there is no polars."""
        return self.bridge.wait(self.asked.to_polars())


class Rows:
    """A query answer while it arrives; iterate it once, for the rows as JSON texts (bytes).

    It is asked for when it is first read or entered, and raises then what it is refused with
    (BadFilter, UnknownTopic, ClientError). It is given back at its end or that of `with`.
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
        """How many records match, before paging."""
        return self._opened().matches

    @property
    def index(self) -> str:
        """What served the query."""
        return self._opened().index

    @property
    def bookmark(self) -> str:
        """The moment that it shows."""
        return self._opened().bookmark

    def chunks(self) -> Iterator[list[bytes]]:
        """The rows in lists, as many at a time as came off the network together; raises
        Disconnected when the connection breaks before the last."""
        try:
            yield from self._bridge.each(self._opened().chunks())
        finally:
            self._close()

    def __iter__(self) -> Iterator[bytes]:
        for rows in self.chunks():
            yield from rows

    def all(self) -> TopicAnswer:
        """Everything that was not read yet, decoded; raises Disconnected."""
        try:
            return TopicAnswer(self._bridge, self._bridge.wait(self._opened().all()))
        finally:
            self._close()

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._close()
