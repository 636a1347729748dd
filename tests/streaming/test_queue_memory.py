"""Queue memory: what counts, for whom, and that the sums are those of everything that is there.

They are compared with naive ones in `World.check` (`tests/laws/held.py`).
"""

from random import Random

import pytest

from sow.streaming.queue_memory import QueueMemory
from sow.streaming.session_memory import QueueCount
from tests.laws.narrow import (
    KB,
    PAD,
    at,
    away,
    memory,
    named,
    own,
    publish,
    settled,
    world_of,
)
from tests.laws.slow import slow, topic

SUBSCRIBE = ("subscribe", "sow_and_subscribe", "delta_subscribe")

# What counts.


def test_who_keeps_up_is_not_counted():
    world = world_of(1_000 * KB)
    client = own(world, 1)
    for number in range(50):
        publish(world, number)
        client.lines()
    assert memory(world).used == 0


def test_a_frame_that_many_wait_for_counts_once_and_once_for_each_client():
    world = world_of(1_000 * KB)
    clients = [slow(world) for _ in range(10)]
    publish(world, 1, 20)
    assert 40 * KB < memory(world).used < 90 * KB, "a frame, and the states in it"
    shares = {client.session.memory.share for client in clients}
    assert len(shares) == 10, "on this machine each connection is a client"
    assert all(20 * KB < share.used < 40 * KB for share in shares)


def test_sessions_of_one_client_share_its_part():
    world = world_of(1_000 * KB)
    for _ in range(10):
        at(world, "192.0.2.1").say(c="subscribe", t="t")
    publish(world, 1, 20)
    (share,) = {session.memory.share for session in world.executor.sessions}
    assert 20 * KB + 10 * 20 * 150 < share.used < memory(world).used < 90 * KB


def test_what_was_read_counts_as_sent_until_it_is_forgotten():
    world = world_of(1_000 * KB)
    client = named(world, 1)
    publish(world, 1, 20)
    before = memory(world).used
    client.lines()
    assert 20 * KB < memory(world).used < before + 4 * KB
    world.check()
    client.session.recovery.forget()
    assert memory(world).used == 0


@pytest.mark.parametrize("command", [{}, {"opts": "oof"}, {"filter": "/v < 9", "opts": "oof"}])
@pytest.mark.parametrize("name", ["subscribe", "delta_subscribe"])
def test_lines_of_who_is_away_are_not_held_and_made_again_as_they_were(name, command):
    world = world_of(1_000 * KB)
    here, gone = [at(world, f"192.0.2.{number}") for number in (1, 2)]
    for number, client in enumerate((here, gone)):
        client.say(c="logon", client="n")
        client.say(c=name, t="t", select=f"-/f{number},-/pad", **command)
    away(world, gone)
    for number in range(12):
        world.publish("t", *({"id": key, "v": number + key, "pad": PAD} for key in range(3)))
    world.delete("t", "/id = 1")
    world.check()
    waiting = list(gone.session.outbox.queue)
    assert waiting
    assert not any(entry.frame for entry in waiting)
    assert memory(world).used < 12 * 3 * 2.9 * KB, "a state of each, which was longer"
    again = world.client()
    answer = again.say(c="logon", client="n2", session=gone.session.name)
    made, told = ([line | {"s": ""} for line in lines if line["c"] != "ack"]
                  for lines in (answer, here.lines()))  # fmt: skip
    assert made == told
    world.check()


def test_what_waits_when_a_client_goes_or_returns_is_not_counted_anew(monkeypatch):
    world = world_of(1_000 * KB)
    client = named(world, 1)
    for number in range(20):
        publish(world, number)
    counted, used = memory(world).used, client.session.memory.share.used
    assert counted
    with monkeypatch.context() as patch:
        patch.setattr(QueueCount, "add", None)
        patch.setattr(QueueCount, "remove", None)
        away(world, client)
        world.check()
        assert not any(entry.frame for entry in client.session.outbox.queue)
        assert memory(world).used < counted - 20 * KB, "without the lines"
        assert client.session.memory.share.used == used
        client.session.resume("n1", "192.0.2.1")
        world.check()
    publish(world, 20)
    *_, last = client.session.outbox.queue
    assert last.frame
    away(world, client)
    assert not last.frame
    world.check()


def test_states_count_however_little_of_them_is_shown():
    """A line of some bytes keeps the record that it was made of, to be folded."""
    world = world_of(1_000 * KB)
    clients = [at(world, f"192.0.2.{number}") for number in (1, 2)]
    for number, client in enumerate(clients):
        client.say(c="subscribe", t="t", select=f"/id,/f{number}")
    for _ in range(20):
        publish(world, 1)
    assert 20 * KB < memory(world).used < 60 * KB, "once for both of them"
    assert all(client.session.memory.share.used > 20 * KB for client in clients)


