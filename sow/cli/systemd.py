"""Reports the state of `sow serve` to systemd, in the protocol of sd_notify(3).

A service of `Type=notify` finds a socket in NOTIFY_SOCKET. The server sends the progress of its
start, with requests for more time; that it is ready; that it is alive, as often as WATCHDOG_USEC
demands; that it stops. The event loop sends these messages, so a hanging loop sends none and
systemd ends the process, which loses nothing acknowledged. Without these variables nothing happens.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

Send = Callable[[bytes], object]

STARTING_EVERY_S = 5.0
"""Interval at which a start requests more time: that of the log's progress lines."""
STARTING_MORE_US = 30_000_000
"""The time requested: six intervals, so that one late request does no harm."""


def sender(address: str) -> Send:
    """Sends datagrams to the socket at an address; a missing socket is no error."""
    place = "\0" + address[1:] if address.startswith("@") else address

    def send(message: bytes) -> None:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end,
        ):
            end.setblocking(False)  # the server never waits for its supervisor
            end.sendto(message, place)

    return send


def notify_of(environment: Mapping[str, str], process_id: int | None = None) -> "Systemd":
    """Notifications as the environment of this process requests them."""
    address = environment.get("NOTIFY_SOCKET", "")
    wanted = environment.get("WATCHDOG_USEC", "")
    own = str(os.getpid() if process_id is None else process_id)
    # The watchdog may be meant for another process than this one.
    mine = environment.get("WATCHDOG_PID", own) == own
    watchdog_us = int(wanted) if mine and wanted.isascii() and wanted.isdigit() else 0
    return Systemd(sender(address) if address else None, watchdog_us)


class Systemd:
    """Sends notifications by `send`, if there is one; `watchdog_us` is the silence in microseconds
    after which systemd kills the process, 0 for none."""

    def __init__(self, send: Send | None, watchdog_us: int = 0) -> None:
        self._send = send
        # Half of it, as sd_watchdog_enabled(3) advises: one late message is no failure.
        self._alive_every_s = watchdog_us / 2_000_000
        self._timer: asyncio.TimerHandle | None = None

    def starting(self, progress: Callable[[], str]) -> None:
        """Report the progress of the start, now and until it is over."""
        self._notify(f"STATUS={_line(progress())}", f"EXTEND_TIMEOUT_USEC={STARTING_MORE_US}")
        self._later(STARTING_EVERY_S, lambda: self.starting(progress))

    def ready(self, status: str) -> None:
        """Report that the server serves, and from now on that it is alive."""
        self._notify("READY=1", f"STATUS={_line(status)}")
        self._alive()

    def _alive(self) -> None:
        self._cancel()
        if self._alive_every_s:
            self._notify("WATCHDOG=1")
            self._later(self._alive_every_s, self._alive)

    def stopping(self) -> None:
        """Report that the server stops; the last notification."""
        self._cancel()
        self._notify("STOPPING=1", "STATUS=stopping")

    def _notify(self, *assignments: str) -> None:
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
