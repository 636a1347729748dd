"""Measures a server: its figures of `/metrics`, times of requests, and records for durable writes.

Records that a command writes and deletes again go into a topic that the user names, because its
subscribers see them. Their keys have a prefix of their own, and a topic that already holds such
records is refused: so the command never overwrites or deletes other records.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

from sow.cli.tables import Column
from sow.client import Client, Publisher, Subscription
from sow.client.errors import OlderServer, not_sow
from sow.client.http import taken
from sow.core.humanize import counted, duration
from sow.core.media_types import PLAIN_TEXT
from sow.core.paths import Path, parse_path
from sow.errors import ClientError, NotEntitled, shown

ALIVE = b"ok\n"
"""The server's answer to `/healthz`: the response time of any other page means nothing."""
SPREAD_COLUMNS = (
    Column("what"),
    Column("median", is_number=True),
    Column("p99", is_number=True),
    Column("min", is_number=True),
    Column("times", is_number=True),
)


class Percentiles(NamedTuple):
    """A summary of `times` measured times, in seconds."""

    times: int
    min_s: float
    median_s: float
    p99_s: float

    @classmethod
    def of(cls, taken_s: Sequence[float]) -> Self:
        """The summary of at least one time."""
        sorted_s = sorted(taken_s)
        return cls(len(sorted_s), sorted_s[0], _rank(sorted_s, 0.5), _rank(sorted_s, 0.99))

    def row(self, what: str) -> dict[str, str]:
        """This summary as a row of a table with `SPREAD_COLUMNS`."""
        cells = map(duration, (self.median_s, self.p99_s, self.min_s))
        return {"what": what, "times": f"{self.times:,}"} | dict(
            zip(("median", "p99", "min"), cells, strict=True)
        )

    def document(self) -> dict[str, float]:
        """This summary as JSON."""
        figures_ms = {
            "min_ms": self.min_s * 1000,
            "median_ms": self.median_s * 1000,
            "p99_ms": self.p99_s * 1000,
        }
        return {"count": self.times} | {name: round(ms, 3) for name, ms in figures_ms.items()}


async def answered(client: Client, count: int) -> Percentiles:
    """Response times of a trivial request."""
    taken_s, url = [], client.http.url
    for _ in range(count + 1):
        began_s = time.perf_counter()
        async with client.http.request("GET", "/healthz") as answer:
            body = await taken(url, answer)
        if body != ALIVE:
            raise not_sow(url, "something else to /healthz")
        taken_s.append(time.perf_counter() - began_s)
    # The first request has opened the connection.
    return Percentiles.of(taken_s[1:])


def _rank(sorted_s: Sequence[float], fraction: float) -> float:
    """The shortest time that this share of all does not exceed."""
    return sorted_s[max(0, math.ceil(fraction * len(sorted_s)) - 1)]


SENT = "name a json topic with a Key, or add one to the configuration for it"
AT_ONCE = 1000
"""Records deleted by one frame: as many as the client publishes in one."""


class ProbeRecords:
    """Records of one topic, each with `word` and a number in every field of its key."""

    def __init__(self, client: Client, topic: str, keys: list[Path], word: str) -> None:
        self.topic = topic
        self._client = client
        self._keys = keys
        self._word = word
        self._used = 0
        """Record that the records up to this number may exist."""

    @classmethod
    async def begin(cls, client: Client, topic: str, word: str) -> Self:
        """Records for a topic; raises ClientError that suggests another topic if this one cannot
        hold them, and errors of the server."""
        described = await client.topic(topic)
        if described["kind"] != "topic":
            kind = described["kind"]
            raise ClientError(f"{shown(topic)} is of kind {kind}, which takes no messages; {SENT}")
        if described["message_type"] != "json":
            kind = described["message_type"]
            raise ClientError(f"the messages of {shown(topic)} are of type {kind}; {SENT}")
        keys = [parse_path(text) for text in described["keys"]]
        if not keys or any(key.index is not None for key in keys):
            raise ClientError(f"{shown(topic)} has no Key to identify records; {SENT}")
        made = cls(client, topic, keys, word)
        await made._refuse_others()
        return made

    async def _refuse_others(self) -> None:
        condition = f"{self._keys[0]} LIKE '^{self._word}-'"
        there = (await self._client.query(self.topic, filter=condition, top_n=0)).matches
        if there:
            raise ClientError(
                f"{shown(self.topic)} holds {counted(there, 'record')} of an earlier run; "
                f'delete them: sow delete {self.topic} --filter "{condition}"'
            )

    def document(self, number: int, **fields: object) -> dict[str, Any]:
        """Record `number`, with these extra fields."""
        self._used = max(self._used, number + 1)
        return self._key(number, dict(fields))

    def filter_of(self, number: int) -> str:
        """An expression that matches record `number` only."""
        return " AND ".join(f"{key} = '{self._word}-{number}'" for key in self._keys)

    def _key(self, number: int, document: dict[str, Any]) -> dict[str, Any]:
        for key in self._keys:
            place = document
            for name in key.steps[:-1]:
                place = place.setdefault(name, {})
            place[key.steps[-1]] = f"{self._word}-{number}"
        return document

    async def until_delivered_s(
        self, publisher: Publisher, messages: Subscription, **fields: object
    ) -> float:
        """Publish record 0 with these fields; returns the seconds until `messages`, which follow
        it, have it."""
        began_s = time.perf_counter()
        await publisher.send([self.document(0, **fields)])
        while not any(one.c == "p" for one in await messages.batch()):
            pass
        return time.perf_counter() - began_s

    async def take_away(self, publisher: Publisher) -> None:
        """Delete all records, and wait until that is durable."""
        for start in range(0, self._used, AT_ONCE):
            some: Iterable[int] = range(start, min(self._used, start + AT_ONCE))
            await publisher.delete([self._key(number, {}) for number in some])
        await publisher.drain()
        self._used = 0


Samples = Mapping[str, Mapping[str, float]]
"""By name, and by the value of the only label, "" without one."""


async def scraped(client: Client) -> Samples | None:
    """The figures of a server, without those of single topics, which may be very many; None if the
    user may not see them."""
    try:
        text = await _exposition(client, {"topics": False})
    except OlderServer:
        text = await _exposition(client, {})
    except NotEntitled:
        return None
    try:
        return samples(text)
    except ValueError as error:
        raise not_sow(client.http.url, "other figures than those of /metrics") from error


async def _exposition(client: Client, requested: Mapping[str, object]) -> str:
    async with client.http.request("GET", "/metrics", requested, accept=PLAIN_TEXT) as answer:
        return (await taken(client.http.url, answer)).decode(errors="replace")


def samples(text: str) -> Samples:
    """The figures of an exposition, without those of single topics, which have more labels."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        sample: Any
        for sample in family.samples:
            label = next(iter(sample.labels.values()), "")
            found.setdefault(sample.name, {})[label] = sample.value
    return found
