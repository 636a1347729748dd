"""What waits for the sessions of a world, added up anew: the law of queue memory.

The sums of `sow.streaming.queue_memory` are kept by differences; here each is made of everything
that is there. A frame counts once in all and once for each client, whoever holds it; so do updates
that are kept beside it, and a state of a record in these counts once in all.
"""

from collections import Counter, defaultdict

from sow.sessions.subscriptions.sent_replay import SentReplay
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.late_turns import LateFeeds
from sow.streaming.queue_memory import (
    COLUMN_BYTES,
    ENTRY_BYTES,
    STATE_BYTES,
    UNFOLDED_BYTES,
    UPDATE_BYTES,
)
from sow.streaming.session_memory import ROW_BYTES


class Held:
    """What all clients of a world hold: alone, and together with others, each once."""

    def __init__(self, world):
        self.own, self.sizes, self.states = Counter(), {}, {}
        self.shared, self.more = defaultdict(set), defaultdict(dict)
        for session in world.executor.sessions:
            self.client = session.memory.share
            self._sent_and_kept(session)
            self._waiting(session)
            unread = world.executor.subscriptions.planner.unread
            self.own[self.client] += ROW_BYTES * unread._by_client[session.id]
            for subscription in world.executor.subscriptions.of(session).values():
                self._followed(session, subscription)

    def _share_out(self, thing, size):
        self.shared[self.client].add(id(thing))
        self.sizes[id(thing)] = size

    def _frame(self, frame, holders):
        self.own[self.client] += ENTRY_BYTES
        if holders is None:
            self.own[self.client] += len(frame)
        else:
            self._share_out(frame, len(frame))

    def _keep(self, kept):
        """Updates that are kept. For a client the longer of their frame and their states counts."""
        sizes = [(id(state), self._size(state)) for state in kept.states()]
        self.states |= dict(sizes)
        size = sum(size for _, size in sizes)
        self.more[self.client][id(kept)] = max(size, kept.size) - len(kept.frame)
        if kept.keepers is None:
            self.own[self.client] += kept.beside_bytes
        else:
            self._share_out(kept, kept.beside_bytes)

    @staticmethod
    def _size(state):
        whole = isinstance(state, bytes)
        return len(state) + STATE_BYTES if whole else COLUMN_BYTES * len(state)

    def _sent_and_kept(self, session):
        # Of a session that was closed for it nothing counts.
        for pulled, _ in session.recovery._frames if session.recovery._share else ():
            self._frame(pulled.frame, pulled.holders)
        kept = () if session._held_back is None else session._held_back._by_name.values()
        for delivery in [one for some in kept for one, _ in some]:
            self._frame(delivery.frame, delivery.holders)
            self._keep(delivery)

    def _waiting(self, session):
        count, present = session.outbox.queue.count, self.client
        for entry in session.outbox.queue if count else ():
            if entry.lives:
                self.client, kept = count._behind.get(entry, present), entry.kept
                self._frame(entry.frame, None if kept is None else kept.holders)
                if kept is not None:
                    self._keep(kept)
        self.client = present

    def _followed(self, session, subscription):
        channel, replay = subscription.channel, subscription.replay
        is_window = isinstance(channel, ConflatedChannel) and session in channel.members
        holds = session.ended is None or channel in session.memory._windows
        if is_window and holds:  # one that was closed for it has let go
            assert channel.held_bytes == UPDATE_BYTES * len(channel.conflator)
            self._share_out(channel, channel.held_bytes)
        turn = channel.turn if session.ended is None else None
        for late in channel.late if turn is not None and turn.is_alone else ():
            if isinstance(late, LateFeeds):
                bodies = [
                    body for batch, _, _ in late._batches for body in batch.changes.news or ()
                ]
                records = sum(len(batch) for batch, _, _ in late._batches)
                self._share_out(late, UNFOLDED_BYTES * records + sum(map(len, bodies)))
        if isinstance(replay, SentReplay):
            self.own[self.client] += replay._held_bytes
        elif replay is not None:
            self.own[self.client] += sum(
                sum(map(len, entry.bodies)) + ENTRY_BYTES * len(entry) for entry in replay._ahead
            )
            for known in (replay._known or {}).values():
                own = sum(known._own.values())
                self.own[self.client] += ENTRY_BYTES * len(known) + own

    def clients(self):
        return {
            one: self.own[one]
            + sum(self.sizes[thing] for thing in self.shared[one])
            + sum(self.more[one].values())
            for one in self.own.keys() | self.shared
        }

    def total(self):
        return sum(sum(each.values()) for each in (self.own, self.sizes, self.states))


def check_queue_memory(world):
    """Assert that the sums that are kept are those of everything that is there."""
    memory = world.executor.sessions.memory
    memory.check()
    held = Held(world)
    total = held.total()
    for client, size in held.clients().items():
        assert client.used == size, f"{client.client} holds {size} bytes and not {client.used}"
    assert memory.used == total, f"{total} bytes wait and not {memory.used}"
