"""The machine under a simulated server: a clock that can be set, and a disk that can fail, which is
written by a thread that works and is heard when the random numbers say so."""

from random import Random
from types import SimpleNamespace

from sow.core.clock import SystemClock
from sow.errors import DiskFull
from sow.server.loop.group_commit import GroupCommit, JournalThread
from tests.laws.harness import World
from tests.store.in_memory import MemoryJournal


class Time:
    """What a machine's two clocks say; they survive the process, `monotonic_us` not a reboot."""

    def __init__(self, wall_us):
        self.wall_us = wall_us
        self.monotonic_us = 0

    def pass_(self, by_us):
        self.wall_us += by_us
        self.monotonic_us += by_us

    def set(self, by_us):
        """Somebody sets the wall clock."""
        self.wall_us += by_us


class MachineClock(SystemClock):
    """The server's own clock on this machine."""

    def __init__(self, time):
        self.time = time
        super().__init__(lambda: time.wall_us, lambda: 1000 * time.monotonic_us)

    def advance(self, by_us):
        self.time.pass_(max(0, by_us))


class Disk(MemoryJournal):
    """A journal that may be out of room, or refuse to write although there was room.

    Out of room (`full`), it has a reserve for what makes room and for what ends by itself.
    """

    def __init__(self):
        super().__init__()
        self.reserve_bytes = 10**6
        self.refusals = 0

    def append(self, entries):
        if self.refusals:
            self.refusals -= 1
            raise DiskFull("the disk has failed")
        super().append(entries)


class Writer(JournalThread):
    """The journal's thread, which works where the machine lets it."""

    def start(self):
        pass


class Machine(World):
    """A world whose groups are stored as a server stores them (`sow.server.loop.group_commit`):
    several are on their way at once, and what the disk says is heard later."""

    def __init__(self, *topics, **named):
        super().__init__(*topics, **named)
        self._random = Random(self.now)
        self._said, self._later = [], []
        loop = SimpleNamespace(
            time=lambda: 0.0,
            call_soon_threadsafe=lambda *call: self._said.append(call),
            call_later=lambda _s, retry: self._later.append(retry),
        )
        self._commit = GroupCommit(
            self.journal, {}, self._release, self._refuse, self.unstored.clear, self._thread, loop
        )

    def _thread(self, *arguments):
        self._writer = Writer(*arguments)
        return self._writer

    def settle(self):
        """Flush until nobody is late; then everything on its way is stored and released."""
        self.pass_on()
        while self.engine.output.late:
            self.pass_on()
        while self._writer.is_busy or self._said:
            self._work()
        self.executor.sessions.fold_some(self.now)

    def wait(self):
        """More comes: it may share the open group."""

    def pass_on(self):
        """One flush of a server, which waits for nothing: the group is on its way."""
        group = self.engine.flush()
        if self.unstored:
            self._commit.keep(group.entries)
            self._release([group])
            later, self._later = self._later, []
            for retry in later:
                retry()
        else:
            self._commit.add(group)
        for _ in range(self._random.randrange(3)):
            self._work()

    def _work(self):
        """The thread stores what it has, or what it has said is heard."""
        if self._writer.is_busy and (not self._said or self._random.random() < 0.5):
            self._writer.work()
        elif self._said:
            said, *arguments = self._said.pop(0)
            said(*arguments)

    def _release(self, groups):
        stored = self.journal.last_seq
        entries = [one for group in groups for one in group.entries]
        assert self.unstored or all(one.seq <= stored for one in entries), "not durable"
        for group in groups:
            self.engine.sequencer.release(group)
        for session in {one: None for group in groups for one in group.sessions}:
            self.executor.sessions.apply_back_pressure(session, self.now)

    def _refuse(self, failure, groups):
        """As in `sow.server.loop.runtime`: what is open is not acknowledged either."""
        self.unstored.append(failure)
        last = self.engine.flush()
        self._commit.keep(last.entries)
        for group in (*groups, last):
            for session in group.sessions:
                session.end(failure.reason, self.now)
            self._release([group])
