"""Rows from the server: parts of a snapshot and ranges of the log, in Arrow.

Every part and every range can be requested again and has the same rows, so that an interrupted
task, or one that Spark repeats, reads what it would have read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sow.errors import ClientError
from sow.spark.columns import ROW
from sow.spark.http import Reply, ServerRefusal, SowServer, member

ROWS_AT_ONCE = 200_000
"""Size of an answer: it is read completely before use, so that the request can be repeated."""


def part_of_snapshot(server: SowServer, snapshot: str, part: int) -> Iterator[pa.RecordBatch]:
    """One part of a snapshot."""
    return iter(pa.ipc.open_stream(server.arrow(f"/v1/snapshots/{snapshot}", part=part).body))


def range_of_log(
    server: SowServer,
    topic: str,
    after: int,
    until: int,
    condition: str | None,
    fail_on_data_loss: bool = True,
    log: str = "",
) -> Iterator[pa.RecordBatch]:
    """Changes of a topic after one bookmark of `log`, up to and including another; raises DataLoss,
    and ServerRefusal if the server has another log."""
    while after < until:
        reply = _changes(server, topic, position(log, after), position(log, until), condition)
        # The server refuses removed entries, but from 0 on it starts at the oldest entry it has.
        if reply is None or after == 0:
            here = server.json(
                "GET", "/v1/log/extent", topics=member(topic), limit=1, **{"from": "now"}
            )
            begin = oldest_to_go_on_from(server.url, here, topic, after, fail_on_data_loss)
            if begin > after:
                after = begin
                continue
        if reply is None:
            return
        yield from pa.ipc.open_stream(reply.body)
        reached = int(reply.bookmark)
        if reached <= after:
            if fail_on_data_loss:
                raise DataLoss(_lost(server.url, topic, until, after, reached))
            return
        after = reached


def position(log: str, number: int) -> str:
    """A bookmark with the name of its log, so that another log refuses it; a plain number if the
    name is unknown."""
    return f"{log}-{number}" if log else str(number)


def _changes(
    server: SowServer, topic: str, after: str, until: str, condition: str | None
) -> Reply | None:
    """The answer to one request for a range; None if its beginning is not in the log."""
    requested = {"topics": member(topic), "from": after, "to": until, "limit": ROWS_AT_ONCE}
    try:
        return server.arrow("/v1/log", filter=condition, **requested)
    except ServerRefusal as error:
        if error.reason != "invalid bookmark":
            raise
        return None


def last_of_each_key(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of ordered rows, the last one of each key and topic, in the same order."""
    table = pa.Table.from_batches(batches, ROW)
    if not len(table):
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
