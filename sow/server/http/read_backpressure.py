"""Read back-pressure: which WebSockets are read while request memory is scarce.

What a connection has received and the server has not executed yet is accounted in the quota of
requests. When that is used up, connections are paused, so that their clients have to wait
(back-pressure, no error). They never deadlock: the connection that has been in the middle of a
message longest is favoured and read on, room or not, since only a complete message can be executed
and released. A favoured one that makes no progress is closed with a reason.

    settle   after each read: account it, and pause the connection where there is no room
    turn     every `PAUSED_CHECK_S` while some are paused: resume, favour, give up

Pure: time is a parameter, and readers implement pausing and resuming.
"""

from collections.abc import Hashable
from itertools import islice
from typing import Protocol

from sow.core.quota import Quota, QuotaHolder
from sow.server.http.connection_limits import MinRateDeadline

PAUSED_CHECK_S = 0.05
"""Interval of checks: nobody notices a pause so short, and a check is cheap even with thousands of
paused connections."""
STALLED_S = 2.0
"""How long a favoured client may be silent while others wait for it: a lost packet is sent again
within a second, so after two nothing is on its way."""
READ_BYTES = 256 * 1024
"""What asyncio reads at once, so what a reader may add before it can be paused."""
FREE_BYTES = 4096
"""A client that holds no more than this is never paused, so that small messages pass beside large
ones: a page each, which for the largest number of connections is a third of the default quota."""
FRAME_HEADER_BYTES = 14
"""A frame of the largest size has a header beside, for which its client is not paused."""
STALLED = "others wait for room while this client is in the middle of a message and sends nothing"
CROWDED = "no room is left for this message"
NAMED = " (Limits/RequestMemory); send it again"


class PausableReader(Protocol):
    """A connection that can be paused."""

    @property
    def holder(self) -> QuotaHolder:
        """Its share of the quota."""

    def pause(self) -> None:
        """Pause reading."""

    def resume(self) -> None:
        """Resume reading."""

    def give_up(self, reason: str) -> None:
        """Close it with a reason."""


class ReadBackpressure:
    """The WebSockets of one server that share a quota."""

    def __init__(self, budget: Quota) -> None:
        self.budget = budget
        self.waiting: dict[PausableReader, None] = {}
        """Paused readers."""
        self._under_way: dict[PausableReader, int] = {}
        """Readers in the middle of a message, with its number, the longest first."""
        self._favoured: dict[PausableReader, MinRateDeadline] = {}

    def settle(self, reader: PausableReader, held: int, message: int | None, now_s: float) -> None:
        """A reader holds `held` bytes now, and is in the middle of its message number `message`, or
        of none; `now_s` is a monotonic time."""
        came = held - reader.holder.held
        reader.holder.set(held)
        if self._under_way.get(reader) != message:
            self._under_way.pop(reader, None)
            self._favoured.pop(reader, None)
            if message is not None:
                self._under_way[reader] = message
        if came <= 0 or message is None or held <= FREE_BYTES:
            return  # complete messages are executed and released anyway
        if reader in self._favoured:
            self._favoured[reader].on_bytes(now_s, came)
        elif reader.holder.lack(-FRAME_HEADER_BYTES) is not None:
            reader.pause()
            self.waiting.setdefault(reader)
            if self.budget.is_crowded:
                self._give_up(reader, CROWDED)

    def turn(self, now_s: float) -> bool:
        """Resume readers, and give up stalled ones; returns whether any are paused."""
        room = self.budget.room
        for reader in list(self.waiting):
            if room > 0 and reader.holder.lack(-FRAME_HEADER_BYTES) is None:
                room -= READ_BYTES
                self._resume(reader)
        favoured = dict.fromkeys(self._chosen()) if self.waiting else {}
        self._favoured = {
            reader: self._favoured.get(reader) or MinRateDeadline(now_s, STALLED_S)
            for reader in favoured
        }
        for reader, deadline in list(self._favoured.items()):
            if now_s >= deadline.until_s:
                self._give_up(reader, STALLED)
            elif reader in self.waiting:
                self._resume(reader)
        return bool(self.waiting)

    def _chosen(self) -> list[PausableReader]:
        """The favoured readers in the middle of a message: the first of all where the quota is used
        up; else the first of each client that is over its own share."""
        if self.budget.room <= 0:
            return list(islice(self._under_way, 1))
        chosen: list[PausableReader] = []
        clients: set[Hashable] = {reader.holder.client for reader in self.waiting}
        for reader in self._under_way:
            client = reader.holder.client
            if client in clients and self.budget.is_over_share(client):
                clients.remove(client)
                chosen.append(reader)
        return chosen

    def _resume(self, reader: PausableReader) -> None:
        del self.waiting[reader]
        reader.resume()

    def _give_up(self, reader: PausableReader, why: str) -> None:
        self.remove(reader)
        reader.give_up(why + NAMED)

    def remove(self, reader: PausableReader) -> None:
        """A reader is closed and holds nothing any more."""
        reader.holder.release()
        self.waiting.pop(reader, None)
        self._under_way.pop(reader, None)
        self._favoured.pop(reader, None)
