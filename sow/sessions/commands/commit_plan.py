"""Staged rows and the plan of their commit: what a batch does, worked out before it is done.

Messages are enriched, deltas merged, and the records to delete looked up, as if the preceding rows
of the batch had been applied. So the log entries of the batch are known as a whole, and so is the
room that they take. Nothing else changes the topic meanwhile (`sow.engine.atomic_change`).

Nothing is changed here, but for records that are being removed already and are changed by the
batch: these go first.

Staged rows are what the tasks of a batch hand over, read and checked before the commit. They are
publishes, deltas and deletes of one topic, as columns. They are read in runs of one operation, at
most as many as one step of the commit stores.

The content of a batch (`BatchContent`) is the number of its rows and a sum of their digests. The
same rows have the same content, in whatever parts, chunks and order they come, and one row more,
less or other is another content. So a batch that comes under an old number can be compared with the
old batch much later.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np

from sow.core.containers import sharded_if_long
from sow.core.cooperative import Task, untracked
from sow.engine.bulk_publish import SLICE_BYTES, SLICE_ROWS, WritePolicy
from sow.engine.capacity import Deed
from sow.engine.engine import Engine
from sow.engine.running_topics import Expiries, SourceTopic
from sow.errors import BadMessage, NotEntitled, shown
from sow.messages import line_bodies
from sow.store.protocols import Op
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
        depend on its neighbours. None has more rows than one step takes."""
        start = 0
        while start < len(self):
            end = start + STORED_AT_ONCE
            some = self.bodies[start:end]
            kinds = zip(self.operations[start:end], [body is None for body in some], strict=True)
            _, run = next(groupby(kinds))
            sizes = accumulate([len(body or b"") for body in some[: len(list(run))]])
            end = start + max(1, bisect_right(list(sizes), SLICE_BYTES))
            yield self._part(start, end)
            start = end

    def _part(self, start: int, end: int) -> "StagedRows":
        """As many rows as one step takes."""
        return StagedRows(
            untracked([*self.operations[start:end]]),
            untracked([*self.keys[start:end]]),
            untracked([*self.bodies[start:end]]),
            None if self.stamps is None else self.stamps[start:end],
        )


@dataclass(frozen=True, slots=True)
class CommitStep:
    """Valid rows of one operation: messages, or keys to delete.

    `sow_keys` name records to delete that only the moment itself can find.
    """

    operation: str
    messages: CheckedMessages
    rows: StagedRows
    """As they came."""
    sow_keys: Sequence[str] = ()


def read(records: Records, run: StagedRows, times: range | None = None) -> CommitStep:
    """What a run of rows does; raises BadMessage with the place of the first bad one. `times` are
    those at which the rows come, where fields are made of them."""
    operation = run.operations[0]
    if operation not in ROW_OPERATIONS:
        raise BadMessage(f"op is {shown(operation)}; it must be publish, delta or delete")
    if operation in DELETIONS:
        return _deletion(records, run)
    bodies = [body for body in run.bodies if body is not None]
    if len(bodies) < len(run):
        at = run.bodies.index(None)
        raise BadMessage("there is no value; only a delete needs none", index=at)
    stored = line_bodies(records.message_type, bodies)
    messages = records.read(stored, None if records.keys else _keys(run), times)
    return CommitStep(operation, messages, run)


