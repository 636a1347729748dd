"""What the methods of a client request: their parameters, and queries sent when awaited.

The server makes the table of a query (`sow.messages.arrow`): its types are those of the topic,
whichever records match, and numbers that a double would round are exact.
"""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Generator, Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from sow.client.encode import Document, encode
from sow.client.http import Answer, Http, answer, length_prefixed, records_of
from sow.client.tables import ShownList, to_pandas, to_polars
from sow.core.media_types import FRAMES


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
        return await answer(self._http, self._topic, self._requested)

    async def to_arrow(self) -> Any:
        """The records as a pyarrow Table (types: docs/http.md)."""
        return await self._http.table(self._topic, self._requested)

    async def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError without pandas."""
        return to_pandas(await self.to_arrow())

    async def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError without polars."""
        return to_polars(await self.to_arrow())


class EventRequests(ABC):
    """What a client requests about the events of a series (docs/http.md)."""

    @property
    @abstractmethod
    def http(self) -> Http:
        """Sends the requests."""

    async def events(
        self,
        topic: str,
        key: str,
        *,
        from_: int | str | None = None,
        to: int | str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """The events of one record of a series, the oldest first: for each a dictionary with `seq`,
        `ts`, `author` and `d`, its body.

        `key` is a SowKey, or ``key=`` and the values of the key fields. `from_` and `to` are
        numbers of events or times, both inclusive; of what lies between, the newest `limit` are
        returned, 1,000 by default. Raises UnknownTopic, UnknownRecord, InvalidTopic for a topic
        without a Series.
        """
        requested = {"from": from_, "to": to, "limit": limit}
        found = await self.http.json("GET", _events_of(topic, key), requested, kind=list)
        return ShownList(f"events of {topic}, {key}", found)

    async def edit_event(self, topic: str, key: str, seq: int, message: Document) -> str:
        """Replace the body of event `seq` of a record by a message of the same record; returns the
        bookmark of that, once it is durable. `key` is that of `events`. Raises BadMessage,
        UnknownRecord for an event that is not retained."""
        body = length_prefixed([encode(message)])
        path = f"{_events_of(topic, key)}/{seq}"
        answer = await self.http.json("PUT", path, body=body, content_type=FRAMES, kind=dict)
        return str(answer["bookmark"])


def _events_of(topic: str, key: str) -> str:
    return f"{records_of(topic)}/{quote(key, safe='')}/events"


Paths = Sequence[str] | str
"""A list of paths or expressions, or the same as comma text."""
Interval = str | timedelta
"""``"1s"`` or a timedelta; ``"auto"`` leaves it to the server."""

FLAGS = ("oof", "no_empties", "timestamp", "no_sowkey", "live", "positions")


def given(arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments of a client's method (its `locals()`) that are not None, without the client
    and the topic."""
    return {
        name: value
        for name, value in arguments.items()
        if value is not None and name not in ("self", "topic")
    }


def parameters(requested: Mapping[str, object]) -> dict[str, object]:
    """A query or selection as HTTP parameters: lists as comma text, the rest unchanged."""
    found = dict(requested)
    for name in ("keys", "select"):
        if name in found:
            found[name] = _comma(found[name])
    return found | _groups(found)


def _groups(requested: Mapping[str, object]) -> dict[str, object]:
    """Lists of expressions, which may contain commas, as text."""
    found = {name: requested[name] for name in ("projection", "grouping") if name in requested}
    return {
        name: one if one is None or isinstance(one, str) else f"[{_comma(one)}]"
        for name, one in found.items()
    }


def subscription(
    topic: str, focus: Mapping[str, object], snapshot: bool
) -> tuple[str, dict[str, object]]:
    """A subscription's command and its fields (docs/websocket.md).

    `focus` has the arguments of `Client.subscribe` by name; with `snapshot` the current records
    come first.
    """
    given = dict(focus)
    command = "delta_subscribe" if given.pop("delta", False) else "subscribe"
    options = [flag for flag in FLAGS if given.pop(flag, False)]
    conflation, key = given.pop("conflation", None), given.pop("conflation_key", None)
    if (last := given.pop("last", None)) is not None:
        options.append(f"last={last}")
    if conflation is not None:
        options.append(f"conflation={_interval(conflation)}")
    if key is not None:
        options.append(f"conflation_key=[{_comma(key)}]")
    fields: dict[str, object] = {"t": topic, **given, **_groups(given)}
    if "select" in fields:
        fields["select"] = _comma(fields["select"])
    if "bookmark" in fields:
        fields["bm"] = fields.pop("bookmark")
    if options:
        fields["opts"] = ",".join(options)
    return f"sow_and_{command}" if snapshot else command, fields


def _comma(value: object) -> object:
    """A list as comma text; text as it is."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return value


def _interval(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)}us"
    return str(value)
