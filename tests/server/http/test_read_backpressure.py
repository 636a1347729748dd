"""Who is read while there is no room: back-pressure that never becomes a deadlock."""

import random

from sow.core.quota import Quota
from sow.server.http.body_reading import (
    PAUSED_CHECK_S,
    READ_BYTES,
    STALLED_S,
    ReadBackpressure,
)
from tests.cases import all_cases
from tests.effort import seeds

MB = 1 << 20


class Client:
    """A client that sends messages of one size, and what the server holds of it."""

    def __init__(self, world, name, size, stalls=False):
        self.holder = world.intake.budget.holder(name)
        self.world, self.size, self.stalls = world, size, stalls
        self.read = True
        self.closed = ""
        self.held = self.message = 0

    def pause(self):
        self.read = False

    def resume(self):
        self.read = True

    def give_up(self, reason):
        self.closed = reason

    def send(self):
        """One piece more, of which whole messages are carried out at once."""
        if self.closed or not self.read or (self.stalls and self.held > self.size // 2):
            return
        self.held += READ_BYTES
        if self.held >= self.size:
            self.held, self.message = 0, self.message + 1
        self.world.settle(self)


class World:
    def __init__(self, limit):
        self.intake = ReadBackpressure(Quota(lambda: limit))
        self.now_s = 0.0

    def settle(self, client):
        message = client.message if client.held else None
        self.intake.settle(client, client.held, message, self.now_s)

    def turn(self):
        self.now_s += PAUSED_CHECK_S
        return self.intake.turn(self.now_s)


def test_who_has_room_is_never_stopped():
    world = World(64 * MB)
    clients = [Client(world, name, 8 * MB) for name in range(4)]
    for _ in range(200):
        for client in clients:
            client.send()
            assert client.read
    assert all(client.message > 5 for client in clients)


@all_cases("seed", seeds(6))
def test_all_in_the_middle_of_a_message_come_to_its_end(seed):
    draw = random.Random(seed)
    world = World(16 * MB)
    names = [draw.choice("abcdefgh") for _ in range(60)]
    clients = [Client(world, name, 4 * MB) for name in names]
    while any(client.message < 3 for client in clients):
        for client in draw.sample(clients, 20):
            client.send()
            # A quarter more at most, and what is favoured.
            assert world.intake.budget.used <= 16 * MB * 5 // 4 + 4 * MB
        world.turn()
        assert world.now_s < 900
        # Nobody who goes on sending is given up but by sheer numbers.
        assert not any("sends nothing" in client.closed for client in clients)
        for client in clients:
            if client.closed:
                client.closed, client.read, client.held = "", True, 0
    assert world.intake.budget.used == sum(client.held for client in clients)


def test_who_holds_half_a_message_and_says_no_more_is_given_up_for_the_others():
    world = World(16 * MB)
    silent = [Client(world, name, 8 * MB, stalls=True) for name in range(6)]
    while any(client.read and client.held <= 4 * MB for client in silent):
        for client in silent:
            client.send()
        world.turn()
    honest = Client(world, "honest", MB)
    while honest.message < 5:
        honest.send()
        world.turn()
        assert world.now_s < 6 * STALLED_S + 5
    gone = [client.closed for client in silent if client.closed]
    assert gone
    assert all("Limits/RequestMemory" in reason for reason in gone)
    assert not honest.closed


def test_one_client_that_holds_too_much_itself_stops_nobody_else():
    world = World(16 * MB)
    greedy = [Client(world, "greedy", 3 * MB) for _ in range(10)]
    other = Client(world, "other", MB)
    for _ in range(12):
        for client in [*greedy, other]:
            client.send()
            assert other.read
    assert any(not client.read for client in greedy)
    assert other.message == 3


def test_who_leaves_holds_nothing():
    world = World(4 * MB)
    clients = [Client(world, name, 4 * MB, stalls=True) for name in range(8)]
    for _ in range(20):
        for client in clients:
            client.send()
    assert world.intake.waiting
    for client in clients:
        world.intake.remove(client)
    assert world.intake.budget.used == 0
    assert not world.turn()
