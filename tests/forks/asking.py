"""Asking the origin for a process, and the program `sow` for shells, which does just that.

The connection that asks is the life of the process: three descriptors and a line that says what to
run go to it; a line with the number of the process comes back, and one with how it ended. As a
program this passes on its own descriptors and the signals that end it, and ends as the process has
ended. It imports little, since it is started to save time: `python -IS`.
"""

import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios

BEGIN = b"."
"""What goes with the descriptors, which need one byte to travel with."""


class Requested:
    """A process that was asked for: its number, and how it has ended."""

    def __init__(self, address, descriptors, **what):
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(address)
        socket.send_fds(self.connection, [BEGIN], descriptors)
        self.connection.sendall(json.dumps(what).encode() + b"\n")
        self._lines = self.connection.makefile("rb")
        self.pid = int(self._lines.readline())

    def has_ended(self, wait_s=None):
        """Whether it has ended, or does so within `wait_s`; without it, wait until it does."""
        return bool(select.select([self.connection], [], [], wait_s)[0])

    def code(self):
        """Wait until it has ended: its exit code, or the number of its signal below zero."""
        code = int(self._lines.readline())
        self._lines.close()
        self.connection.close()
        return code


def take_terminal():
    """As a terminal's own process does: Ctrl-C and a new size are to reach it as signals."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def main():
    """The command line: an address, and what its origin is to run."""
    address, *command = sys.argv[1:]
    requested = Requested(
        address,
        (0, 1, 2),
        command=[sys.executable, *command],
        folder=os.getcwd(),
        environment=dict(os.environ),
        in_session=False,
        on_terminal=False,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: os.kill(requested.pid, number))
    code = requested.code()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
