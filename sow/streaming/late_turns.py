"""Turns of what is late: no client makes others wait for what it alone has ordered.

Channels and views that are late (`sow.streaming.channel`) catch up in turns: of clients, in one
circle, and within a client of its channels. A client's fifteen hundred subscriptions have together
what another's one has.

A publisher waits for those who are late because of it. That slows a publisher down to the pace of
its followers, and with it all other followers. So it does not wait for a client whose subscriptions
take more than `ORDERED_US` of a record: such a client is behind, and others go on. What it has
still to process counts for it as queue memory (`sow.streaming.late_feeds`). A channel that several
clients share is always waited for, and has turns of its own.
"""

from collections.abc import Iterator

from sow.streaming.channel import Latecomer
from sow.streaming.queue_memory import QueueShare
from sow.streaming.session_memory import SessionMemory

ORDERED_US = 500
"""What a record may take all channels of a client that are late, to be waited for: a thousand a
second are half of a processor. That is 25 select lists of deltas, 60 intervals or 500 filters that
no index finds."""


class LateClient:
    """The channels of one client that are late, in the order of their turns; or one channel of
    several clients, or what views are late with."""

    __slots__ = ("client", "is_alone", "is_awaited", "latecomers", "memories", "ordered_us")

    def __init__(self, client: QueueShare | Latecomer) -> None:
        self.client = client
        self.is_alone = isinstance(client, QueueShare)
        self.is_awaited = True
        """Publishers wait for it."""
        self.latecomers: dict[Latecomer, float] = {}
        """With what a record takes each."""
        self.memories: dict[SessionMemory, None] = {}
        """Of its sessions."""
        self.ordered_us = 0.0
        """What it takes all of them."""

    def fall_behind(self) -> None:
        """It is waited for no more."""
        self.is_awaited = False
        for latecomer in self.latecomers:
            for late in latecomer.late:
                late.topic.count_unawaited(1)


class LateTurns(dict[Latecomer, LateClient]):
    """What is late, with the client that shares its turns."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: dict[QueueShare | Latecomer, LateClient] = {}
        """In the order of their turns."""

    @property
    def has_awaited(self) -> bool:
        """Others wait for somebody who is late."""
        return any(one.is_awaited for one in self._clients.values())

    def add(self, latecomer: Latecomer, cost_us: float) -> None:
        """A channel or view is about to be late, unless it is; a record takes it so much."""
        if latecomer in self:
            return
        client: QueueShare | Latecomer | None = None
        for session in latecomer.members:
            share = session.memory.share
            if client not in (None, share):
                client = latecomer
                break
            client = share
        client = client or latecomer
        if client not in self._clients:
            self._clients[client] = LateClient(client)
        turn = self[latecomer] = latecomer.turn = self._clients[client]
        turn.latecomers[latecomer] = cost_us
        turn.ordered_us += cost_us
        if turn.is_alone:
            for session in latecomer.members:
                turn.memories[session.memory] = None
            if turn.ordered_us > ORDERED_US and turn.is_awaited:
                turn.fall_behind()

    def discard(self, latecomer: Latecomer) -> None:
        """It is late no more, if it was."""
        turn = self.pop(latecomer, None)
        if turn is not None:
            latecomer.turn = None
            turn.ordered_us -= turn.latecomers.pop(latecomer)
            if not turn.latecomers:
                del self._clients[turn.client]

    def turns(self) -> Iterator[LateClient]:
        """The next client, again and again, while there is one; it goes to the end."""
        while self._clients:
            client = next(iter(self._clients))
            turn = self._clients[client] = self._clients.pop(client)
            yield turn

    def yield_to_others(self, latecomer: Latecomer) -> None:
        """Others of its client have their turns before it has another one."""
        latecomers = self[latecomer].latecomers
        latecomers[latecomer] = latecomers.pop(latecomer)

    def check(self) -> None:
        """Assert what is always true between two steps."""
        assert all(one.late for one in self), "somebody has caught up unnoticed"
        turns = [*self._clients.values()]
        held = {one: turn for turn in turns for one in turn.latecomers}
        assert held == self, "late without a turn"
        assert all(one.turn is turn for one, turn in self.items())
