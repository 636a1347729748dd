"""Ports of servers that a test starts by number, or begins again where they were.

They lie below those that systems give away by themselves, so that nobody else is given one while
its server is not there. Each core of a run has some of its own, and gives each away in turn, from
anywhere on: other runs on the same machine begin elsewhere.
"""

import os
import random
import socket
import zlib
from contextlib import ExitStack, suppress

FIRST, EACH, SHARES = 10_000, 1_000, 20
"""Systems give ports from 32,768 on."""


def _share():
    """Which ports are this process's: others of a run have others, another run begins elsewhere."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return FIRST + (zlib.crc32(run.encode()) + int(worker)) % SHARES * EACH


class Ports:
    """Ports from `first` on, each in its turn."""

    def __init__(self, first, count=EACH):
        self._all = range(first, first + count)
        self._given = random.SystemRandom().randrange(count)

    def take(self, n=1):
        """`n` ports in a row that nobody listens on."""
        while True:
            if self._given + n > len(self._all):
                self._given = 0
            found = [*self._all[self._given : self._given + n]]
            self._given += n
            with ExitStack() as held, suppress(OSError):
                for port in found:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return found


_OWN = Ports(_share())


def free_ports(n):
    """`n` ports in a row that nobody listens on, and nobody else is given."""
    return _OWN.take(n)


def free_port():
    """A port that nobody listens on, and nobody else is given."""
    return free_ports(1)[0]
