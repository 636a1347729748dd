"""Snapshots of topics: taken on the server while a read is planned, read in parts by its tasks.

A snapshot has a name. The server releases it when it has not been used for a while, or restarts.
Then its rows come from the log: each part knows its topic and moment. A pattern is one snapshot for
each of its topics, all at one moment.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sow.errors import ClientError
from sow.spark.http import ServerRefusal, SowServer, segment
from sow.spark.rows import part_of_snapshot, position

PARTS = 4
"""Tasks of a small read, unless `partitions` is set: a few cores may share it."""
ROWS_OF_A_PART = 250_000
"""Records of a part: a task holds some hundred MB of typical records, with their Arrow copies."""
MEMBERS_MAX = 200
"""A client may have 250 snapshots."""


class Wanted(NamedTuple):
    """The records to read: of a topic or pattern, those that match, or those with some keys."""

    topic: str
    condition: str | None = None
    keys: tuple[str, ...] | None = None
    parts: int | None = None


class TakenSnapshot(NamedTuple):
    """A snapshot: its name, its query, and its moment with the name of the log."""

    name: str
    requested: dict[str, Any]
    bookmark: str

    @property
    def number(self) -> int:
        """The moment without the name of the log."""
        return int(self.bookmark.rpartition("-")[2])

    @property
    def parts(self) -> "list[SnapshotPart]":
        """The parts for tasks."""
        numbers = range(self.requested["parts"])
        return [SnapshotPart(self.name, part, self.requested, self.bookmark) for part in numbers]


class SnapshotPart(InputPartition):
    """One part of a snapshot; `requested` and `bookmark` take the same one again."""

    def __init__(self, snapshot: str, part: int, requested: dict[str, Any], bookmark: str) -> None:
        self.snapshot = snapshot
        self.part = part
        self.requested = requested
        self.bookmark = bookmark

    def read(self, server: SowServer) -> Iterator[pa.RecordBatch]:
        """The rows, in Arrow; raises ServerRefusal if neither snapshot nor log has them any
        more."""
        try:
            return part_of_snapshot(server, self.snapshot, self.part)
        except ServerRefusal as error:
            if error.reason != "not found":
                raise
        again = server.json("POST", "/v1/snapshots", **{**self.requested, "as_of": self.bookmark})
        return part_of_snapshot(server, again["snapshot"], self.part)


def take(server: SowServer, wanted: Wanted, moment: str | None = None) -> list[TakenSnapshot]:
    """Snapshot the current records, or those at a bookmark or a time; none for a pattern without
    topics."""
    log = server.json("GET", "/v1/status")["log"]
    topics = _topics(server, wanted.topic)
    if not topics:
        return []
    first = _one(server, topics[0], wanted, moment, log)
    if topics[0]["name"] == wanted.topic:
        return [first]
    # Queried again: a topic may have been created before the moment of the first snapshot.
    others = [one for one in _topics(server, wanted.topic) if one["name"] != topics[0]["name"]]
    return [first, *(_one(server, topic, wanted, first.bookmark, log) for topic in others)]


def _topics(server: SowServer, name: str) -> Sequence[Mapping[str, Any]]:
    """The topic, or those of a pattern; raises ServerRefusal if there is none."""
    found = server.json("GET", f"/v1/topics/{segment(name)}")
    if found["kind"] != "pattern":
        return [found]
    topics = server.json("GET", "/v1/topics")
    members = [topic for topic in topics if topic.get("of_pattern") == found["name"]]
    if len(members) > MEMBERS_MAX:
        raise ClientError(
            f"{found['name']} is a pattern of {len(members)} topics, and {MEMBERS_MAX} can be "
            "read at once; read its log, with startingBookmark, or name one of its topics"
        )
    return members


def _one(
    server: SowServer, topic: Mapping[str, Any], wanted: Wanted, moment: str | None, log: str
) -> TakenSnapshot:
    requested = {
        "topic": topic["name"],
        "filter": wanted.condition,
        "keys": None if wanted.keys is None else ",".join(wanted.keys),
        "as_of": moment,
        "parts": wanted.parts or _enough(topic["records"]),
    }
    found = server.json("POST", "/v1/snapshots", **requested)
    return TakenSnapshot(found["snapshot"], requested, position(log, int(found["bookmark"])))


def _enough(records: int) -> int:
    """Parts small enough for one task."""
    return max(PARTS, -(-records // ROWS_OF_A_PART)) if records > PARTS else 1