def test_windows_and_answers_and_replays_count():
    world = world_of(1_000 * KB)
    client = own(world, 1, opts="conflation=1h")
    publish(world, 1, 20)
    windows = memory(world).used
    assert windows > 20 * 500
    reader = at(world, "192.0.2.7")
    world.publish("t", *({"id": number} for number in range(1000)))
    reader.execute(b'{"c":"sow","t":"t","cid":"1"}')
    settled(world)
    assert reader.session.memory.share.used >= 1000 * 50
    reader.lines()
    assert reader.session.memory.share.used == 0
    world.executor.sessions.close(client.session)
    assert memory(world).used == 0


def test_what_a_closed_session_held_is_free():
    world = world_of(1_000 * KB)
    clients = [away(world, named(world, number)) for number in range(5)]
    publish(world, 1, 20)
    assert memory(world).used > 20 * KB
    for client in clients:
        world.executor.sessions.close(client.session)
    assert memory(world).used == 0


def test_what_is_over_its_bound_is_told_once_it_can_be_helped():
    told = []
    queues = QueueMemory(lambda: 400, lambda: told.append(1))
    one, other = queues.share("one"), queues.share("other")
    one.add(100)
    assert (told, queues.excess()) == ([], None)
    one.add(1)
    assert (len(told), queues.excess()) == (1, one)
    one.accept()
    assert queues.excess() is None
    for number in range(4):
        queues.share(number).add(90)
    assert queues.excess() is queues
    queues.accept()
    assert not queues.settle()
    other.add(1)
    assert queues.settle()
    queues.accept()
    other.add(-100)
    assert not queues.settle(), "it fits again"
    queues.share("new").add(61)
    assert queues.settle(), "and is held to the bound, not to what was accepted"


def test_how_full_it_is_is_said_from_nine_tenths_on():
    queues = QueueMemory(lambda: 1000)
    queues.share("one").add(899)
    assert queues.warning is None
    queues.share("one").add(31)
    assert queues.warning == "queue memory 93% full"


def replace_first(world, client, more):
    """Another subscription in the place of the client's first one, in one step."""
    for one in [*world.executor.subscriptions.of(client.session).values()][:1]:
        client.say(c="subscribe", t=one.topic, s=one.name, opts="replace", **more)


def drop(world, client):
    if client.session.connected:
        world.executor.sessions.drop(client.session, world.now)


@pytest.mark.parametrize("seed", range(12))
def test_the_sums_are_those_of_everything_that_is_there(seed):
    """Clients come, go, read, log on and return while the bound is narrow."""
    random = Random(seed)
    world = world_of(
        random.choice((30, 100, 400)) * KB,
        topic(),
        topic("u", conflation_policy=random.choice(("unsubscribe", "always", "off"))),
        queue_messages_max=random.choice((5, 50, 1000)),
        recovery_messages_max=random.choice((0, 5, 1000)),
    )
    clients = []
    for number in range(150):
        act = random.random()
        living = [c for c in clients if world.executor.sessions.has(c.session)]
        if act < 0.2 or not living:
            client = at(world, f"192.0.2.{random.randint(1, 4)}")
            if random.random() < 0.6:
                client.say(c="logon", client=f"n{number}")
            for name in random.sample(("t", "u"), random.randint(1, 2)):
                more = random.choice(({}, {"select": f"-/f{number}"}, {"opts": "conflation=1s"}))
                client.say(c=random.choice(SUBSCRIBE), t=name, **more)
            clients.append(client)
        elif act < 0.25:
            more = random.choice(({}, {"select": f"-/g{number}"}, {"filter": "/id > 4"}))
            replace_first(world, random.choice(living), more)
        elif act < 0.35:
            random.choice(living).lines()
        elif act < 0.45:
            drop(world, random.choice(living))
        elif act < 0.5:
            random.choice(living).session.allow_folding(random.random() < 0.5)
        elif act < 0.55:
            world.advance(400_000)
        else:
            pads = ("x" * random.choice((10, 1000, 5000)) for _ in range(random.randint(1, 5)))
            rows = [{"id": random.randint(1, 12), "pad": pad} for pad in pads]
            world.publish(random.choice("tu"), *rows)
        world.check()
        settled(world)
        assert memory(world).used <= memory(world).limit_bytes
    for session in world.executor.sessions:
        world.executor.sessions.close(session)
    assert memory(world).used == 0