def _deletion(records: Records, run: StagedRows) -> CommitStep:
    """By the bodies' key fields where there are bodies, else by SowKey."""
    bodies = [body for body in run.bodies if body is not None]
    if records.keys and len(bodies) == len(run):
        sent = line_bodies(records.message_type, bodies)
        names = records.identities_of_sent(sent)
        return CommitStep(run.operations[0], CheckedMessages([], names, {}), run)
    return CommitStep(run.operations[0], CheckedMessages([], [], {}), run, _keys(run))


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
    begun = {operation: _begun(operation) for operation in set(rows.operations)}
    digests = []
    for operation, key, body in zip(rows.operations, rows.keys, rows.bodies, strict=True):
        digest = begun[operation][key is not None].copy()
        if key is not None:
            digest.update(b"%d:%b" % (len(key), key.encode("utf-8", "replace")))
        digest.update(body or b"")
        digests.append(digest.digest())
    # As numbers of 32 bits: 64 bits hold the sum of four billion of them.
    parts = np.frombuffer(b"".join(digests), ">u4").reshape(-1, DIGEST_BYTES // 4)
    total = 0
    for part in parts.sum(axis=0, dtype=np.uint64).tolist():
        total = (total << 32) + part
    return BatchContent(len(rows), total % TOTALS)


def _begun(operation: str) -> tuple[blake2b, blake2b]:
    """The digests of rows that do this, without a key and with one; to be copied, never updated."""
    does = operation.encode("utf-8", "replace")[:DIGEST_BYTES]
    # The salt and personalisation distinguish what the text holds.
    plain, named = (
        blake2b(digest_size=DIGEST_BYTES, salt=salt, person=does) for salt in (b"", b"key")
    )
    return plain, named


KEYED_AT_ONCE = 2_000
"""Records of one step that are taken into the dictionary of SowKeys: half a millisecond."""
FOUND_AT_ONCE = 1_000
"""Records of one step that are looked up in the batch: half a millisecond."""


class Piece(NamedTuple):
    """What one step stores, or, with a `reason`, which records it removes: all are there."""

    messages: CheckedMessages
    bodies_bytes: int = 0
    """Counted with each: of all of them, which are logged in one step, it takes long."""
    reason: Reason | None = None
    expires_us: Expiries | None = None
    """When its records expire; None: by the topic's default, counted from the end of the commit."""

    def __len__(self) -> int:
        return len(self.messages.identities)

    @property
    def removes(self) -> bool:
        """Whether records go."""
        return self.reason is not None

    @property
    def deed(self) -> Deed:
        """What it does to the room there is."""
        sizes = None if self.removes else list(map(len, self.messages.bodies))
        return Deed(self.messages.identities, sizes)

    def number(self, topic: SourceTopic, now_us: int, expires_us: int) -> Sequence[int]:
        """Number and log it."""
        if self.removes:
            # The log has no match: it is of messages, and rows alone leave by a filter.
            op: Op = "expire" if self.reason == "expired" else "delete"
            return topic.number_removal(self.messages.identities, op, now_us)
        expiries = expires_us if self.expires_us is None else self.expires_us
        return topic.number(self.messages, now_us, expiries, self.bodies_bytes)

    def store(
        self, engine: Engine, topic: SourceTopic, seqs: Sequence[int], now_us: int, expires_us: int
    ) -> None:
        """Apply the change, and notify the followers."""
        if self.reason is not None:
            batch = topic.drop(self.messages.identities, self.reason, seqs, now_us)
            assert batch is not None
        else:
            expiries = expires_us if self.expires_us is None else self.expires_us
            batch = topic.store(self.messages, seqs, now_us, expiries)
        engine.pass_on(topic, batch)


class Plan:
    """Works out what `steps` do to `topic`, at a time in microseconds. They are emptied, so that
    nothing is held that was put: to free all of it at once takes long.

    `permits` decide which records may be written, and which deleted; None: all. Raises NotEntitled.
    `replaces`: records that the steps do not publish are removed first, so that old and new ones
    need not be held together; nor are those removed that are `named` because they are published
    without a step.
    """

    def __init__(
        self,
        engine: Engine,
        topic: SourceTopic,
        steps: list[CommitStep],
        now_us: int,
        replaces: bool = False,
        permits: tuple[WritePolicy | None, WritePolicy | None] = (None, None),
        named: Container[str] | None = None,
    ) -> None:
        self._named = named
        self._writes, self._deletes = permits
        self._engine = engine
        self._topic = topic
        self._steps = steps
        self._now_us = now_us
        self._replaces = replaces
        # What a record was before matters to whatever does not simply replace it.
        self._follows_states = topic.makes_records or any(
            step.operation != "publish" for step in steps
        )
        self._follows_states |= any(permit is not None for permit in permits)
        self._states: MutableMapping[str, bytes | None] = {}
        """What the batch has made of records so far; None: removed."""
        self._renewed: MutableMapping[str, bool] = {}
        """Records whose lifetime the batch has set or ended."""
        self._by_sow_key: MutableMapping[str, str] = {}
        """Records that have come to be by the batch."""

    def pieces(self) -> Task[list[Piece]]:
        """All that is to be done, in its order."""
        yield from self._make_way()
        found: list[Piece] = []
        if self._replaces:
            found += yield from self._others()
        if any(step.sow_keys for step in self._steps):
            table = self._topic.records.table
            while table.unkeyed_count:
                table.key(KEYED_AT_ONCE)
                yield
        steps = deque(self._steps)
        self._steps.clear()
        while steps:
            step = steps.popleft()
            self._states = sharded_if_long(self._states)
            self._renewed = sharded_if_long(self._renewed)
            self._by_sow_key = sharded_if_long(self._by_sow_key)
            piece = self._deletion(step) if step.operation in DELETIONS else self._stored(step)
            if piece.messages.identities or not piece.removes:
                found.append(piece)
            yield
        return found

    def _make_way(self) -> Task[None]:
        """Records pending removal that are stored again are removed first."""
        for step in self._steps:
            if step.operation not in DELETIONS:
                names = step.messages.identities
                self._engine.removals.make_way(self._topic, names, self._now_us)
                yield

    def _others(self) -> Task[list[Piece]]:
        """The records that no step publishes go."""
        named = self._named
        if named is None:
            published: MutableMapping[str, bool] = {}
            for step in self._steps:
                published = sharded_if_long(published)
                published.update(dict.fromkeys(step.messages.identities, True))
                yield
            named = published
        table = self._topic.records.table
        slots, found = table.live(), []
        for start in range(0, len(slots), FOUND_AT_ONCE):
            some = slots[start : start + FOUND_AT_ONCE].tolist()
            going = [name for name in map(table.identities.__getitem__, some) if name not in named]
            self._check_deletes([name for name in going if name])
            found += [_removal(part) for part in _parts([name for name in going if name])]
            yield
        return found

    def _check_deletes(self, names: list[str]) -> None:
        if self._deletes is None or not names:
            return
        if not all(self._deletes.may_delete(self._topic.records, names, self._states)):
            raise NotEntitled(
                "a row would delete a record that does not pass the Check of any role"
            )

    def _stored(self, step: CommitStep) -> Piece:
        is_delta = step.operation == "delta"
        messages = self._topic.finished(step.messages, is_delta, self._states, now_us=self._now_us)
        if self._writes is not None:
            self._writes.check(self._topic.records, messages, self._states)
        if self._follows_states:
            self._note(messages)
        expires_us: Expiries | None = None
        if is_delta:
            own_us = self._topic.expiry_us(None, self._now_us)
            expires_us = self._topic.kept_expiries(messages.identities, own_us, self._renewed)
        elif self._follows_states:
            self._renewed.update(dict.fromkeys(messages.identities, True))
        return Piece(messages, sum(map(len, messages.bodies)), expires_us=expires_us)

    def _note(self, messages: CheckedMessages) -> None:
        records = self._topic.records
        if not records.retains:
            return
        for name in messages.identities:
            if name not in self._states and name not in records.table:
                self._by_sow_key[records.sow_key_of(name)] = name
        self._states.update(zip(messages.identities, messages.bodies, strict=True))

    def _deletion(self, step: CommitStep) -> Piece:
        table, states = self._topic.records.table, self._states
        names = list(step.messages.identities)
        for key in step.sow_keys:
            slot = table.find(key)
            name = self._by_sow_key.get(key) if slot is None else table.identities[slot]
            if name is not None:
                names.append(name)
        there = [
            name
            for name in dict.fromkeys(names)
            if (states[name] is not None if name in states else name in table)
        ]
        self._check_deletes(there)
        states.update(dict.fromkeys(there))
        self._renewed.update(dict.fromkeys(there, True))
        # Rows of a view are removed for the given reason; all others are deleted, whatever the row
        # says.
        is_sent = self._topic.definition.view is not None
        return _removal(there, REASON_OF[step.operation] if is_sent else "deleted")


def _removal(names: list[str], reason: Reason = "deleted") -> Piece:
    return Piece(CheckedMessages([], names, {}), reason=reason)


def _parts(names: list[str]) -> list[list[str]]:
    return [names[at : at + STORED_AT_ONCE] for at in range(0, len(names), STORED_AT_ONCE)]
