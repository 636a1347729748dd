"""Staged writes: a batch from many tasks, applied as a whole and never twice.

Rows are publishes, deltas and deletes of one topic, as columns. They are *checked* when they are
staged, so that a task hears at once which of its rows are bad; *read* piece by piece when the batch
is committed; and *applied* in one step of the engine, together with a record in the server's own
topic of writes that says which epoch its writer has reached. Both are in one transaction of the
journal, so a batch that is committed again, before or after a crash, is known for a duplicate.

A writer has an account for each topic. An epoch that is older than the account's is another matter
than a duplicate: it comes of a writer that began anew under its old name, so it is refused unless
it is said that such may be passed over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson

from conflated_topics import Removal
from sow.changes import Reason
from sow.definitions import WRITES, WRITES_BEFORE
from sow.engine.capacity import Deed
from sow.engine.engine import Engine
from sow.engine.live_topics import CopyTopic, LiveTopic, SourceTopic
from sow.errors import BadMessage, ClientError, shown
from sow.steps import at_once
from sow.topic.records import CheckedMessages, Records

ROWS_AT_ONCE = 2_000
"""Rows that are checked in one go; between two such pieces others are served."""
ACCOUNT_BYTES = 4_096
"""More than what is noted of a writer takes."""
REASON_OF: dict[str, Reason] = {"delete": "deleted", "expire": "expired", "match": "match"}
DELETIONS = tuple(REASON_OF)
"""Why a record goes; only a conflated topic tells one from the other."""
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
        return StagedRows(
            [self.operations[at] for at in places],
            [self.keys[at] for at in places],
            [self.bodies[at] for at in places],
            None if self.stamps is None else [self.stamps[at] for at in places],
        )

    def runs(self) -> Iterator["StagedRows"]:
        """Pieces in which all rows do the same, with bodies or without: what a row does must not
        depend on its neighbours."""
        kinds = list(zip(self.operations, (body is None for body in self.bodies), strict=True))
        for _, run in groupby(range(len(self)), kinds.__getitem__):
            places = list(run)
            for start in range(0, len(places), ROWS_AT_ONCE):
                yield self.at(places[start : start + ROWS_AT_ONCE])


@dataclass(frozen=True, slots=True)
class CommitStep:
    """Rows that all do the same and were found good: messages, or whom to delete.

    `sow_keys` name records to delete that only the moment itself can find.
    """

    operation: str
    messages: CheckedMessages
    sow_keys: Sequence[str] = ()
    rows: StagedRows | None = None
    """The rows themselves, where they are for a conflated topic."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that cannot be carried out: its place and why."""

    index: int
    reason: str


class EpochPassed(ClientError):
    """A writer is beyond the batch that it hands over."""

    reason = "epoch passed"
    status = 409

    def __init__(self, writer: str, epoch: int, topic: str, last: int) -> None:
        super().__init__(
            f"writer {shown(writer)} has applied epoch {last} to {topic}, and this is epoch "
            f"{epoch}: it was begun anew, with another checkpoint or another count. Give it a "
            "name of its own as writer, count on from there, or say that what is older was written "
            "(rerun=skip)"
        )


def read(records: Records, run: StagedRows) -> CommitStep:
    """What a run of rows does; raises BadMessage with the place of the first bad one."""
    operation = run.operations[0]
    if operation not in ROW_OPERATIONS:
        raise BadMessage(f"op is {shown(operation)}; it must be publish, delta or delete")
    if operation in DELETIONS:
        return _deletion(records, run)
    for at, body in enumerate(run.bodies):
        if body is None:
            raise BadMessage("there is no value; only a delete needs none", index=at)
    bodies = [body for body in run.bodies if body is not None]
    stored = records.from_line(bodies)
    messages = records.read(stored) if records.keys else records.read(stored, _keys(run))
    return CommitStep(operation, messages, rows=run)


def _deletion(records: Records, run: StagedRows) -> CommitStep:
    """By the bodies' key fields where there are bodies, else by SowKey."""
    bodies = [body for body in run.bodies if body is not None]
    if records.keys and len(bodies) == len(run):
        names = records.identities_of(records.from_line(bodies))
        return CommitStep(run.operations[0], CheckedMessages([], names, {}), rows=run)
    return CommitStep(run.operations[0], CheckedMessages([], [], {}), _keys(run), run)


