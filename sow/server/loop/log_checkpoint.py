"""What a node of a shared log keeps beside its data, and what an operator does with the log.

    data directory ──> everything of the log up to a place, and maybe more
    its file ────────> that place: the bookmark, and the state of the chain behind it
    its mark ────────> there if the records are not those of the log: nothing begins with them

So a start reads the log from there on, a node that was given a copy of another one's directory
goes on behind it, and the log may be trimmed up to there. What comes again is passed over, so the
place may be an earlier one, never a later: it is written after everything before it is durable in
the journal. A directory that does not hold what its file says is read for from the beginning.

    status ────> how this node stands in the log
    step_down ─> another node leads
    verify ────> the log is read again, and has the entries that this node has read
    trim ──────> entries before a bookmark go, as far as every node has a checkpoint behind them

Reading again begins with the log or, where that was trimmed, behind the first entry that is left:
a trim leaves the end of a group, which is what it should be if the chain ends in what is known. It
goes up to the newest group of the moment, in calls of the engine: the server goes on meanwhile.
"""

import asyncio
import logging
import os
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from sow.core.clock import SECOND_US
from sow.core.cooperative import run_to_completion
from sow.errors import ClientError, LogTrimmed, SowError, StateDiffers, StoreError
from sow.history.bookmarks import time_text
from sow.server.loop.log_driver import LogDriver
from sow.server.loop.log_writer import entries_of, newest_of
from sow.server.loop.runtime import ServerRuntime
from sow.shared_log import SharedLog
from sow.shared_log.entry import (
    HASH_BYTES,
    ChainState,
    EntryKind,
    LogChain,
    LogGroup,
    decode,
    decode_lead,
)
from sow.shared_log.roles import LogNode
from sow.store import rewrite
from sow.store.environment import sync_directory
from sow.store.manifest import write_file

log = logging.getLogger("sow.log")

CHECKPOINT_FILE = "log-checkpoint.json"
MARK_FILE = "state-differs"
"""That it is there counts, whatever is in it: why, for people."""
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
KEPT_S = 2.0
"""Between two places that are written: what was logged since then is read again at a start, in a
tenth of a second."""


class LogMark(msgspec.Struct, frozen=True):
    """Up to which bookmark, and which position in the shared log, a node needs nothing of it."""

    bookmark: Annotated[str, Meta(pattern=r"^[0-9]{1,19}$")] = "0"
    position: Count = 0


class LogCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in a log: the state of its chain, and the newest record before it."""

    log: str
    bookmark: Count
    position: Count
    hash: str
    term: Count
    time_us: Count
    lead: dict[str, Any]
    replaced: tuple[str, ...] = ()

    @property
    def state(self) -> ChainState | None:
        """The state of the chain; None where that is none."""
        lead = decode_lead(msgspec.json.encode(self.lead))
        try:
            last_hash = bytes.fromhex(self.hash)
        except ValueError:
            return None
        if lead is None or len(last_hash) != HASH_BYTES or min(self.position, self.term) < 1:
            return None
        return ChainState(self.position, last_hash, self.term, self.time_us, lead, self.replaced)


def checkpoint_of(state: ChainState, bookmark: int) -> LogCheckpoint | None:
    """A state with the newest record before it; None where nobody has led yet."""
    lead = state.lead
    if lead is None:
        return None
    return LogCheckpoint(
        lead.log,
        bookmark,
        state.position,
        state.hash.hex(),
        state.term,
        state.time_us,
        lead._asdict(),
        state.replaced,
    )


def mark_of(checkpoint: LogCheckpoint | None) -> LogMark:
    """What is needed by a node that has this one; without one it needs all."""
    if checkpoint is None:
        return LogMark()
    return LogMark(str(checkpoint.bookmark), checkpoint.position)


def parse_checkpoint(text: bytes) -> LogCheckpoint | None:
    """A checkpoint; None for anything else."""
    try:
        found = msgspec.json.decode(text, type=LogCheckpoint)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return None if found.state is None else found


class _StatusSaid(msgspec.Struct):
    checkpoint: LogCheckpoint | None = None


def checkpoint_said(text: bytes) -> LogCheckpoint | None:
    """The checkpoint of a node whose `/v1/log/status` this is; None if it has none."""
    try:
        found = msgspec.json.decode(text, type=_StatusSaid).checkpoint
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return found if found is not None and found.state is not None else None


def read_checkpoint(directory: Path) -> LogCheckpoint | None:
    """That of a data directory; None if it has none that can be read: the log is read again."""
    try:
        return parse_checkpoint((directory / CHECKPOINT_FILE).read_bytes())
    except OSError:
        return None


def write_checkpoint(directory: Path, checkpoint: LogCheckpoint) -> None:
    """Replace that of a data directory, durably."""
    text = msgspec.json.encode(checkpoint)
    run_to_completion(write_file(directory / CHECKPOINT_FILE, (text,)))


def mark_differing(directory: Path, why: str) -> None:
    """Have no process begin with the records of a data directory, durably. On a full disk the mark
    is there, too, without the reason."""
    path = directory / MARK_FILE
    try:
        with rewrite(path) as file:
            sync_directory(directory)
            file.write(f"{why}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def check_trusted(directory: Path) -> None:
    """Raise StateDiffers for a data directory that is marked."""
    if (directory / MARK_FILE).exists():
        raise StateDiffers(
            f"{directory} has not the records that the other nodes of its log have, as its file "
            f"{MARK_FILE} says, and this node has stopped for that: {put_aside(directory)}"
        )


def put_aside(directory: Path) -> str:
    """What to do with a data directory that differs."""
    path = shlex.quote(str(directory))
    return (
        f"run mv {path} {shlex.quote(f'{directory}.differs')} and start the node again: it copies "
        "everything from the others. Keep the old directory for a bug report"
    )


class CheckpointKeeper:
    """Writes the place of `driver` to the data directory `directory`, from time to time while a
    server runs."""

    def __init__(self, driver: LogDriver, directory: Path) -> None:
        self.kept = read_checkpoint(directory)
        """The newest that was written."""
        self._driver = driver
        self.directory = directory
        self._task: asyncio.Task[None] | None = None

    def start(self, runtime: ServerRuntime) -> None:
        """Write for this server."""
        self._task = asyncio.create_task(self._run(runtime))

    async def close(self) -> None:
        """Write no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, runtime: ServerRuntime) -> None:
        while True:
            try:
                await self.keep(runtime)
            except SowError as error:
                # The journal says why; the place before stands, and is good.
                log.debug("the place in the shared log is not written: %s", error.detail)
            await asyncio.sleep(KEPT_S)

    async def keep(self, runtime: ServerRuntime) -> None:
        """Write the place of now, once everything before it is durable here."""
        bookmark = runtime.journal.last_seq
        state = self._driver.place(bookmark)
        await runtime.durable()
        checkpoint = checkpoint_of(state, bookmark)
        if checkpoint is None or (self.kept and checkpoint.position <= self.kept.position):
            return
        await asyncio.to_thread(write_checkpoint, self.directory, checkpoint)
        self.kept = checkpoint


class LogRead(NamedTuple):
    """What was read again: the group that was complete, if one was, and the state behind it."""

    group: LogGroup | None
    state: ChainState
    void_count: int


def failover_of(node: LogNode) -> dict[str, Any] | None:
    """When another node began to lead, and why, for people."""
    found = node.failover
    if found is None:
        return None
    why = f"{found.before} was not heard for {found.silent_us / SECOND_US:.1f} s"
    if found.resigned:
        why = f"{found.before} stepped down"
    elif found.silent_us <= node.lease_us:
        why = f"{found.before} was not heard, as this node has read later"
    return {
        "at": time_text(found.time_us),
        "before": found.before,
        "after": found.after,
        "why": why,
    }


