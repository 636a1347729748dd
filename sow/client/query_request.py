"""A query that is asked when it is awaited: for its records, or for a table of them.

A table is what the server makes of the records (`sow.messages.arrow`): its types are those of the
topic, whichever records are asked for, and numbers that a double would round stay as they are.
"""

from collections.abc import Coroutine, Generator, Mapping
from typing import Any

from sow.client.http import Answer, Http
from sow.client.tables import to_pandas, to_polars


class QueryRequest(Coroutine[Any, Any, Answer]):
    """A query of `topic`; `asked` are its parameters. Each time it is awaited it is asked anew.

    It is a coroutine too, so that a task can be made of it.
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
        """As of a coroutine; nothing is asked any more."""
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
        """The records as a pyarrow Table (docs/http.md says of which types)."""
        return await self._http.table(self._topic, self._requested)

    async def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError where there is no pandas."""
        return to_pandas(await self.to_arrow())

    async def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError where there is no polars."""
        return to_polars(await self.to_arrow())
