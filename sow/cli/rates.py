"""Rates: what a server did between two snapshots of its figures.

A snapshot combines the answers of `/v1/topics` (with the topics of a pattern as one),
`/v1/sessions` and `/metrics` at one time. Nothing here sends requests, reads a clock or draws.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sow.cli.tables import Column
from sow.core.humanize import duration

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
        largest=max(filter(_client_bytes, now.sessions), key=_client_bytes, default=None),
    )


def ordered(topics: Iterable[TopicRates], sort: str) -> list[TopicRates]:
    """Topics by one of `SORTS`: names ascending, figures descending."""
    field = SORTS[sort]
    by_name = sorted(topics, key=lambda one: one.name)
    if field == "name":
        return by_name
    return sorted(by_name, key=lambda one: float(getattr(one, field)), reverse=True)


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
