"""A query that is sent when it is awaited, for its records or for a table.

The server makes the table (`sow.messages.arrow`): its types are those of the topic, whichever
records match, and numbers that a double would round are exact.
"""

from collections.abc import Coroutine, Generator, Mapping
from typing import Any

from sow.client.http import Answer, Http
from sow.client.tables import to_pandas, to_polars


class QueryRequest(Coroutine[Any, Any, Answer]):
    """A query of `topic` with the parameters `requested`, sent each time it is awaited.

    It is also a coroutine, so that it can be run as a task.
    """

    def __init__(self, http: Http, topic: str, requested: Mapping[str, object]) -> None:
        self._http = http
        self._topic = topic
        self._requested = requested
        self._task: Coroutine[Any, Any, Answer] | None = None

    def __await__(self) -> Generator[Any, None, Answer]:
        return self.answer().__await__()

    def send(self, value: Any) -> Any:
        """As of a coroutine that gives the records."""
        return self._coroutine().send(value)

    def throw(self, *error: Any) -> Any:
        """As of a coroutine that gives the records."""
        return self._coroutine().throw(*error)

    def close(self) -> None:
        """As of a coroutine."""
        if self._task is not None:
            self._task.close()

    def _coroutine(self) -> Coroutine[Any, Any, Answer]:
        if self._task is None:
            self._task = self.answer()
        return self._task

    async def answer(self) -> Answer:
        """The records, decoded; the same as awaiting the query itself."""
        async with self._http.rows(self._topic, self._requested) as rows:
            return await rows.all()

    async def to_arrow(self) -> Any:
        """The records as a pyarrow Table (types: docs/http.md)."""
        return await self._http.table(self._topic, self._requested)

    async def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError without pandas."""
        return to_pandas(await self.to_arrow())

    async def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError without polars."""
        return to_polars(await self.to_arrow())
