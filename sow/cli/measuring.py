"""Measures a server: its figures of `/metrics`, times of requests, and records for durable writes.

Records that a command writes and deletes again go into a topic that the user names, because its
subscribers see them. Their keys have a prefix of their own, and a topic that already holds such
records is refused: so the command never overwrites or deletes other records.

Rates are what a server did between two snapshots of its figures. A snapshot combines the answers of
`/v1/topics` (with the topics of a pattern as one), `/v1/sessions` and `/metrics` at one time.
Nothing of rates sends requests, reads a clock or draws.
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


Described = Mapping[str, Any]
PATTERN = "pattern"
RATE_COLUMNS = (
    Column("topic"),
    Column("in/s", is_number=True),
    Column("out/s", is_number=True),
    Column("ratio", is_number=True),
    Column("pending", is_number=True),
    Column("oldest", is_number=True),
    Column("records", is_number=True),
    Column("kind"),
)
PUBLISHED = frozenset({"topic", PATTERN})
"""Kinds of source topics; derived topics are no traffic of their own."""


class Memory(NamedTuple):
    """What waits for sessions takes and may take, and groups that clients ask for; in bytes."""

    queues: float
    queues_max: float
    groups: float
    groups_max: float

    @property
    def queues_part(self) -> float:
        """How full queue memory is."""
        return self.queues / max(1.0, self.queues_max)

    @property
    def groups_part(self) -> float:
        """How full the memory of groups is."""
        return self.groups / max(1.0, self.groups_max)


class Look(NamedTuple):
    """A server's figures at `at_s`; the longest steps in seconds, by name, and memory, if it
    reported them."""

    at_s: float
    topics: Sequence[Described]
    sessions: Sequence[Described]
    steps_s: Mapping[str, float] | None
    memory: Memory | None = None
    status: Described | None = None
    """What the server says of itself; None: it is of an earlier version."""


class TopicRates(NamedTuple):
    """Figures of one topic, or of all topics of a pattern: changes per second in and out, the
    ratio of changes in to changes out since its start, and how much waits."""

    name: str
    kind: str
    records: int
    in_per_s: float
    out_per_s: float
    ratio: float
    pending: int
    oldest_ms: float

    def row(self) -> dict[str, str]:
        """This topic as a row of a table with `RATE_COLUMNS`."""
        is_made = self.kind not in PUBLISHED
        return {
            "topic": self.name,
            "kind": self.kind,
            "records": f"{self.records:,}",
            "in/s": f"{self.in_per_s:,.0f}",
            "out/s": f"{self.out_per_s:,.0f}" if is_made else "",
            "ratio": f"{self.ratio:.1f}x" if is_made else "",
            "pending": f"{self.pending:,}" if is_made else "",
            "oldest": duration(self.oldest_ms / 1000) if is_made else "",
        }

    def sentence(self) -> str:
        """The same as a line of text."""
        rates = f"{self.in_per_s:,.0f}/s in {self.out_per_s:,.0f}/s out"
        return f"{self.name} {rates} {self.ratio:.1f}x"

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        figures = self._asdict().items()
        return {name: round(v, 3) if isinstance(v, float) else v for name, v in figures}


class Activity(NamedTuple):
    """What a server did between two snapshots."""

    in_per_s: float
    """Changes of the source topics."""
    topics: list[TopicRates]
    sessions: int
    away: int
    slow: list[Described]
    """Sessions with waiting messages, those furthest behind first."""
    lag_ms: float
    queued: int
    longest: tuple[str, float] | None
    """The step that has blocked the loop longest since the server's start, in seconds."""
    memory: Memory | None
    largest: Described | None
    """A session of the client for which most waits, if anything does."""
    status: Described | None = None
    """What the server says of itself and of the other nodes."""

    @property
    def nodes(self) -> list[Described]:
        """The nodes of its log, each behind the one that it follows or is chained to; none where
        there is only one."""
        found = [] if self.status is None else tree(self.status.get("nodes") or ())
        return found if len(found) > 1 else []

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        longest = self.longest and {"step": self.longest[0], "ms": round(self.longest[1] * 1000, 3)}
        return {
            "in_per_s": round(self.in_per_s, 1),
            "sessions": {
                "connected": self.sessions - self.away,
                "away": self.away,
                "lag_ms": self.lag_ms,
                "queue_messages": self.queued,
                "slow": list(self.slow),
            },
            "longest_step": longest,
            "memory": self._memory_document(),
            "topics": [one.document() for one in self.topics],
            "status": self.status,
        }

    def _memory_document(self) -> dict[str, Any] | None:
        if self.memory is None:
            return None
        largest = self.largest and {
            "id": self.largest["id"],
            "client": self.largest["client"],
            "client_bytes": self.largest["client_bytes"],
        }
        figures = {name: int(size) for name, size in self.memory._asdict().items()}
        return {**figures, "largest": largest}