def _keys(run: StagedRows) -> list[str]:
    for at, key in enumerate(run.keys):
        if key is None:
            raise BadMessage(
                "there is no key; give the record's SowKey in the column key", index=at
            )
    return [key for key in run.keys if key is not None]


class StagedWrites:
    """Batches on their way into the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def topic(self, name: str) -> LiveTopic:
        """The topic that rows are for; raises ClientError if it takes none."""
        topic = self._engine.topics.get(name)
        if isinstance(topic, CopyTopic) and topic.copy.is_external:
            return topic
        return self._engine.catalog.publishable(name, "write to")

    def check_room(
        self, topic: LiveTopic, steps: Sequence[CommitStep], size_bytes: int = 0
    ) -> None:
        """Raise DiskFull if the disk has no room for what steps add.

        Steps that only remove, and `size_bytes` that are to be staged for them, may have the
        reserve; so may a conflated topic's, which are not logged.
        """
        adds = any(step.operation not in DELETIONS for step in steps)
        if adds and isinstance(topic, SourceTopic):
            self._engine.disk.check()

        def needed_bytes() -> int:
            named = [(*step.messages.identities, *step.sow_keys) for step in steps]
            return size_bytes + ACCOUNT_BYTES + sum(len(name) for names in named for name in names)

        self._engine.disk.check_reserve(needed_bytes)

    def read(self, topic: LiveTopic, rows: StagedRows) -> tuple[list[CommitStep], list[Rejected]]:
        """What rows do, and which of them are bad, and why; bad ones do nothing."""
        steps: list[CommitStep] = []
        rejected: list[Rejected] = []
        start = 0
        for run in rows.runs():
            try:
                steps.append(self._step(topic, run))
            except ClientError:
                bad = list(self._bad(topic, run, start))
                rejected += bad
                places = {row.index - start for row in bad}
                kept = run.at([at for at in range(len(run)) if at not in places])
                steps += [self._step(topic, kept)] if len(kept) else []
            start += len(run)
        return steps, rejected

    def _step(self, topic: LiveTopic, run: StagedRows) -> CommitStep:
        self._engine.check_sizes([body for body in run.bodies if body is not None])
        if isinstance(topic, CopyTopic) and run.stamps is None:
            raise ClientError("rows of a conflated topic need the columns bookmark and ts")
        return read(topic.records, run)

    def _bad(self, topic: LiveTopic, run: StagedRows, start: int) -> Iterator[Rejected]:
        for at in range(len(run)):
            try:
                self._step(topic, run.at([at]))
            except ClientError as error:
                yield Rejected(start + at, error.detail)

    def applied(self, writer: str, epoch: int, topic: str, passes_over: bool = False) -> str | None:
        """The bookmark at which a batch was applied to a topic, or None if it was not.

        Raises EpochPassed where the writer has gone on since, unless `passes_over` says that a
        batch is done with when a later one is.
        """
        last = self._last(writer, topic)
        if last is None or epoch > last["epoch"]:
            return None
        if epoch < last["epoch"] and not passes_over:
            raise EpochPassed(writer, epoch, topic, last["epoch"])
        bookmark: str = last["bookmark"]
        return bookmark

    def _last(self, writer: str, topic: str) -> dict[str, Any] | None:
        writes = self._engine.catalog.account(WRITES).records
        names = writes.identities_of([orjson.dumps({"writer": writer, "topic": topic})])
        before = self._engine.catalog.account(WRITES_BEFORE).records
        found: list[dict[str, Any]] = [
            orjson.loads(table.bodies[slot] or b"")
            for table, name in ((writes.table, names[0]), (before.table, writer))
            if (slot := table.slots.get(name)) is not None
        ]
        return max(found, key=lambda account: account["epoch"], default=None)

    def replacing(
        self, topic: LiveTopic, steps: Sequence[CommitStep], allows_empty: bool
    ) -> list[CommitStep]:
        """Steps that leave of a topic what these publish, and nothing else.

        To be applied at once: they name the records that go. Raises ClientError for steps that do
        not publish, and for none at all unless `allows_empty`.
        """
        if isinstance(topic, CopyTopic):
            raise ClientError(
                f"{topic.name} is a conflated topic, and its records are not replaced"
            )
        other = next((step.operation for step in steps if step.operation != "publish"), None)
        if other is not None:
            raise ClientError(
                f"a row has the op {other}, and rows that replace a topic are all published: "
                "records that are not among them go"
            )
        named = {name for step in steps for name in step.messages.identities}
        if not named and not allows_empty:
            raise ClientError(
                f"no rows are to replace the records of {topic.name}, so all of them would go; say "
                "that this is meant (allow_empty, and allowEmpty in Spark)"
            )
        going = [name for name in topic.records.table.slots if name not in named]
        # First, so that what goes and what comes need not be held together.
        return [CommitStep("delete", CheckedMessages([], going, {})), *steps]

    def apply(
        self, writer: str, epoch: int, name: str, steps: Sequence[CommitStep], now_us: int
    ) -> int:
        """Carry out a whole batch, and say so in the account of its writer.

        Nothing of it is seen before all of it; returns the bookmark of its last change.
        """
        engine, topic = self._engine, self.topic(name)
        self.check_room(topic, steps)
        if isinstance(topic, SourceTopic) and engine.capacity.bounds(topic):
            deeds = [self._deed(topic, step) for step in steps]
            at_once(engine.capacity.check(topic, deeds))
        rows = 0
        for step in steps:
            if isinstance(topic, CopyTopic):
                rows += self._update_copy(topic, step)
                continue
            if step.operation in DELETIONS:
                rows += engine.remove(topic, self._doomed(topic, step), "delete", now_us)
                continue
            messages = step.messages
            if step.operation == "delta":
                messages = engine.merged(topic, messages, now_us)
            engine.put(topic, messages, now_us, topic.expiry_us(None, now_us))
            rows += len(messages.bodies)
        bookmark = engine.seq
        account = {
            "writer": writer,
            "topic": name,
            "epoch": epoch,
            "bookmark": str(bookmark),
            "rows": rows,
        }
        writes = engine.catalog.account(WRITES)
        expires_us = writes.expiry_us(None, now_us)
        engine.put(writes, writes.records.read([orjson.dumps(account)]), now_us, expires_us)
        return bookmark

    def _update_copy(self, topic: CopyTopic, step: CommitStep) -> int:
        """What the engine of a conflated topic has released; it may hold some of it already."""
        assert step.rows is not None
        assert step.rows.stamps is not None
        rows, stamps, table = step.rows, step.rows.stamps, topic.records.table
        if step.operation not in DELETIONS:
            values = [
                (body, *stamp) for body, stamp in zip(step.messages.bodies, stamps, strict=True)
            ]
            updates = list(zip(step.messages.identities, values, strict=True))
            self._engine.update_copy(topic, updates, ())
            return len(updates)
        removals = [
            Removal(
                table.identities[slot] or "",
                (table.bodies[slot] or b"" if body is None else body, *stamp),
                REASON_OF[step.operation],
            )
            for key, body, stamp in zip(rows.keys, rows.bodies, stamps, strict=True)
            if key is not None and (slot := table.find(key)) is not None
        ]
        self._engine.update_copy(topic, (), removals)
        return len(removals)

    def _deed(self, topic: LiveTopic, step: CommitStep) -> Deed:
        """What a step does to the room there is; a delta adds to its record no more than itself."""
        if step.operation in DELETIONS:
            return Deed(self._doomed(topic, step), None)
        names, sizes = step.messages.identities, list(map(len, step.messages.bodies))
        if step.operation == "delta":
            table = topic.records.table
            held = [table.slots.get(name) for name in names]
            sizes = [
                size if slot is None else size + len(table.bodies[slot] or b"")
                for size, slot in zip(sizes, held, strict=True)
            ]
        return Deed(names, sizes)

    def _doomed(self, topic: LiveTopic, step: CommitStep) -> list[str]:
        table = topic.records.table
        slots = [slot for key in step.sow_keys if (slot := table.find(key)) is not None]
        return step.messages.identities + [table.identities[slot] or "" for slot in slots]
