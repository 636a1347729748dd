"""What waits for the sessions of a world, added up anew: the law of queue memory.

The sums of `sow.streaming.queue_memory` are kept by differences; here each is made of everything
that is there. A frame counts once in all and once for each client, whoever holds it.
"""

from collections import Counter, defaultdict

from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.outbox.entries import QueuedDelivery, QueuedUpdate
from sow.streaming.queue_memory import ENTRY_BYTES, ROW_BYTES, UNFOLDED_BYTES, UPDATE_BYTES


def held(world):
    """The bytes that each client holds, and all together."""
    executor = world.executor
    own, shared, sizes = Counter(), defaultdict(set), {}

    def share_out(client, thing, size):
        shared[client].add(id(thing))
        sizes[id(thing)] = size

    for session in executor.sessions:
        client = session.memory.share
        # Of a session that was closed for it nothing counts.
        sent = session.recovery._frames if session.recovery._share else ()
        frames = [(pulled.holders, pulled.frame) for pulled, _ in sent]
        own[client] += ENTRY_BYTES * len(frames)
        if session._held_back is not None:
            kept = [one for some in session._held_back._by_name.values() for one, _ in some]
            own[client] += ENTRY_BYTES * len(kept)
            frames += [(delivery.holders, delivery.frame) for delivery in kept]
        for entry in session.outbox.queue if session.outbox.queue.share else ():
            if entry.lives:
                single, whole = (isinstance(entry, k) for k in (QueuedUpdate, QueuedDelivery))
                holders = entry.delivery.holders if whole else None
                own[client] += UPDATE_BYTES if single else ENTRY_BYTES
                if whole and holders is None:
                    own[client] += UNFOLDED_BYTES * entry.message_count
                frames.append((holders, entry.frame))
        for holders, frame in frames:
            if holders is None:
                own[client] += len(frame)
            else:
                share_out(client, frame, len(frame))
        own[client] += ROW_BYTES * executor.subscriptions.planner.unread._by_client[session.id]
        for subscription in executor.subscriptions.of(session).values():
            channel = subscription.channel
            is_window = isinstance(channel, ConflatedChannel) and session in channel.members
            holds = session.ended is None or channel in session.memory._windows
            if is_window and holds:  # one that was closed for it has let go
                assert channel.held_bytes == UPDATE_BYTES * len(channel.conflator)
                share_out(client, channel, channel.held_bytes)
            replay = subscription.replay
            if replay is not None:
                own[client] += sum(
                    sum(map(len, entry.bodies)) + ENTRY_BYTES * len(entry)
                    for entry in replay._ahead
                )
    clients = {
        one: own[one] + sum(sizes[thing] for thing in shared[one]) for one in own.keys() | shared
    }
    return clients, sum(own.values()) + sum(sizes.values())


def check_queue_memory(world):
    """Assert that the sums that are kept are those of everything that is there."""
    memory = world.executor.sessions.memory
    memory.check()
    clients, total = held(world)
    for client, size in clients.items():
        assert client.used == size, f"{client.client} holds {size} bytes and not {client.used}"
    assert memory.used == total, f"{total} bytes wait and not {memory.used}"
