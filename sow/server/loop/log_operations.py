"""What an operator does with a shared log: look, step down, verify, trim.

    status ──> how this node stands in the log
    step_down > another node leads
    verify ──> the log is read again, and has the entries that this node has read
    trim ────> entries before a bookmark go, as far as every node has a checkpoint behind them

Reading again begins with the log or, where that was trimmed, behind the first entry that is left:
a trim leaves the end of a group, which is what it should be if the chain ends in what is known. It
goes up to the newest group of the moment, in calls of the engine: the server goes on meanwhile.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

from sow.core.clock import SECOND_US
from sow.errors import ClientError, LogTrimmed, StoreError
from sow.history.bookmarks import time_text
from sow.server.loop.log_checkpoint import CheckpointKeeper, LogCheckpoint, LogMark, mark_of
from sow.server.loop.log_driver import LogDriver
from sow.server.loop.log_writer import entries_of, newest_of
from sow.shared_log import SharedLog
from sow.shared_log.entry import ChainState, EntryKind, LogChain, LogGroup, decode
from sow.shared_log.roles import LogNode


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
