"""Kill the server and its consumers at random moments: each message is acknowledged, none is lost,
and no two have one at once.

Each round publishes numbered messages and has consumers take them, over HTTP and over a WebSocket,
some of which die with what they hold; then the server is killed with SIGKILL. A publish that was
acknowledged is delivered until an acknowledgement of it was answered, and then never again. What
was leased before the kill is leased after it until its end: a lease says when that is, by the clock
of one machine. SOW_KILLS sets how many rounds there are.
"""

import asyncio
import contextlib
import json
import os
import random
import time
from datetime import datetime

import aiohttp
import pytest

from tests.crash.runner import LEASE_US
from tests.crash.victim import Victim

KILLS = max(3, int(os.environ.get("SOW_KILLS", "10")) // 3)
SEED = int(os.environ.get("SOW_SEED", "20240808"))
ROUND_S = 1.0
LOST = (aiohttp.ClientError, ConnectionError, asyncio.TimeoutError)
JOBS = "/v1/topics/jobs/lease"

pytestmark = pytest.mark.edge


class Story:
    """What was published, delivered and acknowledged, over all rounds."""

    def __init__(self):
        self.number = 0
        self.published = set()
        """Numbers that the server has acknowledged."""
        self.done = set()
        """Numbers whose acknowledgement was answered."""
        self.asked = set()
        """Those of which an acknowledgement was sent, answered or not."""
        self.until = {}
        """When the leases of a number end that were taken over HTTP."""
        self.deliveries = 0

    def deliver(self, number, until=None):
        assert number not in self.done, "an acknowledged message is delivered"
        self.deliveries += 1
        if until is not None:
            ends_s = datetime.fromisoformat(until).timestamp()
            others_s = self.until.setdefault(number, [])
            # A busy machine may read two answers in another order than they were given.
            apart_s = (abs(ends_s - one_s) for one_s in others_s)
            assert min(apart_s, default=1e9) >= LEASE_US / 1e6 - 0.001, "it is with two at once"
            others_s.append(ends_s)


async def publish(session, story):
    while True:
        numbers = range(story.number, story.number + 3)
        story.number += 3
        bodies = [{"id": number % 7, "batch": 0, "n": number} for number in numbers]
        async with session.post("/v1/topics/orders/records", json=bodies) as answer:
            assert answer.status == 200
            story.published |= set(numbers)
        await asyncio.sleep(0.01)


async def lease(session, story, rng, dies=True):
    """Take messages over HTTP; one in five is never acknowledged."""
    while True:
        async with session.post(f"{JOBS}?n=3&wait=1") as answer:
            taken = await answer.json()
        for one in taken:
            number = one["d"]["n"]
            story.deliver(number, one["until"])
            if not dies or rng.random() < 0.8:
                story.asked.add(number)
                async with session.delete(f"{JOBS}/{one['lease']}") as answer:
                    if answer.status == 204:
                        story.done.add(number)
                    else:
                        assert answer.status == 404


async def follow(session, story, rng):
    """Take messages over a WebSocket that is dropped now and then, with what it holds."""
    while True:
        async with session.ws_connect("/v1/ws") as socket:
            await socket.send_json({"c": "subscribe", "t": "jobs", "opts": "max_backlog=3"})
            waiting = {}
            while rng.random() < 0.95:
                frame = await socket.receive()
                if frame.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                    raise ConnectionError
                for line in map(json.loads, frame.data.splitlines()):
                    if line["c"] == "p":
                        number = line["d"]["n"]
                        story.deliver(number)
                        story.asked.add(number)
                        waiting[line["bm"]] = number
                        await socket.send_json(
                            {"c": "sow_delete", "cid": line["bm"], "t": "jobs", "bm": line["bm"]}
                        )
                    elif line["c"] == "ack" and line.get("acknowledged"):
                        story.done.add(waiting.pop(line["cid"]))


async def until_killed(work):
    with contextlib.suppress(*LOST):
        await work


async def one_round(victim, story, rng):
    async with aiohttp.ClientSession(victim.url) as session:
        works = [publish(session, story), follow(session, story, rng)]
        works += [lease(session, story, rng) for _ in range(2)]
        tasks = [asyncio.create_task(until_killed(work)) for work in works]
        await asyncio.sleep(ROUND_S * rng.uniform(0.5, 1.5))
        await asyncio.to_thread(victim.kill)
        await asyncio.gather(*tasks)


async def drain(victim, story):
    """Take all that is left: what was published has to be among it, or done, or asked for."""
    async with aiohttp.ClientSession(victim.url) as session:
        left = set()
        while missing := story.published - story.done - story.asked - left:
            async with session.post(f"{JOBS}?n=10&wait=60") as answer:
                taken = await answer.json()
            assert taken, f"{len(missing)} messages are lost, such as {min(missing)}"
            for one in taken:
                number = one["d"]["n"]
                assert number not in story.done, "an acknowledged message is delivered"
                async with session.delete(f"{JOBS}/{one['lease']}") as answer:
                    assert answer.status in (204, 404)  # a busy machine is slower than a lease
                    left |= {number} if answer.status == 204 else set()


def test_no_message_is_lost_and_each_is_acknowledged_once(tmp_path):
    story, rng = Story(), random.Random(SEED)
    began_s = time.monotonic()
    for _ in range(KILLS):
        asyncio.run(one_round(Victim(tmp_path / "data", configuration="queues"), story, rng))
    victim = Victim(tmp_path / "data", configuration="queues")
    try:
        asyncio.run(drain(victim, story))
    finally:
        victim.kill()
    print(
        f"{KILLS} kills in {time.monotonic() - began_s:.0f} s: {len(story.published)} published, "
        f"{story.deliveries} delivered, {len(story.done)} acknowledged"
    )
    assert story.done
