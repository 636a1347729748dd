"""Notify: tells systemd how the server is, by the protocol of sd_notify(3).

Whoever starts a service as `Type=notify` names a socket in NOTIFY_SOCKET. It is told what the start
has come to, with a request for more time as long as that goes on; that the server is ready; that it
is alive, as often as WATCHDOG_USEC wants it; that it stops. It is the event loop that says so: a
loop that hangs says nothing, and systemd ends the process, which loses nothing that was
acknowledged. Without these variables nothing is done.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

Send = Callable[[bytes], object]

STARTING_EVERY_S = 5.0
"""How often a start asks for more time: as often as the log says how far it is."""
STARTING_MORE_US = 30_000_000
"""And for how much: six of these, so that one that was late costs nothing."""


def sender(address: str) -> Send:
    """Sends datagrams to the socket of an address; one that is not there is no reason to fail."""
    place = "\0" + address[1:] if address.startswith("@") else address

    def send(message: bytes) -> None:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end,
        ):
            end.setblocking(False)  # no server waits for who watches it
            end.sendto(message, place)

    return send


def notify_of(environment: Mapping[str, str], process_id: int | None = None) -> "Systemd":
    """What the environment of this process asks for."""
    address = environment.get("NOTIFY_SOCKET", "")
    wanted = environment.get("WATCHDOG_USEC", "")
    own = str(os.getpid() if process_id is None else process_id)
    # Of a process that we are a part of, the watchdog may mean another one.
    mine = environment.get("WATCHDOG_PID", own) == own
    watchdog_us = int(wanted) if mine and wanted.isascii() and wanted.isdigit() else 0
    return Systemd(sender(address) if address else None, watchdog_us)


class Systemd:
    """Tells who watches by `send`, if anybody does; `watchdog_us` is after how much silence, in
    microseconds, the process is taken for dead. 0: silence is nothing."""

    def __init__(self, send: Send | None, watchdog_us: int = 0) -> None:
        self._send = send
        # Half of it, as sd_watchdog_enabled(3) has it: one that is late is no death.
        self._alive_every_s = watchdog_us / 2_000_000
        self._timer: asyncio.TimerHandle | None = None

    def starting(self, told: Callable[[], str]) -> None:
        """Say how far the start is, now and until it is over."""
        self._say(f"STATUS={_line(told())}", f"EXTEND_TIMEOUT_USEC={STARTING_MORE_US}")
        self._later(STARTING_EVERY_S, lambda: self.starting(told))

    def ready(self, status: str) -> None:
        """The server serves; from now on say that it is alive."""
        self._say("READY=1", f"STATUS={_line(status)}")
        self._alive()

    def _alive(self) -> None:
        self._cancel()
        if self._alive_every_s:
            self._say("WATCHDOG=1")
            self._later(self._alive_every_s, self._alive)

    def stopping(self) -> None:
        """The server stops, and says no more."""
        self._cancel()
        self._say("STOPPING=1", "STATUS=stopping")

    def _say(self, *assignments: str) -> None:
        if self._send is not None:
            self._send("\n".join(assignments).encode())

    def _later(self, after_s: float, what: Callable[[], None]) -> None:
        self._cancel()
        if self._send is not None:
            self._timer = asyncio.get_running_loop().call_later(after_s, what)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _line(text: str) -> str:
    """One line: the next one would be another assignment."""
    return " ".join(text.split())
