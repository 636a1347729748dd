"""Staged writes: a batch from many tasks, applied as a whole and never twice.

Rows are *checked* when they are staged (`sow.sessions.commands.commit_plan`), so that a task learns
at once which of its rows are bad; *read* in pieces when the batch is committed; the changes are
*planned* (`sow.sessions.commands.commit_plan`) and then *applied*, in steps between which the topic
is not queried (`sow.engine.atomic_change`).

A record in the server's own topic of writes holds the epoch that a writer has reached. It and the
rows are numbered and logged in one step, before the first is stored, and so are in one transaction
of the journal: a batch that is committed again, before or after a crash, is recognised as a
duplicate.

A writer has an account for each topic. An epoch older than the account's is not a duplicate: its
writer started again under its old name, so it is an error unless the request allows it to be
skipped. So is the account's own epoch with other rows than those that were applied: one epoch is
one batch.

Rows of a batch that are too many to be held are written to the journal before it is applied
(`PreparedBatch`): one entry makes them all part of the log, and they are read again as they are
stored. That takes rows that are records as they come; what depends on the records that are there
(deltas, deletes, enrichment, checks of what may be written) is planned, and held for that.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from conflated_topics import Removal
from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE
from sow.engine.capacity import Deed
from sow.engine.engine import Engine
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic
from sow.errors import Busy, ClientError, InvalidTopic, NotEntitled, shown
from sow.messages.json import json_text
from sow.security.authorization import EVERYTHING, Permissions, stored_owner
from sow.sessions.commands.commit_plan import (
    DELETIONS,
    REASON_OF,
    BatchContent,
    CommitStep,
    Plan,
    StagedRows,
    read,
)
from sow.sessions.queries.access_control import permit_for
from sow.store.protocols import Load, LogEntry
from sow.topic.conflated_topic import CopyUpdate

ACCOUNT_BYTES = 4_096
"""More than what is noted of a writer takes."""
WAITED_ROWS_MAX = 4_000
"""Rows whose change queries wait for: some forty milliseconds."""
ROWS_OF_A_COPY = 50
"""So many records are copied in the time in which a row is stored."""
MEASURED_AT_ONCE = 2_000
"""Records that one step compares with the room there is: a millisecond."""


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
            f"{epoch}: it was started again, with another checkpoint or another count. Give it a "
            "name of its own as writer, count on from there, or say that what is older was written "
            "(rerun=skip)"
        )


class EpochReused(ClientError):
    """A writer hands over another batch under the number of the one that was applied."""

    reason = "epoch reused"
    status = 409

    def __init__(self, writer: str, epoch: int, topic: str, rows: int) -> None:
        super().__init__(
            f"epoch reused: writer {shown(writer)} has applied epoch {epoch} to {topic} with other "
            f"rows than these {rows}: one epoch is one batch, and what is written again under it "
            "must be the same. Give each batch a number of its own, each job a writer of its own, "
            "and leave out what is another value each time, such as rand() and uuid()"
        )


@dataclass(slots=True, eq=False)
class PreparedBatch:
    """Rows of a batch that are in the journal already, as a load; `entries` reads them. `sizes` are
    those of the records that they become; None: nobody had to know them when they were read."""

    load: Load
    entries: Callable[[], Iterator[LogEntry]]
    sizes: Mapping[str, int] | None
    is_taken: bool = False
    """It is part of the log, or may be soon."""
    is_logged: bool = False
    """It is part of the log."""

    def deeds(self) -> Task[list[Deed]]:
        """What it does to the room there is; raises Busy if that is limited only since the rows
        were read."""
        sizes = self.sizes
        if sizes is None:
            raise Busy(
                "MaxRecords or Limits/Memory has come while the rows of this commit were read, "
                "and whether they fit is not known: nothing was stored; send this again"
            )
        found, names = list[Deed](), iter(sizes)
        while some := list(islice(names, MEASURED_AT_ONCE)):
            found.append(Deed(some, [sizes[name] for name in some]))
            yield
        return found


class StagedWrites:
    """Batches on their way into the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def topic(self, name: str) -> LiveTopic:
        """The topic that rows are for; raises ClientError if it takes none."""
        topic = self._engine.topics.get(name)
        if isinstance(topic, CopyTopic) and topic.copy.is_external:
            return topic
        source = self._engine.catalog.publishable(name, "write to")
        if source.records.events is not None:
            raise InvalidTopic(
                f"topic {name} is a series: its events are appended one after the other, and a "
                "batch that becomes visible in one step is for records; publish to it"
            )
        return source

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

    def read(
        self, topic: LiveTopic, rows: StagedRows, times: range | None = None
    ) -> tuple[list[CommitStep], list[Rejected]]:
        """What rows do, and which of them are bad, and why; bad ones do nothing. `times` are those
        at which the rows come (`Engine.arrivals`): this may be a thread."""
        steps: list[CommitStep] = []
        rejected: list[Rejected] = []
        start = 0
        for run in rows.runs():
            own = times and times[start : start + len(run)]
            try:
                steps.append(self._step(topic, run, own))
            except ClientError:
                bad = list(self._bad(topic, run, start, own))
                rejected += bad
                places = {row.index - start for row in bad}
                kept = run.at([at for at in range(len(run)) if at not in places])
                steps += [self._step(topic, kept, own)] if len(kept) else []
            start += len(run)
        return steps, rejected

    def _step(self, topic: LiveTopic, run: StagedRows, times: range | None) -> CommitStep:
        self._engine.capacity.check_sizes([body for body in run.bodies if body is not None])
        if isinstance(topic, CopyTopic) and run.stamps is None:
            raise ClientError("rows of a conflated topic need the columns bookmark and ts")
        step = read(topic.records, run, times)
        self._engine.capacity.check_sizes(step.messages.bodies)
        return step

    def _bad(
        self, topic: LiveTopic, run: StagedRows, start: int, times: range | None
    ) -> Iterator[Rejected]:
        for at in range(len(run)):
            try:
                self._step(topic, run.at([at]), times)
            except ClientError as error:
                yield Rejected(start + at, error.detail)

    def applied(
        self,
        writer: str,
        epoch: int,
        topic: str,
        passes_over: bool = False,
        rights: Permissions = EVERYTHING,
        content: BatchContent | None = None,
    ) -> str | None:
        """The bookmark at which a batch was applied to a topic, or None if it was not.

        Raises EpochPassed where the writer has committed later epochs, unless `passes_over` allows
        to skip them; EpochReused where the applied batch has another `content`, as far as both are
        known; NotEntitled where the writer belongs to another user.
        """
        last = self._last(writer, topic)
        if last is None:
            return None
        owner = stored_owner(last.get("user", ""))
        if owner not in ("", rights.owner_text) and not rights.may("admin"):
            raise NotEntitled(
                f"writer {shown(writer)} of topic {topic} is another user's; take another name"
            )
        if epoch > last["epoch"]:
            return None
        if epoch < last["epoch"] and not passes_over:
            raise EpochPassed(writer, epoch, topic, last["epoch"])
        held = last.get("content")
        if epoch == last["epoch"] and held and content and not content.may_be(held):
            raise EpochReused(writer, epoch, topic, content.rows)
        bookmark: str = last["bookmark"]
        return bookmark

    def may_be_of(self, writer: str, epoch: int, topic: str, attempts: str) -> bool:
        """Whether an applied batch may have consisted of these `attempts`: not if the account has
        others for this epoch."""
        last = self._last(writer, topic)
        return last is None or last["epoch"] != epoch or last.get("attempts", attempts) == attempts

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

    def check_replaces(
        self, topic: LiveTopic, steps: Sequence[CommitStep], allows_empty: bool
    ) -> None:
        """Raise ClientError unless steps may replace all that a topic holds: they do if they only
        publish, and something, or `allows_empty`."""
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
        if not any(step.messages.identities for step in steps) and not allows_empty:
            raise ClientError(
                f"no rows are to replace the records of {topic.name}, so all of them would go; say "
                "that this is meant (allow_empty, and allowEmpty in Spark)"
            )

    def may_prepare(self, topic: LiveTopic, rights: Permissions) -> bool:
        """Whether rows that are published to a topic may be written to the journal before."""
        return (
            isinstance(topic, SourceTopic)
            and topic.is_logged
            and not topic.makes_records
            and not topic.queues
            and permit_for(rights, "write", topic.name) is None
        )

    def needs_sizes(self, topic: LiveTopic, replaces: bool) -> bool:
        """Whether it is to be known which records prepared rows become."""
        return replaces or self._engine.capacity.bounds(topic)

    def apply(
        self, writer: str, epoch: int, name: str, steps: list[CommitStep], now_us: int
    ) -> int:
        """`applying`, at once."""
        return run_to_completion(self.applying(writer, epoch, name, steps, now_us))

    def applying(
        self,
        writer: str,
        epoch: int,
        name: str,
        steps: list[CommitStep],
        now_us: int,
        replaces: bool = False,
        rights: Permissions = EVERYTHING,
        content: BatchContent | None = None,
        attempts: str = "",
        prepared: PreparedBatch | None = None,
    ) -> Task[int]:
        """Apply a whole batch, and record it in the account of its writer, with its `content` and
        the `attempts` that it consists of; `steps` are emptied.

        The batch becomes visible as a whole; returns the bookmark of its last change. Its rows are
        the steps, or those that are `prepared`, if `may_prepare` holds. `replaces`:
        the topic's other records are removed. If the caller closes this after it has begun, the
        engine finishes it. `rights` are the caller's permissions; raises NotEntitled.
        """

        def work(topic: LiveTopic) -> Task[int]:
            # A client that timed out on this batch may have sent it again.
            before = self.applied(writer, epoch, name, rights=rights, content=content)
            if before is not None:
                return int(before)
            self.check_room(topic, steps)
            rows = sum([len(step.messages.identities) for step in steps])
            self._let_read(topic, rows + (0 if prepared is None else prepared.load.records))
            permits = permit_for(rights, "write", name), permit_for(rights, "delete", name)
            if isinstance(topic, CopyTopic):
                if any(permits):
                    raise NotEntitled(
                        f"records of {name} can be written only with permission for all of it"
                    )
                return (yield from self._release(topic, steps, noted, now_us))
            assert isinstance(topic, SourceTopic)  # nothing else takes rows
            named = None
            if prepared is not None:
                if not self.may_prepare(topic, rights):
                    raise Busy(f"the definition of {name} has just changed; send this again")
                self._engine.disk.check()
                yield from self._engine.removals.clear_way(topic, now_us)
                named = prepared.sizes
            plan = Plan(self._engine, topic, steps, now_us, replaces, permits, named)
            return (yield from self._store(topic, plan, noted, now_us, prepared))

        def taking(topic: LiveTopic) -> Task[int]:
            """The same; what is prepared is taken from the first step on, unless that fails, since
            the server carries it out also if the caller leaves."""
            if prepared is not None:
                prepared.is_taken = True
            try:
                return (yield from work(topic))
            finally:
                if prepared is not None:
                    prepared.is_taken = prepared.is_logged

        noted = {"writer": writer, "topic": name, "epoch": epoch}
        noted |= {"user": rights.owner_text} if rights.owner_text else {}
        noted |= {"content": str(content)} if content is not None else {}
        noted |= {"attempts": attempts} if attempts else {}
        return self._engine.atomic.carry_out(lambda: self.topic(name), taking)

    def _let_read(self, topic: LiveTopic, rows: int) -> None:
        """Let queries read what there was before a change of so many rows, where they would wait
        for long and copying the records takes no longer than the change itself."""
        records = topic.records
        copies = ROWS_OF_A_COPY * rows > len(records.table)
        if copies and rows > WAITED_ROWS_MAX and isinstance(topic, SourceTopic) and records.retains:
            self._engine.atomic.keep()

    def _store(
        self,
        topic: SourceTopic,
        plan: Plan,
        noted: Mapping[str, Any],
        now_us: int,
        prepared: PreparedBatch | None = None,
    ) -> Task[int]:
        """Number and log all that is planned or prepared, and the account of it, which has `noted`
        in it; then store it."""
        engine = self._engine
        engine.atomic.plan()
        pieces = yield from plan.pieces()
        for queue in topic.queues:
            queue.check_room(sum(map(len, pieces)))
        deeds = list[Deed]()
        for piece in pieces if engine.capacity.bounds(topic) else ():
            deeds.append(piece.deed)
            yield
        if prepared is not None and engine.capacity.bounds(topic):
            deeds += yield from prepared.deeds()
        room = engine.capacity.reserve(topic, [deed for deed in deeds if deed.sizes is not None])
        try:
            yield from engine.capacity.check(topic, deeds, room)
            yield from engine.followers.caught_up(topic.name)
            if engine.atomic.keeps:
                # Until all is stored, which may take minutes, nothing else changes the topic, and
                # views show nothing of what came before.
                engine.requests.report_changes_of(topic.name)
            yield from engine.views.settling_above(topic.name)
            yield from engine.atomic.freezing()
            if prepared is not None and topic.queues:  # since a reload meanwhile
                raise Busy(f"the definition of {topic.name} has just changed; send this again")
            now_us = engine.sequencer.moment(now_us)
            expires_us = topic.expiry_us(None, now_us)
            engine.enter(topic)
            engine.atomic.hold_other_output(topic, now_us)
            numbered = deque((piece, piece.number(topic, now_us, expires_us)) for piece in pieces)
            before_seq, rows = engine.seq, sum(map(len, pieces))
            if prepared is not None:
                topic.number_load(prepared.load, now_us, expires_us)
                prepared.is_logged = True
                rows += prepared.load.records
            bookmark = engine.seq
            for piece, seqs in numbered if topic.queues else ():
                if not piece.removes:
                    topic.enqueue(piece.messages.identities, piece.messages.bodies, seqs, now_us)
            self._note(noted, bookmark, rows, now_us)
            pieces.clear()
            while numbered:
                yield
                yield from engine.followers.caught_up(topic.name)
                piece, seqs = numbered.popleft()
                if not piece.removes and deeds:
                    room.take_next()
                piece.store(engine, topic, seqs, now_us, expires_us)
            if prepared is not None:
                yield from self._store_prepared(topic, prepared, before_seq, now_us, expires_us)
            yield from engine.atomic.tidying()
            return bookmark
        finally:
            room.release()

    def _store_prepared(
        self,
        topic: SourceTopic,
        prepared: PreparedBatch,
        before_seq: int,
        now_us: int,
        expires_us: int,
    ) -> Task[None]:
        """Store what was prepared, and was numbered after a record; an entry in each step."""
        engine = self._engine
        for entry in prepared.entries():
            yield
            yield from engine.followers.caught_up(topic.name)
            messages = topic.records.stored(entry.bodies, entry.identities)
            first = before_seq + entry.seq
            seqs = range(first, first + len(entry))
            engine.pass_on(topic, topic.store(messages, seqs, now_us, expires_us))

    def _release(
        self, topic: CopyTopic, steps: Sequence[CommitStep], noted: Mapping[str, Any], now_us: int
    ) -> Task[int]:
        """What the engine of a conflated topic has released; nothing of it is logged."""
        rows = 0
        for step in steps:
            rows += self._update_copy(topic, step)
            yield
        self._note(noted, self._engine.seq, rows, now_us)
        return self._engine.seq

    def _note(self, noted: Mapping[str, Any], bookmark: int, rows: int, now_us: int) -> None:
        """Record in the account of a writer its epoch, and what is `noted` of the batch."""
        account = {**noted, "bookmark": str(bookmark), "rows": rows}
        writes = self._engine.catalog.account(WRITES)
        messages = writes.records.read([json_text(account)])
        self._engine.put(writes, messages, now_us, writes.expiry_us(None, now_us))

    def _update_copy(self, topic: CopyTopic, step: CommitStep) -> int:
        """What the engine of a conflated topic has released, each as of its change of the
        underlying topic: what is older than the state that it holds is skipped."""
        assert step.rows.stamps is not None
        rows, stamps, table = step.rows, step.rows.stamps, topic.records.table
        updates: list[tuple[str, CopyUpdate]] = []
        removals: list[Removal[str, CopyUpdate]] = []
        if step.operation not in DELETIONS:
            values = [
                (body, *stamp) for body, stamp in zip(step.messages.bodies, stamps, strict=True)
            ]
            updates = list(zip(step.messages.identities, values, strict=True))
        else:
            removals = [
                Removal(
                    table.identities[slot] or "",
                    (table.bodies[slot] or b"" if body is None else body, *stamp),
                    REASON_OF[step.operation],
                )
                for key, body, stamp in zip(rows.keys, rows.bodies, stamps, strict=True)
                if key is not None and (slot := table.find(key)) is not None
            ]
        for batch in topic.copy.accept(updates, removals):
            batch.be_due_at(self._engine.now_us)
            self._engine.route(topic, batch)
        return len(updates) + len(removals)
