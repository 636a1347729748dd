"""What one session holds, and for whom it counts once its client goes on from elsewhere.

All sums are compared with naive ones by `World.check` (`tests/laws/held.py`).
"""

import pytest

from sow.security.authorization import EVERYTHING
from sow.streaming import session_memory
from sow.streaming.outbox.entries import Queued
from sow.streaming.queue_memory import ENTRY_BYTES, QueueMemory
from sow.streaming.session_memory import QueueCount
from tests.laws.narrow import KB, at, away, memory, named, own, publish, settled, world_of


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(session_memory, "MOVED_AT_ONCE", 3)
    return world_of(1_000 * KB)


def goes_on(world, session, address):
    """The client goes on at another address; returns the shares before and after."""
    former = session.memory.share
    session.resume("n", address)
    world.executor.sessions.entitle(session, EVERYTHING)
    return former, session.memory.share


def test_what_waits_counts_for_another_client_in_steps(world):
    session = away(world, named(world, 1)).session
    publish(world, 1, 20)
    used = session.memory.share.used
    former, present = goes_on(world, session, "192.0.2.9")
    world.check()
    moved = [present.used]
    for _ in memory(world).stepping():
        world.check()
        assert former.sessions, "it may have to give way for what counts there still"
        moved.append(present.used)
    assert len(moved) > 5
    assert moved == sorted(moved)
    assert (former.used, present.used) == (0, used)
    assert not former.sessions
    world.check()


def test_what_comes_and_leaves_meanwhile_counts_for_whom_it_should(world):
    session = away(world, named(world, 1)).session
    publish(world, 1, 20)
    former, present = goes_on(world, session, "192.0.2.9")
    before = former.used
    world.publish("t", {"id": 99})
    world.check()
    for _ in range(4):
        assert session.pull(world.engine.sequencer.released, world.now)
        world.check()
    assert former.used < before
    settled(world)
    assert former.used == 0 < present.used


def test_who_comes_back_at_once_counts_as_before(world):
    session = away(world, named(world, 1)).session
    publish(world, 1, 20)
    used = session.memory.share.used
    first, _ = goes_on(world, session, "192.0.2.9")
    _, third = goes_on(world, session, "192.0.2.1")
    assert third is first
    settled(world)
    assert third.used == used
    assert session in third.sessions


@pytest.mark.parametrize("steps", [0, 2])
def test_one_that_is_closed_meanwhile_leaves_nothing(world, steps):
    session = away(world, named(world, 1)).session
    publish(world, 1, 20)
    goes_on(world, session, "192.0.2.9")
    for _ in zip(range(steps), memory(world).stepping(), strict=False):
        pass
    world.executor.sessions.close(session)
    settled(world)
    assert memory(world).used == 0
    assert not memory(world)._shares


def test_windows_move_at_once(world):
    session = own(world, 1, opts="conflation=1h").session
    publish(world, 1, 20)
    used = session.memory.share.used
    former, present = goes_on(world, session, "192.0.2.9")
    assert (former.used, present.used) == (0, used)
    assert used


def test_a_short_queue_moves_at_once_and_nobody_hears_of_it():
    told = []
    queues = QueueMemory(on_over=lambda: told.append(1))
    count = QueueCount(queues.share("one"))
    entry = Queued(0, 0, b"frame", 1)
    count.add(entry)
    count.move(queues.share("other"), [entry])
    queues.go_on(count.moved())
    assert told == []
    assert queues.share("other").used == count.own == ENTRY_BYTES + 5
    assert queues.share("one").used == 0
    count.remove(entry)
    assert (queues.used, count.bytes()) == (0, 0)


def test_a_session_at_one_address_is_no_other_client(world):
    one, other = at(world, "192.0.2.1"), at(world, "192.0.2.1")
    assert one.session.memory.share is other.session.memory.share
