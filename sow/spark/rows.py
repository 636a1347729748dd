"""Rows from the server: parts of a snapshot and ranges of the log, in Arrow.

Every part and every range can be requested again and has the same rows, so that an interrupted
task, or one that Spark repeats, reads what it would have read.

A snapshot is taken on the server while a read is planned, and read in parts by its tasks. It has a
name; the server releases it when it has not been used for a while, or restarts. Then its rows come
from the log: each part knows its topic and moment. A pattern is one snapshot for each of its
topics, all at one moment.

With several addresses the parts of a read are dealt over them. Each server takes a snapshot of its
own as of the moment of the first; one that cannot, or does not answer, gets no part. A task whose
server is lost goes on at another, where its part of the log is the same, and that of the snapshot
is taken again.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sow.errors import ClientError, SowError
from sow.history.bookmarks import POSITION
from sow.spark.http import SNAPSHOTS_PATH, Reply, ServerRefusal, SowServer, member, segment

ROWS_AT_ONCE = 200_000
"""Size of an answer: it is read completely before use, so that the request can be repeated."""


Needed = Mapping[str, str]
"""The parameters that say which columns and fields are needed (`columns.requested_columns`)."""
WHOLE_ROWS: Needed = {}


def part_of_snapshot(
    server: SowServer, snapshot: str, part: int, needed: Needed = WHOLE_ROWS
) -> Iterator[pa.RecordBatch]:
    """One part of a snapshot."""
    reply = server.arrow(f"/v1/snapshots/{snapshot}", part=part, **needed)
    return iter(pa.ipc.open_stream(reply.body))


def range_of_log(
    server: SowServer,
    topic: str,
    after: int,
    until: int,
    condition: str | None,
    fail_on_data_loss: bool = True,
    log: str = "",
    needed: Needed = WHOLE_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Changes of a topic after one bookmark of `log`, up to and including another; raises DataLoss,
    and ServerRefusal if the server has another log."""
    while after < until:
        ends = {"from": position(log, after), "to": position(log, until)}
        reply = _changes(server, topic, ends, condition, needed)
        # The server refuses removed entries, but from 0 on it starts at the oldest entry it has.
        if isinstance(reply, ServerRefusal) or after == 0:
            here = extent(server, topic, "now", limit=1)
            begin = oldest_to_go_on_from(server.url, here, topic, after, fail_on_data_loss)
            if begin > after:
                after = begin
                continue
        if isinstance(reply, ServerRefusal):
            if "before" in needed:  # the changes are there, and not what they have changed
                raise DataLoss(f"{server.url}: changes of {topic}: {reply.detail}")
            return
        yield from pa.ipc.open_stream(reply.body)
        reached = int(reply.bookmark)
        if reached <= after:
            if fail_on_data_loss:
                raise DataLoss(_lost(server.url, topic, until, after, reached))
            return
        after = reached


def extent(
    server: SowServer,
    topic: str,
    start: str,
    to: str | None = None,
    limit: int | None = None,
    condition: str | None = None,
    is_compared: bool = False,
    least: str | None = None,
) -> Any:
    """The ends of a range of the log, the rows that a topic has in it, and the log's own ends;
    `is_compared`: each row is to be read with the record before it. A follower waits until it has
    `least`, by default the ends of the range."""
    requested = {"topics": member(topic), "from": start, "to": to, "limit": limit}
    ends = (end for end in (least, to, start) if end is not None and POSITION.fullmatch(end))
    requested["min_bookmark"] = next(ends, None)
    if is_compared:
        requested["before"] = "keys"
    return server.json("GET", "/v1/log/extent", **requested, filter=condition)


def end_of_range(server: SowServer, topic: str, ending: str | None) -> str | None:
    """The last bookmark of a range of the log; for a time, the last one before it; None: there is
    no end."""
    if ending is None or ending == "latest" or POSITION.fullmatch(ending):
        return None if ending == "latest" else ending
    found = extent(server, topic, ending, limit=1)
    return position(found["log"], int(found["from"]))


def position(log: str, number: int) -> str:
    """A bookmark with the name of its log, so that another log refuses it; a plain number if the
    name is unknown."""
    return f"{log}-{number}" if log else str(number)


def _changes(
    server: SowServer, topic: str, ends: Mapping[str, str], condition: str | None, needed: Needed
) -> Reply | ServerRefusal:
    """The answer to one request for a range; the refusal if its beginning is not in the log."""
    requested = {"topics": member(topic), "limit": ROWS_AT_ONCE, "filter": condition}
    requested["min_bookmark"] = ends["to"]
    try:
        return server.arrow("/v1/log", **requested, **ends, **needed)
    except ServerRefusal as error:
        if error.reason != "invalid bookmark":
            raise
        return error


