"""A simulated engine of a shared log, with the faults that engines and networks have.

It keeps its two promises (`sow.shared_log`) and no more. Each client has a `Link` to it,
which may be slow, away (every call fails), or cut: silent, until it heals; then what was on its way
is lost, or comes late. Calls are answered by callbacks, which `later` runs after so many seconds,
so that it lives in any kind of time. `SimulatedLog` is the same behind the interface of adapters.
"""

import asyncio
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass

from sow.errors import LogTrimmed, LogUnanswered, TooLarge
from sow.shared_log import BLOCK_BYTES_MAX, StoredBlock


@dataclass
class Faults:
    """How often what goes wrong, while there are faults at all; times in seconds."""

    delay_s: float = 0.002
    lost: float = 0.0
    """Of requests to append."""
    unanswered: float = 0.0
    """Of appends that were stored."""
    late: float = 0.0
    """Of appends and answers."""
    late_s: float = 2.0
    doubled: float = 0.0
    """Of appends that are stored; the second copy may come late."""
    dead_reader: float = 0.0
    """Of blocks that are read: nothing comes behind them."""


NO_FAULTS = Faults()


class SimulatedEngine:
    """The log itself. `watch` is called with each block that is stored."""

    def __init__(self, chance, later, faults=NO_FAULTS, watch=lambda stored: None):
        self.chance, self.later, self.faults = chance, later, faults
        self.blocks = []
        self.newest = self.trimmed = 0
        """Positions of the newest block, and before the oldest."""
        self.is_stopped = False
        """No quorum: nothing is stored, and nothing answered."""
        self._watch = watch
        self._readers = []

    def store(self, block):
        """Store a block; the position. Positions have gaps, as those of some engines."""
        self.newest += 1 if self.chance.random() < 0.8 else self.chance.randint(2, 5)
        stored = StoredBlock(self.newest, bytes(block))
        self.blocks.append(stored)
        self._watch(stored)
        for reader in list(self._readers):
            reader.go_on()
        return self.newest

    def trim(self, before):
        """Let go of what is before a position."""
        self.trimmed = max(self.trimmed, min(before - 1, self.newest))
        self.blocks = [one for one in self.blocks if one.position > self.trimmed]

    def connect(self):
        """A link of a new client."""
        return Link(self)

    def happens(self, likely):
        """Whether something of a likelihood happens now."""
        return likely > 0 and self.chance.random() < likely

    def enter(self, reader):
        """Let a reader know of new blocks."""
        self._readers.append(reader)

    def leave(self, reader):
        """A reader that has ended."""
        with suppress(ValueError):
            self._readers.remove(reader)


