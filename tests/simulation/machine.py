"""The machine under a simulated server: a clock that can be set, and a disk that can fail."""

from sow.core.clock import SystemClock
from sow.errors import DiskFull
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
