"""Who answers no ping is gone; who cannot be heard is not."""

import asyncio
from types import SimpleNamespace

from sow.server.net.pings import CHECK_S, SILENT_CHECKS, Pings
from tests.server.stand_ins import stepped

SILENCE_S = SILENT_CHECKS * CHECK_S


class Requested:
    """A client that is heard or not, and what it is asked."""

    def __init__(self):
        self.activity = SimpleNamespace(received=0, is_read=True)
        self.pings, self.is_lost = 0, False
        self.all = Pings(self.activity, self.ping, self.lose)

    async def ping(self):
        self.pings += 1

    def lose(self):
        self.is_lost = True


@stepped
async def test_a_silent_client_is_requested_and_lost_if_it_does_not_answer():
    client = Requested()
    await asyncio.sleep(SILENCE_S - 1)
    assert client.pings == 0
    await asyncio.sleep(2)
    assert (client.pings, client.is_lost) == (1, False)
    await asyncio.sleep(CHECK_S)
    assert (client.pings, client.is_lost) == (1, True)


@stepped
async def test_one_that_answers_is_requested_again_after_as_long():
    client = Requested()
    for times in range(1, 4):
        await asyncio.sleep(SILENCE_S + 1)
        assert client.pings == times
        client.activity.received += 1
        await asyncio.sleep(CHECK_S - 1)
    assert not client.is_lost
    client.all.stop()
    await asyncio.sleep(10 * CHECK_S)
    assert client.pings == 3


@stepped
async def test_nothing_is_held_against_a_client_whose_socket_is_not_read():
    client = Requested()
    client.activity.is_read = False
    await asyncio.sleep(10 * CHECK_S)
    assert (client.pings, client.is_lost) == (0, False)
    client.activity.is_read = True
    await asyncio.sleep(SILENCE_S + 1)
    assert client.pings == 1
    client.activity.is_read = False  # the answer stands behind much else
    await asyncio.sleep(10 * CHECK_S)
    assert not client.is_lost
    client.all.stop()