class Link:
    """The connection of one client, which keeps its calls in order unless one of them is late."""

    def __init__(self, engine):
        self.engine = engine
        self.is_away = self.is_cut = self.loses_answers = self.holds_answers = False
        self._held = []

    def cut(self):
        """Nothing passes, and nobody notices."""
        self.is_cut = True

    def heal(self, keep=1.0):
        """What was on its way passes now, as far as it was kept."""
        self.is_cut = False
        held, self._held = self._held, []
        for callback in held:
            if self.engine.happens(keep):
                self._pass(callback)

    def end_faults(self):
        """It works again."""
        self.is_away = self.loses_answers = self.holds_answers = False
        self.heal()

    def _pass(self, callback, late=0.0):
        """Let something pass, now or late."""
        if self.is_cut:
            self._held.append(callback)
            return
        faults, chance = self.engine.faults, self.engine.chance

        def arrive():
            if self.is_cut:
                self._held.append(callback)
            else:
                callback()

        is_late = self.engine.happens(late)
        self.engine.later(chance.random() * faults.late_s if is_late else faults.delay_s, arrive)

    def append(self, block, answered):
        """Store a block; `answered` is called with its position, None for a failure, or never."""
        engine = self.engine
        faults = engine.faults
        if self.is_away:
            engine.later(0.0, lambda: answered(None))
            return

        def arrive():
            if engine.happens(faults.lost) or engine.is_stopped:
                return
            position = engine.store(block)
            if engine.happens(faults.doubled):
                late_s = engine.chance.choice((0.0, 0.0, faults.late_s))
                engine.later(late_s * engine.chance.random(), lambda: engine.store(block))
            if self.holds_answers:
                self._held.append(lambda: answered(position))
            elif not self.loses_answers and not engine.happens(faults.unanswered):
                self._pass(lambda: answered(position), faults.late)

        self._pass(arrive, faults.late)

    def last(self, answered):
        """Request the newest position."""
        engine = self.engine
        if self.is_away:
            engine.later(0.0, lambda: answered(None))
            return

        def arrive():
            if not engine.is_stopped:
                newest = engine.newest
                self._pass(lambda: answered(newest))

        self._pass(arrive)

    def trim(self, before, answered):
        """Let go of what is before a position."""
        if self.is_away:
            self.engine.later(0.0, lambda: answered(None))
            return

        def arrive():
            self.engine.trim(before)
            self._pass(lambda: answered(before))

        self._pass(arrive)

    def read(self, after, each, failed):
        """Read what is behind a position: `each` gets the blocks, `failed` an error."""
        return SimulatedReader(self, after, each, failed)


class SimulatedReader:
    """Blocks in order, until it is closed, or dead: then it is silent."""

    def __init__(self, link, after, each, failed):
        self._link, self._engine = link, link.engine
        self._after, self._each, self._failed = after, each, failed
        self._is_due = self._is_over = False
        self._engine.enter(self)
        self.go_on()

    def close(self):
        """Read no more."""
        self._is_over = True
        self._engine.leave(self)

    def go_on(self):
        """There is more to read."""
        if not self._is_due and not self._is_over:
            self._is_due = True
            self._engine.later(self._engine.faults.delay_s, self._arrive)

    def _arrive(self):
        engine = self._engine
        self._is_due = False
        if self._is_over:
            return
        if self._link.is_away:
            self._fail(LogUnanswered("the engine is away"))
        elif self._link.is_cut:
            self.close()  # a connection that was cut is dead, and nobody has noticed
        elif self._after < engine.trimmed:
            self._fail(LogTrimmed(f"blocks up to {engine.trimmed} are gone", engine.trimmed))
        else:
            first = bisect_right(engine.blocks, self._after, key=lambda one: one.position)
            for stored in engine.blocks[first:]:
                if self._is_over:
                    return
                if engine.happens(engine.faults.dead_reader):
                    self.close()
                    return
                self._after = stored.position
                self._each(stored)

    def _fail(self, error):
        self.close()
        self._failed(error)


class SimulatedLog:
    """A `SharedLog` over a link. An answer that does not come within `answer_s` is none."""

    def __init__(self, link, answer_s=0.2):
        self.link, self._answer_s = link, answer_s

    async def append(self, block):
        if len(block) > BLOCK_BYTES_MAX:
            raise TooLarge(f"a block of {len(block)} bytes")
        return await self._answer(lambda answered: self.link.append(block, answered))

    async def last(self):
        return await self._answer(self.link.last)

    async def trim(self, before):
        await self._answer(lambda answered: self.link.trim(before, answered))

    async def read(self, after):
        came = asyncio.Queue()
        reader = self.link.read(after, came.put_nowait, came.put_nowait)
        try:
            while True:
                one = await came.get()
                if isinstance(one, Exception):
                    raise one
                yield one
        finally:
            reader.close()

    async def _answer(self, call):
        done = asyncio.get_running_loop().create_future()

        def answered(position):
            if not done.done():  # late: nobody waits for it any more
                done.set_result(position)

        call(answered)
        try:
            async with asyncio.timeout(self._answer_s):
                position = await done
        except TimeoutError:
            position = None
        if position is None:
            raise LogUnanswered("the engine did not answer")
        return position
