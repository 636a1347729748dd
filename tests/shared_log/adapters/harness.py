"""The conformance suite over real engines: what a harness of each has in common.

A client of a harness has a relay for each server in front of it. Time-outs are short while a fault
lasts, and long else, since a busy machine is slow.
"""

from contextlib import suppress

from sow.errors import LogUnanswered
from tests.shared_log.adapters.relay import Relay

ANSWER_S = 20.0
IN_A_FAULT_S = 0.5
SLOW_S = 0.03


class EngineHarness:
    """One new log of a cluster; a kind of engine says how `_client` is made."""

    FAULTS = ("away", "unanswered", "held", "slow")

    def __init__(self, cluster):
        self.cluster = cluster
        self._clients = []
        self._relays = {}

    async def connect(self):
        relays = [Relay(port) for port in self.cluster.ports.values()]
        for relay in relays:
            await relay.start()
        client = self._client([relay.port for relay in relays])
        client.answer_s = ANSWER_S
        self._clients.append(client)
        self._relays[client] = relays
        return client

    async def reopened(self):
        await self._end()
        self.cluster.restart()
        return await self.connect()

    async def begin(self, client, fault):
        await client.last()  # connected: what is held are answers to what it appends
        client.answer_s = ANSWER_S if fault == "slow" else IN_A_FAULT_S
        for relay in self._relays[client]:
            if fault == "away":
                await relay.refuse()
            elif fault == "slow":
                relay.delay_s = SLOW_S
            else:
                relay.hold_answers()

    async def end(self, client, fault):
        client.answer_s = ANSWER_S
        for relay in self._relays[client]:
            if fault == "away":
                await relay.start()
            elif fault == "unanswered":
                relay.lose()
            relay.heal()
        if fault == "unanswered":
            with suppress(LogUnanswered):  # it notices that its connection is broken
                await client.last()

    async def cut(self, client):
        """The line is silent from now on."""
        client.answer_s = IN_A_FAULT_S
        for relay in self._relays[client]:
            relay.cut()

    async def healed(self, client):
        """What was held passes, and it is served again."""
        client.answer_s = ANSWER_S
        for relay in self._relays[client]:
            relay.heal()
        with suppress(LogUnanswered):
            await client.last()

    async def close(self):
        await self._end()

    async def _end(self):
        for client in self._clients:
            for relay in self._relays[client]:
                relay.heal()
            await client.close()
            for relay in self._relays[client]:
                await relay.close()
        self._clients.clear()
        self._relays.clear()