class LogOperations:
    """Those of the node of `driver`, whose log is `shared`; `keeper` has its checkpoint."""

    def __init__(self, shared: SharedLog, driver: LogDriver, keeper: CheckpointKeeper) -> None:
        self._shared = shared
        self._driver = driver
        self._keeper = keeper

    @property
    def kept(self) -> LogCheckpoint | None:
        """The checkpoint of this node."""
        return self._keeper.kept

    @property
    def mark(self) -> LogMark:
        """The same, as what it needs."""
        return mark_of(self._keeper.kept)

    def status(self) -> dict[str, Any]:
        """How this node stands."""
        driver = self._driver
        state, leader = driver.node.chain.state, driver.leader
        return {
            "node": driver.lead.node,
            "address": driver.lead.address,
            "leader": None if leader is None else leader.node,
            "leader_address": None if leader is None else leader.address,
            "term": state.term,
            "position": state.position,
            "lease_ms": driver.node.lease_us // 1000,
            "silent_ms": driver.silent_us() // 1000,
            "stale": driver.is_stale,
            "void": driver.node.chain.void_count,
            "failover": failover_of(driver.node),
        }

    def step_down(self) -> str:
        """Have another node lead; the name of this one. Raises NotLeading where another one does,
        and NoQuorum where none does yet."""
        if not self._driver.step_down():
            raise self._driver.lost_lead()
        return self._driver.lead.node

    async def verify(self) -> dict[str, Any]:
        """Read the log again; raises StoreError where it is not what this node has read."""
        known = [self._driver.node.chain.settled]
        if self.kept is not None and self.kept.state is not None:
            known.append(self.kept.state)
        groups = void_count = 0
        begins = state = await self._begins()
        wanted = {one.position: one.hash for one in known if one.position > begins.position}
        async with aclosing(self._read_again(begins)) as read:
            async for one in read:
                state, void_count = one.state, one.void_count
                groups += one.group is not None
                if wanted.get(state.position) == state.hash:
                    del wanted[state.position]
        if wanted:
            raise StoreError(
                f"the shared log is not what this node has applied: its chain does not lead to the "
                f"entry at position {min(wanted)}, and follows up to {state.position}. Compare the "
                "other nodes; a node that differs begins again with an empty DataDirectory",
                reason="log differs",
            )
        return {
            "first": begins.position + 1,
            "last": state.position,
            "hash": state.hash.hex(),
            "groups": groups,
            "void": void_count,
        }

    async def trim(self, before: int, others: Mapping[str, LogMark]) -> dict[str, Any]:
        """Let go of what comes before a bookmark; `others` are the marks of the other nodes, by
        their addresses. Raises ClientError beyond the oldest one."""
        marks = {self._driver.lead.address: self.mark, **others}
        oldest = min(marks, key=lambda one: int(marks[one].bookmark))
        bookmark = int(marks[oldest].bookmark)
        if before > bookmark + 1:
            raise ClientError(
                f"the oldest checkpoint of any node is that of {oldest}, and ends at bookmark "
                f"{bookmark}: what comes behind it is still needed; write --before {bookmark + 1} "
                "or less, or wait for its next checkpoint",
                reason="beyond the oldest checkpoint",
            )
        position_max = min(one.position for one in marks.values())
        begins = last = await self._begins()
        async with aclosing(self._read_again(begins)) as read:
            async for group, state, _ in read:
                if state.position > position_max:
                    break
                if group is not None and await asyncio.to_thread(newest_in, group) >= before:
                    break
                last = state
        if last.position:
            # The entry at that place stays: who begins there looks for it.
            await self._shared.trim(last.position)
        return {"before": str(before), "position": last.position}

    async def _begins(self) -> ChainState:
        """The state with which reading again begins."""
        settled, after = self._driver.node.chain.settled, 0
        while after < settled.position:
            try:
                async with aclosing(self._shared.read(after)) as blocks:
                    async for position, block in blocks:
                        if not after:
                            return ChainState()
                        if (found := decode(block)) is not None:
                            return ChainState(position, found[1], found[0].term)
            except LogTrimmed as trimmed:
                after = trimmed.until
        return settled

    async def _read_again(self, begins: ChainState) -> AsyncGenerator[LogRead, None]:
        """The valid entries up to now, each behind which there is no half of a group."""
        chain, end = LogChain(begins), self._driver.node.chain.settled.position
        if end <= begins.position:
            return
        async with aclosing(self._shared.read(begins.position)) as blocks:
            async for position, block in blocks:
                found = chain.take(position, block)
                if found is not None and chain.settled is chain.state:
                    yield LogRead(found.group, chain.state, chain.void_count)
                if position >= end:
                    return


def newest_in(group: LogGroup) -> int:
    """The newest record of a group; what has none may go with what comes before."""
    if group.kind not in (EntryKind.RECORDS, EntryKind.RELOAD):
        return 0
    return newest_of(entries_of(group))