SORTS: Mapping[str, str] = {
    "in": "in_per_s",
    "out": "out_per_s",
    "ratio": "ratio",
    "pending": "pending",
    "lag": "oldest_ms",
    "records": "records",
    "name": "name",
}
"""Sort options of topics, and the fields of `TopicRates`."""


def activity(before: Look, now: Look) -> Activity:
    """What happened between two snapshots; counters of a restarted server begin at zero."""
    elapsed_s = max(1e-6, now.at_s - before.at_s)
    earlier = {one["name"]: _counts(one) for one in before.topics}
    found = [_rates(one, earlier, elapsed_s) for one in now.topics]
    slow = sorted(filter(_is_behind, now.sessions), key=slowness, reverse=True)
    return Activity(
        in_per_s=sum(one.in_per_s for one in found if one.kind in PUBLISHED),
        topics=found,
        sessions=len(now.sessions),
        away=sum(not one["connected"] for one in now.sessions),
        slow=slow,
        lag_ms=max((one["lag_ms"] for one in now.sessions), default=0.0),
        queued=sum(one["queue_messages"] for one in now.sessions),
        longest=_longest(now.steps_s),
        memory=now.memory,
        status=now.status,
        largest=max(filter(_client_bytes, now.sessions), key=_client_bytes, default=None),
    )


def ordered(topics: Iterable[TopicRates], sort: str) -> list[TopicRates]:
    """Topics by one of `SORTS`: names ascending, figures descending."""
    field = SORTS[sort]
    by_name = sorted(topics, key=lambda one: one.name)
    if field == "name":
        return by_name
    return sorted(by_name, key=lambda one: float(getattr(one, field)), reverse=True)


NODE_COLUMNS = (
    Column("node"),
    Column("role"),
    Column("bookmark", is_number=True),
    Column("lag", is_number=True),
    Column("sessions", is_number=True),
    Column("state hash"),
)


def tree(nodes: Sequence[Described]) -> list[Described]:
    """Nodes in the order of a tree, each with its `depth`: below the one that it names as its
    upstream, or below the primary where it calls that by a name that nobody here knows."""
    urls = {one["url"] for one in nodes}
    primary = next((one["url"] for one in nodes if one["role"] == "primary"), "")
    below: dict[str, list[Described]] = {}
    for one in nodes:
        above = one.get("upstream") or ""
        known = above if above in urls else primary
        below.setdefault("" if one["url"] in (primary, known) else known, []).append(one)
    found: list[Described] = []

    # A list and no recursion: others report how deep it is.
    waiting = [{**one, "depth": 0} for one in reversed(below.pop("", []))]
    while waiting:
        found.append(one := waiting.pop())
        deeper = reversed(below.pop(one["url"], []))
        waiting += [{**each, "depth": one["depth"] + 1} for each in deeper]
    # Those of a circle, which a server that is not ours may describe.
    return found + [{**one, "depth": 0} for rest in below.values() for one in rest]


def node_row(one: Described) -> dict[str, str]:
    """A node as a row of a table with `NODE_COLUMNS`."""
    lag_ms, sessions = one["lag_ms"], one.get("sessions")
    return {
        "node": "  " * one["depth"] + one["url"],
        "role": one["role"],
        "bookmark": one["bookmark"] or "",
        "lag": "not heard" if one["pid"] is None else duration((lag_ms or 0) / 1000),
        "sessions": "" if sessions is None else f"{sessions:,}",
        "state hash": one["state_hash"] or "",
    }


def slowness(one: Described) -> tuple[float, int]:
    """How far a session is behind; the slowest are the greatest."""
    return one["lag_ms"], one["queue_messages"]


def _counts(one: Described) -> tuple[int, int]:
    """Changes in and out since the server's start."""
    updates = one.get("updates") or 0
    return one.get("updates_in", updates) or 0, one.get("updates_out", updates) or 0


def _rates(one: Described, earlier: Mapping[str, tuple[int, int]], elapsed_s: float) -> TopicRates:
    taken, given = _counts(one)
    # A new topic has done all of it since.
    before_taken, before_given = earlier.get(one["name"], (0, 0))
    if taken < before_taken:
        before_taken = before_given = 0
    # A pattern of conflated topics is no source either.
    kind = (
        f"conflated {PATTERN}" if one["kind"] == PATTERN and "updates_out" in one else one["kind"]
    )
    return TopicRates(
        one["name"],
        kind,
        one["records"],
        (taken - before_taken) / elapsed_s,
        (given - before_given) / elapsed_s,
        taken / given if given and "updates_out" in one else 1.0,
        one.get("pending", 0),
        one.get("oldest_pending_ms", 0.0),
    )


def _client_bytes(one: Described) -> int:
    """What its client holds; nothing, as far as an older server says."""
    return int(one.get("client_bytes", 0))


def _is_behind(one: Described) -> bool:
    return bool(one["queue_messages"] or one["reason"])


def _longest(steps_s: Mapping[str, float] | None) -> tuple[str, float] | None:
    if not steps_s:
        return None
    return max(steps_s.items(), key=lambda step: step[1])
