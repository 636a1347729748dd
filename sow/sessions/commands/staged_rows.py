"""Staged rows: what tasks of a batch hand over, read and checked before it is committed.

Rows are publishes, deltas and deletes of one topic, as columns. They are read in runs of one
operation, at most as many as one step of the commit stores.

The content of a batch (`BatchContent`) is the number of its rows and a sum of their digests. The
same rows have the same content, in whatever parts, chunks and order they come, and one row more,
less or other is another content. So a batch that comes under an old number can be compared with the
old batch much later.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

from sow.core.cooperative import untracked
from sow.engine.bulk_publish import SLICE_BYTES, SLICE_ROWS
from sow.errors import BadMessage, shown
from sow.messages import line_bodies
from sow.topic.batch import Reason
from sow.topic.records import CheckedMessages, Records

STORED_AT_ONCE = SLICE_ROWS
"""Rows that are checked in one go, and stored in one step."""
REASON_OF: dict[str, Reason] = {"delete": "deleted", "expire": "expired", "match": "match"}
DELETIONS = tuple(REASON_OF)
"""Why a record is removed; only the writers of Spark's topics, conflated ones and views,
distinguish reasons."""
ROW_OPERATIONS = ("publish", "delta", *DELETIONS)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows as columns. A row's key may be missing, and so may a delete's body.

    `stamps` are the sequence number and time of the change that a row of a conflated topic is the
    outcome of.
    """

    operations: Sequence[str]
    keys: Sequence[str | None]
    bodies: Sequence[bytes | None]
    stamps: Sequence[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self.bodies)

    def at(self, places: Sequence[int]) -> "StagedRows":
        """Some of the rows."""
        # All of a batch wait together, and the collector would look through them again and again.
        return StagedRows(
            untracked([self.operations[at] for at in places]),
            untracked([self.keys[at] for at in places]),
            untracked([self.bodies[at] for at in places]),
            None if self.stamps is None else [self.stamps[at] for at in places],
        )

    def runs(self) -> Iterator["StagedRows"]:
        """Pieces in which all rows do the same, with bodies or without: what a row does must not
        depend on its neighbours."""
        kinds = list(zip(self.operations, (body is None for body in self.bodies), strict=True))
        for _, run in groupby(range(len(self)), kinds.__getitem__):
            for places in self._pieces(list(run)):
                yield self.at(places)

    def _pieces(self, places: Sequence[int]) -> Iterator[Sequence[int]]:
        """As many rows at a time as one step takes."""
        start = size_bytes = 0
        for at, place in enumerate(places):
            size_bytes += (size := len(self.bodies[place] or b""))
            if at - start == STORED_AT_ONCE or (at > start and size_bytes > SLICE_BYTES):
                yield places[start:at]
                start, size_bytes = at, size
        yield places[start:]


@dataclass(frozen=True, slots=True)
class CommitStep:
    """Valid rows of one operation: messages, or keys to delete.

    `sow_keys` name records to delete that only the moment itself can find.
    """

    operation: str
    messages: CheckedMessages
    sow_keys: Sequence[str] = ()
    rows: StagedRows | None = None
    """The rows themselves, where they are for a conflated topic."""


def read(records: Records, run: StagedRows, times: range | None = None) -> CommitStep:
    """What a run of rows does; raises BadMessage with the place of the first bad one. `times` are
    those at which the rows come, where fields are made of them."""
    operation = run.operations[0]
    if operation not in ROW_OPERATIONS:
        raise BadMessage(f"op is {shown(operation)}; it must be publish, delta or delete")
    if operation in DELETIONS:
        return _deletion(records, run)
    for at, body in enumerate(run.bodies):
        if body is None:
            raise BadMessage("there is no value; only a delete needs none", index=at)
    bodies = [body for body in run.bodies if body is not None]
    stored = line_bodies(records.message_type, bodies)
    messages = records.read(stored, None if records.keys else _keys(run), times)
    return CommitStep(operation, messages, rows=run)


def _deletion(records: Records, run: StagedRows) -> CommitStep:
    """By the bodies' key fields where there are bodies, else by SowKey."""
    bodies = [body for body in run.bodies if body is not None]
    if records.keys and len(bodies) == len(run):
        sent = line_bodies(records.message_type, bodies)
        names = records.identities_of_sent(sent)
        return CommitStep(run.operations[0], CheckedMessages([], names, {}), rows=run)
    return CommitStep(run.operations[0], CheckedMessages([], [], {}), _keys(run), run)


def _keys(run: StagedRows) -> list[str]:
    for at, key in enumerate(run.keys):
        if key is None:
            raise BadMessage(
                "there is no key; give the record's SowKey in the column key", index=at
            )
    return [key for key in run.keys if key is not None]


DIGEST_BYTES = 16
"""Of 128 bits no two batches have the same sum by chance."""
TOTALS = 1 << 8 * DIGEST_BYTES
"""So many sums there are."""


class BatchContent(NamedTuple):
    """So many rows, and the sum of their digests; None where the rows themselves are gone."""

    rows: int = 0
    total: int | None = 0

    def plus(self, other: "BatchContent") -> "BatchContent":
        """That of both batches together."""
        known = self.total is not None and other.total is not None
        total = (self.total or 0) + (other.total or 0)
        return BatchContent(self.rows + other.rows, total % TOTALS if known else None)

    def may_be(self, text: str) -> bool:
        """Whether it is the content that `text` was made of, as far as is known."""
        return str(self) == text if self.total is not None else text.startswith(f"{self.rows}-")

    def __str__(self) -> str:
        return f"{self.rows}-{self.total:0{2 * DIGEST_BYTES}x}"


def content_of(rows: StagedRows) -> BatchContent:
    """What some rows hold: what each does, to which key, and its body."""
    return BatchContent(len(rows), sum(_digests(rows)) % TOTALS)


def _digests(rows: StagedRows) -> Iterator[int]:
    for operation, key, body in zip(rows.operations, rows.keys, rows.bodies, strict=True):
        text, named = body or b"", b""
        if key is not None:
            text, named = b"%d:%b%b" % (len(key), key.encode("utf-8", "replace"), text), b"key"
        # The salt and personalisation of the digest distinguish what the text holds.
        does = operation.encode("utf-8", "replace")[:DIGEST_BYTES]
        digest = blake2b(text, digest_size=DIGEST_BYTES, salt=named, person=does).digest()
        yield int.from_bytes(digest, "big")
