"""Which WebSockets are read while there is no room for all that their clients send.

What a connection has received and the server has not carried out yet is counted in the budget of
requests. Where that is spent a connection is not read for a while, so that its client has to wait
(back-pressure, no refusal). They never wait for each other for ever: whoever has been in the middle
of a message longest is favoured, and read on, room or not, for only what is whole can be carried
out and let go. A favoured one that does not come forward itself is given up with a reason.

    settle   after each piece: count it, and stop reading where there is no room
    turn     every `INTAKE_TURN_S` while somebody waits: read on where there is, favour, give up

Pure: the time is given, and readers are told what to do.
"""

from collections.abc import Hashable
from itertools import islice
from typing import Protocol

from sow.core.quota import Quota, QuotaHolder
from sow.server.http.min_rate_timeout import MinRateDeadline

INTAKE_TURN_S = 0.05
"""How often those who wait are looked at: nobody notices a wait so short, and a look is cheap also
where thousands wait."""
PATIENCE_S = 2.0
"""So long a favoured client may be silent while others wait for it: a packet that was lost is sent
again within a second, so one that says nothing for two is not on its way."""
READ_BYTES = 256 * 1024
"""What asyncio reads at once, so what a reader may bring before it can be stopped."""
FREE_BYTES = 4096
"""Who holds no more is never stopped, so that small messages go on beside large ones: a page each,
which for all connections that there may be is a third of the budget by default."""
FRAME_HEADER_BYTES = 14
"""A frame as large as allowed has a header beside, for which its client is not stopped."""
STALLED = "others wait for room while this client is in the middle of a message and sends nothing"
CROWDED = "no room is left for this message"
NAMED = " (Limits/RequestMemory); send it again"


class PausableReader(Protocol):
    """A connection that is read."""

    @property
    def holder(self) -> QuotaHolder:
        """What it holds."""

    def pause(self) -> None:
        """Read no more of it for now."""

    def resume(self) -> None:
        """Read on."""

    def give_up(self, reason: str) -> None:
        """Close it."""


class ReadBackpressure:
    """All WebSockets of one server that are read under one budget."""

    def __init__(self, budget: Quota) -> None:
        self.budget = budget
        self.waiting: dict[PausableReader, None] = {}
        """Who is not read."""
        self._under_way: dict[PausableReader, int] = {}
        """Who is in the middle of which of his messages, the longest first."""
        self._favoured: dict[PausableReader, MinRateDeadline] = {}

    def settle(self, reader: PausableReader, held: int, message: int | None, now_s: float) -> None:
        """A reader holds `held` bytes now, and is in the middle of its message of the number
        `message`, or of none; `now_s` are seconds of any count that goes on."""
        came = held - reader.holder.held
        reader.holder.set(held)
        if self._under_way.get(reader) != message:
            self._under_way.pop(reader, None)
            self._favoured.pop(reader, None)
            if message is not None:
                self._under_way[reader] = message
        if came <= 0 or message is None or held <= FREE_BYTES:
            return  # what is whole is carried out and let go without anybody's help
        if reader in self._favoured:
            self._favoured[reader].hear(now_s, came)
        elif reader.holder.lack(-FRAME_HEADER_BYTES) is not None:
            reader.pause()
            self.waiting.setdefault(reader)
            if self.budget.is_crowded:
                self._give_up(reader, CROWDED)

    def turn(self, now_s: float) -> bool:
        """Look who can be read on, and who has to go; True while somebody waits."""
        room = self.budget.room
        for reader in list(self.waiting):
            if room > 0 and reader.holder.lack(-FRAME_HEADER_BYTES) is None:
                room -= READ_BYTES
                self._resume(reader)
        favoured = dict.fromkeys(self._chosen()) if self.waiting else {}
        self._favoured = {
            reader: self._favoured.get(reader) or MinRateDeadline(now_s, PATIENCE_S)
            for reader in favoured
        }
        for reader, patience in list(self._favoured.items()):
            if now_s >= patience.until_s:
                self._give_up(reader, STALLED)
            elif reader in self.waiting:
                self._resume(reader)
        return bool(self.waiting)

    def _chosen(self) -> list[PausableReader]:
        """Of those in the middle of a message: the first of all where all hold too much; else the
        first of each client that holds too much itself."""
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
        self.leave(reader)
        reader.give_up(why + NAMED)

    def leave(self, reader: PausableReader) -> None:
        """A reader has gone, and holds nothing any more."""
        reader.holder.release()
        self.waiting.pop(reader, None)
        self._under_way.pop(reader, None)
        self._favoured.pop(reader, None)
