"""The driver of a node of a shared log: it carries out what a `LogNode` orders.

    the engine answers, blocks arrive, time passes ──> an event of the node ──> its orders
    appends and questions ──> a task each, which ends in an event
    reading ────────────────> one task; an order to read replaces it
    groups of other nodes ──> `waiting`, for who applies them; while many wait, nothing more is read
    groups of this node ────> `submitter`, once they are durable, or when they never will be

It begins behind a state that is kept beside a checkpoint, once it has found the entry in the log
with which that ends: a state of another log would have it lead a log of its own.

It outlives the server that uses it: one that leads no more starts again from its own disk, and the
node goes on meanwhile. What it cannot go on after is its `failure`: then another driver begins, as
after a crash.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from sow.core.async_tasks import ClosingReader, end_all
from sow.core.clock import SECOND_US, monotonic_us
from sow.errors import (
    ConfigError,
    LogTrimmed,
    LogUnanswered,
    NoQuorum,
    NotLeading,
    OutcomeUnknown,
    SowError,
    StoreError,
    UnsafeLog,
    described,
)
from sow.shared_log import SharedLog
from sow.shared_log.entry import HASH_BYTES, ChainState, EntryKind, Lead, LogGroup, decode
from sow.shared_log.roles import (
    ApplyGroup,
    FindEnd,
    FollowFrom,
    LeadFrom,
    LogNode,
    Order,
    ReadFrom,
    ReleaseGroup,
    StandBack,
)
from sow.shared_log.writer import AppendBlock

log = logging.getLogger("sow.log")

BEGINNING = ChainState()
UNKNOWN = "what was handed over may be in it; look at another node before you send this again"
NO_TROUBLE = "nothing came"
WAITING_BYTES_MAX = 64 * 1024**2
"""Of groups that are not applied: one of the largest, or what is applied in a second."""

CHECKED_S_MAX = 10.0
"""So long an engine may take to find an entry; then it is tried again."""


class Submitter(Protocol):
    """What has submitted groups."""

    def released(self, number: int) -> None:
        """A group is durable."""
        ...

    def ended(self, error: StoreError) -> None:
        """No group is released any more, for this reason."""
        ...


class LogDriver:
    """One node of the log `shared`, which says `lead` when it leads. `now_us` passes steadily. Who
    `has_records` begins no log."""

    def __init__(
        self,
        shared: SharedLog,
        lead: Lead,
        new_token: Callable[[], bytes] = lambda: secrets.token_bytes(HASH_BYTES),
        now_us: Callable[[], int] = monotonic_us,
        state: ChainState = BEGINNING,
        has_records: bool = False,
    ) -> None:
        self.lead = lead
        self._log_time_us: Callable[[], int] = lambda: self.time_us
        self.waiting: deque[LogGroup] = deque()
        """To be applied, in order; it is taken by `applied`."""
        self._submitter: Submitter | None = None
        self.failure: Exception | None = None
        """Why it does not go on."""
        self._shared = shared
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self.node = LogNode(lead, state, now_us(), new_token, lambda: self._log_time_us())
        self._begins = state
        self._has_records = has_records
        self._place = state
        self._ends: deque[tuple[int, ChainState]] = deque()
        """Of groups that were taken from here: the newest record, and the state behind them."""
        self._waiting_bytes = 0
        self._joins_behind: int | None = None
        """Where the log ended when it was first read."""
        self._begun_us = now_us()
        self._time_read_us = now_us()
        """When the log's newest time was read."""
        self._own_term = -1
        """The newest that this node has led in."""
        self.has_heard = False
        """It has led, or has heard another node lead: it knows what time it is in the log."""
        self.stands_back = False
        """It does not lead although nobody else does: see `StandBack`."""
        self.gave_way = False
        """It has stepped down since its disk is full: not twice, for others may have no room."""
        self._is_stale = False
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._finding: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._next: asyncio.Future[None] | None = None
        self._is_over = False
        self._went_back = False
        """The log has ended before what was read of it."""
        self.trouble = NO_TROUBLE
        """What the engine has not done last."""

    def start(self) -> None:
        """Read, and lead when nobody does."""
        self._begin(self._find_beginning())

    async def close(self) -> None:
        """Stop; nothing is submitted or released any more."""
        self._end()
        self._end_submitter(OutcomeUnknown(f"this node has left the shared log: {UNKNOWN}"))
        await end_all(self._tasks)

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._report()

    def fail(self, error: Exception) -> None:
        """Do not go on: what is here does not fit the log."""
        if self.failure is None:
            self.failure = error
            self._end()
            self._end_submitter(
                OutcomeUnknown(f"this node cannot go on with the shared log: {UNKNOWN}")
            )

    def _end_submitter(self, error: StoreError) -> None:
        submitter, self._submitter = self._submitter, None
        if submitter is not None:
            submitter.ended(error)

    # The state.

    @property
    def is_primary(self) -> bool:
        """Whether this node leads."""
        return self.node.is_primary

    @property
    def leader(self) -> Lead | None:
        """Who leads; None: nobody yet, as far as the log was read."""
        return self.node.chain.state.lead

    @property
    def address(self) -> str:
        """Where the node is called that leads; "": nobody leads yet."""
        return "" if self.leader is None else self.leader.address

    @property
    def time_us(self) -> int:
        """The time of the log, as far as it was read."""
        return self.node.chain.state.time_us

    def time_now_us(self) -> int:
        """The time of the log, and what has passed since it was read, by this node's clock."""
        return self.time_us + self._now_us() - self._time_read_us

    @property
    def is_stale(self) -> bool:
        """Whether what this node knows may be out of date."""
        return self._is_over or self.silent_us() > self.node.lease_us

    def silent_us(self) -> int:
        """For how long nothing is known for certain: what was written before this node began to
        read says nothing of now."""
        if self._is_late:
            return self.node.lease_us + self._now_us() - self._begun_us
        return self.node.silent_us(self._now_us())

    @property
    def has_begun(self) -> bool:
        """Its engine has answered, and the log is read."""
        return self._joins_behind is not None

    @property
    def _is_late(self) -> bool:
        """It reads what was there when it began."""
        end = self._joins_behind
        return not self.is_primary and (end is None or self.node.chain.state.position <= end)

    @property
    def has_joined(self) -> bool:
        """It leads, or has heard who leads since it began to read: that is no matter of the past.
        After a start of all nodes this takes two leases at most."""
        return self.is_primary or not (self._is_late or self.is_stale)

    @property
    def is_full(self) -> bool:
        """As much waits to be applied as is held at once: no more is read before."""
        return self._waiting_bytes > WAITING_BYTES_MAX

    def next(self) -> asyncio.Future[None]:
        """A future that is done when anything has happened; shared, so do not cancel it."""
        if self._next is None:
            self._next = self._loop.create_future()
        return self._next

    def _report(self) -> None:
        if self._next is not None:
            found, self._next = self._next, None
            found.set_result(None)

    # What is submitted and applied.

    def serve(self, submitter: Submitter) -> None:
        """Tell this one what becomes of what is submitted from now on."""
        self._submitter = submitter

    def keep_time(self, log_time_us: Callable[[], int] | None) -> None:
        """Take the log's time, of beats and leads, from here: of the server that leads; None: it
        stands still."""
        self._log_time_us = log_time_us or (lambda: self.time_us)
        self.has_heard |= log_time_us is not None

    def note_room(self, has_room: bool) -> None:
        """Whether this node's disk has room, while it leads."""
        self.gave_way = not has_room

    def step_down(self) -> bool:
        """Have another node lead, after all that was submitted is in the log; False: this one does
        not lead. In any case it does not lead for a while, if another one can."""
        leads = not self._is_over and self.node.step_down(self._now_us())
        self._go_on()
        return leads

    async def resign(self) -> None:
        """Lead no more: others need not wait for silence. Returns when that is in the log, or after
        a lease without an answer of the engine."""
        if self.step_down():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.node.lease_us / SECOND_US):
                    while self.is_primary and self.failure is None:
                        await asyncio.shield(self.next())

    def hold_off(self) -> None:
        """Let others lead for a while, if they can."""
        self.node.hold_off(self._now_us())

    def lost_lead(self) -> StoreError:
        """Why nothing is released any more where this node does not lead."""
        if self.has_led_last:
            return NoQuorum(
                "this node steps down, and no other leads yet: nothing was applied; send this again"
            )
        return NotLeading(
            f"another node leads now, at {self.address}: nothing of the request was applied, send "
            "it there",
            primary=self.address,
        )

    def lead_with(self, lead: Lead) -> None:
        """Say this from the next `lead` on."""
        self.lead = lead
        self.stands_back = False
        self.node.lead_with(lead)

    @property
    def has_led_last(self) -> bool:
        """No other node has begun to lead since this one did."""
        return self.node.chain.state.term == self._own_term

    def submit(
        self, number: int | None, content: bytes, time_us: int, kind: EntryKind = EntryKind.RECORDS
    ) -> bool:
        """Append a group of changes, which is released as `number` if it has one; False: this node
        does not lead."""
        if self._is_over or not self.node.submit(number, kind, content, time_us):
            return False
        self._go_on()
        return True

    def applied(self, seq: int) -> None:
        """The first group that waited is taken; its newest record is `seq`."""
        group = self.waiting.popleft()
        self._waiting_bytes -= len(group.content)
        self._ends.append((seq, group.end))
        self._report()

    def taken(self, seq: int) -> None:
        """The group that was released just now is taken; its newest record is `seq`."""
        self._ends.append((seq, self.node.chain.settled))

    def place(self, durable_seq: int) -> ChainState:
        """The newest place in the log with nothing before it that a journal up to a record has
        not; accounts count as soon as they are taken."""
        while self._ends and self._ends[0][0] <= durable_seq:
            self._place = self._ends.popleft()[1]
        if not (self._ends or self.waiting or self.node.has_parts):
            self._place = self.node.chain.settled
        return self._place

    # Orders.

    def _go_on(self) -> None:
        """Have the node do what is due, and carry out what it orders."""
        if self._is_over:
            return
        now_us = self._now_us()
        self.node.pass_time(now_us)
        for order in self.node.take():
            self._carry_out(order)
        stale = self.is_primary and self.node.is_stale(now_us)
        if stale != self._is_stale:
            self._is_stale = stale
            self._report()
        self._set_timer(now_us)

    def _set_timer(self, now_us: int) -> None:
        due_us = self.node.due_us()
        if self.is_primary and not self._is_stale:
            due_us = min(due_us, now_us + self.node.lease_us - self.node.silent_us(now_us) + 1)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0, due_us - now_us) / SECOND_US, self._go_on)

    def _carry_out(self, order: Order) -> None:
        if isinstance(order, AppendBlock):
            self._begin(self._append(order))
        elif isinstance(order, FindEnd):
            # An engine that is away for a night must not have thousands of questions to answer.
            if self._finding is None or self._finding.done():
                self._finding = self._begin(self._find_end())
        elif isinstance(order, ReadFrom):
            if self._reading is not None:
                self._reading.cancel()
            self._reading = self._begin(self._read(order.after))
        elif isinstance(order, ApplyGroup):
            self.waiting.append(order.group)
            self._waiting_bytes += len(order.group.content)
        elif isinstance(order, ReleaseGroup):
            if self._submitter is not None:
                self._submitter.released(order.number)
        elif isinstance(order, LeadFrom):
            self._own_term = order.term
            log.info("node %s leads, in term %d", self.lead.node, order.term)
            self._report()
        elif isinstance(order, StandBack):
            self.stands_back = True
            self._report()
        else:
            self._follow(order)

    def _follow(self, order: FollowFrom) -> None:
        if self.has_led_last:
            log.warning("node %s has stepped down", self.lead.node)
        else:
            log.warning(
                "node %s leads no more: %s does; %d groups of changes were not stored",
                self.lead.node,
                order.lead.node if order.lead is not None else "another node",
                len(order.unreleased),
            )
        self.keep_time(None)
        self._end_submitter(self.lost_lead())
        self._report()

    # Calls.

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _append(self, order: AppendBlock) -> None:
        try:
            position = await self._shared.append(order.block)
        except Exception as error:
            self._note(error)
            self.node.failed(order.token)
        else:
            self.trouble = NO_TROUBLE
            self.node.acked(order.token, position, self._now_us())
        self._go_on()

    async def _find_end(self) -> None:
        state = self.node.chain.settled
        try:
            position = await self._shared.last()
            self._went_back |= position < state.position
            if self._went_back:
                await self._check_goes_on(state, position)
                self._went_back = False
        except UnsafeLog as error:
            self._note(error)  # nothing is appended until its settings are mended
        except StoreError as error:
            self.fail(error)
        except Exception as error:
            self._note(error)  # it is looked for again
        else:
            self.node.end_is(position, self._now_us())
            self._go_on()

    async def _find_beginning(self) -> None:
        while self._joins_behind is None:
            try:
                end = await self._shared.last()
                await self._check_beginning(end)
                self._joins_behind = end
            except (StoreError, ConfigError) as error:
                self.fail(error)
                return
            except Exception as error:
                self._note(error)
                await asyncio.sleep(self.node.lease_us / SECOND_US)
        self._report()
        self._go_on()

    async def _check_beginning(self, end: int) -> None:
        """Find the entry that the state ends with; raises StoreError."""
        begins = self._begins
        if not end and (begins.position or self._has_records):
            raise StoreError(
                "the shared log is empty, and this DataDirectory has records: run sow log move, "
                "and the log begins with them; or name the log in <Log> to which they belong, or "
                "start with an empty DataDirectory",
                reason="another log",
            )
        if begins.position:
            await self._check_goes_on(begins, end)

    async def _check_goes_on(self, state: ChainState, end: int) -> None:
        """Find the entry that a state ends with: nothing is appended to a log without it, where
        others would not follow. Raises StoreError, and LogUnanswered where it may come yet."""
        if end < state.position:
            raise LogUnanswered(
                f"the shared log was read up to position {state.position}, and ends at {end} now: "
                "its engine is behind, or has lost what it had stored. If it has, run sow log move "
                "to another Stream with the node that has the newest bookmark, and start the "
                "others with an empty DataDirectory"
            )
        async with (
            asyncio.timeout(CHECKED_S_MAX),
            ClosingReader(self._shared.read(state.position - 1)) as blocks,
        ):
            async for position, block in blocks:
                found = decode(block)
                if position == state.position and found and found[1] == state.hash:
                    return
                break
        raise StoreError(
            f"the shared log has another entry at position {state.position} than the one that was "
            "read there: this DataDirectory belongs to another log, or to this one before its "
            "engine lost it; start with an empty one, or run sow log move to another Stream",
            reason="another log",
        )

    async def _read(self, after: int) -> None:
        own = asyncio.current_task()
        try:
            await self._has_room()
            async with ClosingReader(self._shared.read(after)) as blocks:
                async for position, block in blocks:
                    if own is not self._reading:
                        break  # its call has forgotten that it was cancelled
                    self._take(position, block)
                    await self._has_room()
        except LogTrimmed as error:
            self.fail(error)
        except Exception as error:
            self._note(error)
        if own is not self._reading:
            return
        self.node.read_failed(self._now_us())
        self._go_on()

    async def _has_room(self) -> None:
        """Return when more can be held."""
        while self.is_full:
            await asyncio.shield(self.next())

    def _take(self, position: int, block: bytes) -> None:
        now_us, was = self._now_us(), self.node.chain.state
        try:
            self.node.read(position, block, now_us)
        except SowError as error:  # of a later release: nothing is passed over
            self.fail(error)
        state = self.node.chain.state
        if state.time_us > was.time_us:
            self._time_read_us = now_us
        # A new log has no time before the server of who leads it has started, which may be never.
        is_heard = state.hash != was.hash and state.time_us > 0
        self.has_heard |= is_heard and self.has_joined and not self.is_primary
        self._go_on()
        self._report()

    def _note(self, error: Exception) -> None:
        """The engine has not done what was to be done: this is tried again."""
        before = self.trouble
        self.trouble = error.detail if isinstance(error, SowError) else described(error)
        if isinstance(error, LogUnanswered):
            log.info("%s", error.detail)
        elif isinstance(error, SowError):
            if self.trouble != before:
                log.error("%s", error.detail)
        else:
            log.error("a call of the shared log has failed", exc_info=error)