def last_of_each_key(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of ordered rows, the last one of each key and topic, in the same order."""
    found = list(batches)
    if not found or not len(table := pa.Table.from_batches(found)):
        return
    topics, keys = (_codes(table.column(name)) for name in ("topic", "key"))
    records = topics.astype(np.int64) * (int(keys.max()) + 1) + keys
    _, last = np.unique(records[::-1], return_index=True)
    last = len(table) - 1 - last
    yield from table.take(pa.array(np.sort(last))).combine_chunks().to_batches()


def _codes(column: pa.ChunkedArray) -> "np.typing.NDArray[np.int32]":
    """A number for each value: equal numbers for equal values."""
    found: np.typing.NDArray[np.int32] = (
        column.combine_chunks().dictionary_encode().indices.to_numpy()
    )
    return found


class DataLoss(ClientError):
    """Retention has removed part of the requested rows."""

    reason = "data loss"


def oldest_to_go_on_from(
    url: str, here: Mapping[str, Any], topic: str, after: int, fail_on_data_loss: bool
) -> int:
    """`after`, if the log still has what follows it, else its beginning; raises DataLoss.

    `here` is the extent of the log.
    """
    oldest, newest = int(here["oldest"]), int(here["newest"])
    if oldest <= after <= newest:
        return after
    if fail_on_data_loss:
        raise DataLoss(
            _lost(url, topic, after, oldest, newest)
            + "; set failOnDataLoss to false to continue with the rest, or name a consumer so "
            "that the log is retained for it"
        )
    return min(max(after, oldest), newest)


def _lost(url: str, topic: str, after: int, oldest: int, newest: int) -> str:
    if after > newest:
        return (
            f"{url}: the log of {topic} ends at bookmark {newest} and this reader has read up to "
            f"{after}: the log was cut off, or is another one"
        )
    return (
        f"{url}: changes of {topic} after bookmark {after} up to {oldest} are no longer kept "
        f"({oldest - after} changes of all topics)"
    )


PARTS = 4
"""Tasks of a small read, unless `partitions` is set: a few cores may share it."""
ROWS_OF_A_PART = 250_000
"""Records of a part: a task holds some hundred MB of typical records, with their Arrow copies."""
MEMBERS_MAX = 200
"""A client may have 250 snapshots."""


class Wanted(NamedTuple):
    """The records to read: of a topic or pattern, those that match, or those with some keys. With
    `last` the newest so many events of each."""

    topic: str
    condition: str | None = None
    keys: tuple[str, ...] | None = None
    parts: int | None = None
    last: int | None = None


class TakenSnapshot(NamedTuple):
    """A snapshot: its name, its query, its moment with the name of the log; and of several
    addresses the names that it has there, by the place of the address."""

    name: str
    requested: dict[str, Any]
    bookmark: str
    names: Mapping[int, str] = {0: ""}

    @property
    def number(self) -> int:
        """The moment without the name of the log."""
        return int(self.bookmark.rpartition("-")[2])

    @property
    def parts(self) -> "list[SnapshotPart]":
        """The parts for tasks."""
        numbers, dealt = range(self.requested["parts"]), cycle(self.names.items())
        return [
            SnapshotPart(name or self.name, part, self.requested, self.bookmark, place)
            for part, (place, name) in zip(numbers, dealt, strict=False)
        ]


class SnapshotPart(InputPartition):
    """One part of a snapshot; `requested` and `bookmark` take the same one again. It is read at the
    address number `place` first."""

    def __init__(
        self, snapshot: str, part: int, requested: dict[str, Any], bookmark: str, place: int = 0
    ) -> None:
        self.snapshot = snapshot
        self.part = part
        self.requested = requested
        self.bookmark = bookmark
        self.place = place

    def read(self, server: SowServer, needed: Needed = WHOLE_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows, in Arrow; raises ServerRefusal if neither snapshot nor log has them any
        more."""
        server = server.at(self.place)
        try:
            return part_of_snapshot(server, self.snapshot, self.part, needed)
        except ServerRefusal as error:
            if error.reason != "not found" or self.requested.get("last"):
                raise  # events have no past
            gone = error
        again = _taken_again(server, self.requested, self.bookmark)
        if again["bookmark"] != self.bookmark.rpartition("-")[2]:
            raise gone  # it was taken inside a change of several records: it cannot be had again
        return part_of_snapshot(server, again["snapshot"], self.part, needed)


def _taken_again(server: SowServer, requested: Mapping[str, Any], bookmark: str) -> Any:
    """The answer to a snapshot as of a moment, from a server that has it, or waits for it."""
    then = {**requested, "as_of": bookmark, "min_bookmark": bookmark}
    return server.json("POST", SNAPSHOTS_PATH, **then)


def _taken_elsewhere(server: SowServer, taken: TakenSnapshot) -> TakenSnapshot:
    """The same snapshot at each of several addresses that can take it."""
    if len(server.addresses) == 1:
        return taken
    names: dict[int, str] = {}
    for place, (url, other) in enumerate(zip(server.addresses, server.each(), strict=True)):
        if url == server.in_use:
            names[place] = taken.name
            continue
        try:
            found = _taken_again(other, taken.requested, taken.bookmark)
        except SowError:
            continue  # the others have its parts
        if found["bookmark"] == str(taken.number):
            names[place] = found["snapshot"]
    return taken._replace(names=names or {0: taken.name})


def take(server: SowServer, wanted: Wanted, moment: str | None = None) -> list[TakenSnapshot]:
    """Snapshot the current records, or those at a bookmark or a time; none for a pattern without
    topics."""
    topics = _topics(server, wanted.topic)
    if not topics:
        return []
    log = server.json("GET", "/v1/status")["log"]
    is_one = topics[0]["name"] == wanted.topic
    if wanted.last is not None and not is_one:
        raise ClientError(f"{wanted.topic} is a pattern, and events are read of one topic; name it")
    first = _one(server, topics[0], wanted, moment, log)
    if is_one:
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
        "last": wanted.last,
        "parts": wanted.parts or _enough(topic["records"]),
    }
    least = moment if moment is not None and POSITION.fullmatch(moment) else None
    found = server.json("POST", SNAPSHOTS_PATH, **requested, min_bookmark=least)
    bookmark = position(log, int(found["bookmark"]))
    return _taken_elsewhere(server, TakenSnapshot(found["snapshot"], requested, bookmark))


def _enough(records: int) -> int:
    """Parts small enough for one task."""
    return max(PARTS, -(-records // ROWS_OF_A_PART)) if records > PARTS else 1
