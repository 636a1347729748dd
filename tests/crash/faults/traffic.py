"""Publishers that number what they send, subscribers of everything that is stored, and readers.

A `PlainPublisher` sends each document once, and notes what it is told: stored, not stored, or that
nobody knows. The `Feed` is a client of several addresses with its own store of what is not
acknowledged: each of its numbers is to be there once.
"""

import asyncio
import time
from contextlib import suppress

import aiohttp

from sow.client import Client, Retry
from sow.errors import StoreError
from tests.crash.faults.nodes import NAMES, WAIT_S

ENDLESS = Retry(first_s=0.05, longest_s=0.5, give_up_s=WAIT_S)
PAUSE_S = 0.03
READ_PAUSE_S = 0.1
"""Also between two writes of a node that follows: it says where to send them."""
KEYS = 50


def document(number):
    return {"id": number % KEYS, "desk": number % 3, "n": number}


class PlainPublisher:
    """Documents one after the other over HTTP, each once, at every node beside the others: the one
    that leads is found at once, and one that is paused answers what it was sent before."""

    def __init__(self, nodes, http):
        self._nodes, self._http = nodes, http
        self.acknowledged, self.refused, self.unknown = set(), set(), set()
        self.newest = 0
        """The newest bookmark of an acknowledgement."""
        self.acknowledged_s = []
        """When each was sent that was acknowledged, and when that was."""
        self._number = 0

    async def run(self):
        await asyncio.gather(*map(self._run, NAMES))

    async def _run(self, name):
        while True:
            self._number += 1
            is_taken = await self._publish(name, self._number)
            await asyncio.sleep(PAUSE_S if is_taken else READ_PAUSE_S)

    async def _publish(self, name, number):
        """Send one; whether the node is one that takes writes, as far as that is known."""
        sent_s = time.monotonic()
        url = f"{self._nodes.urls[name]}/v1/topics/plain/records"
        try:
            async with self._http.post(url, json=document(number)) as answer:
                said = await answer.json()
                status = answer.status
        except aiohttp.ClientConnectorError:
            self.refused.add(number)
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError):
            self.unknown.add(number)
        else:
            self._take(number, sent_s, status, said)
            return status != 421
        return True

    def _take(self, number, sent_s, status, said):
        if status == 200:
            self.acknowledged.add(number)
            self.newest = max(self.newest, int(said["bookmark"]))
            self.acknowledged_s.append((sent_s, time.monotonic()))
        elif status == 421 or said.get("reason") == "no quorum":
            self.refused.add(number)  # applied for certain not
        else:
            self.unknown.add(number)


class Feed:
    """A publisher with numbers, which goes on by itself wherever a node takes writes."""

    def __init__(self, nodes, store):
        self._urls, self._store = list(nodes.urls.values()), store
        self.last = 0
        self.is_over = False

    async def run(self):
        async with (
            Client(self._urls, retry=ENDLESS, name="feed") as client,
            client.idempotent_publisher("feed", self._store) as publisher,
        ):
            while not self.is_over:
                some = range(self.last + 1, self.last + 6)
                # A full disk is reported: what waits is sent again, this was not taken.
                with suppress(StoreError):
                    await publisher.publish("feed", [document(number) for number in some])
                    self.last = some[-1]
                await asyncio.sleep(PAUSE_S)
            await publisher.drain()


class Subscriber:
    """All lines that it got, and how often it was told of a gap."""

    def __init__(self, nodes, name, at, bookmark):
        urls = list(nodes.urls.values())
        self._urls = [*urls[at:], *urls[:at]]
        self.name, self._bookmark = name, bookmark
        self.lines = []
        self.gaps = self.moves = 0

    async def run(self):
        async with Client(self._urls, retry=ENDLESS, name=self.name) as client:
            more = {} if self._bookmark is None else {"bookmark": self._bookmark}
            subscription = client.subscribe("^(plain|feed)$", **more)
            async for line in subscription:
                self.moves = subscription.resumed
                if line.c == "gap":
                    self.gaps += 1
                elif line.c == "p":
                    number = int(line.body.rpartition(b":")[2].rstrip(b"}"))
                    self.lines.append((line.t, number))


class Reader:
    """Reads on one node, and notes how long an answer takes at most while nothing is done to it."""

    def __init__(self, nodes, name):
        self._nodes, self._name = nodes, name
        self.rests = 0
        """By how many faults its node is hit: what it takes then does not count."""
        self.longest_s = 0.0

    async def run(self):
        since_s = None
        while True:
            since_s = since_s or time.monotonic()
            rows = await self._nodes.ask(self._name, "/v1/topics/sums/records?stale=ok")
            if self.rests:
                since_s = None
            elif rows is not None:
                self.longest_s = max(self.longest_s, time.monotonic() - since_s)
                since_s = None
            await asyncio.sleep(READ_PAUSE_S)
