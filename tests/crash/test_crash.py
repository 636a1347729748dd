"""Kill the server at random moments, again and again: what was acknowledged is there, whole.

Each round starts the server on the same data, publishes batches over a WebSocket (records that
are replaced again and again, records that only come once, deletes), and kills it with SIGKILL
after a random time. Then the next server must hold every acknowledged batch, each other batch
wholly or not at all, everything a subscriber has seen, a dense log that explains the records,
views whose rows are made of these, in their order, and a conflated topic that converges again. A
round reads of the log what is new to it, and after the last one all of it is read once more.
SOW_KILLS sets the number of rounds. Different
data directories have nothing in common, so they are gone through beside each other, one for each
core. At the end it says how many kills there were, and what was acknowledged and lost.
"""

import asyncio
import json
import math
import multiprocessing
import os
import random
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import aiohttp
import pytest

from tests.crash.runner import ALLOWED, REFUSED
from tests.crash.victim import Victim, refusal

KILLS = int(os.environ.get("SOW_KILLS", "10"))
CHANGES = max(2, KILLS // 10)
"""So many lives are followed by one under another configuration."""
KILLS_A_LIFE = 25
"""After so many a new data directory begins, since each check reads all records."""
SEED = int(os.environ.get("SOW_SEED", "20240808"))
KEYS = 40
PADDING = "x" * 120
CONVERGED_S_MAX = 60
"""A safety net: an interval of the copy, on a machine that is busy."""

pytestmark = pytest.mark.edge


class Story:
    """What was sent and what was said about it, over all rounds."""

    def __init__(self):
        self.batches = 0
        self.sent = {}
        self.acknowledged = {}
        self.seen = 0
        self.log = []
        """As far as a check has read it."""

    def batch(self, rng):
        """The next batch: some records of `orders` that all carry its number, and a trade."""
        self.batches += 1
        number = self.batches
        ids = rng.sample(range(KEYS), rng.randrange(1, 12))
        orders = [{"id": id_, "batch": number, "of": len(ids), "pad": PADDING} for id_ in ids]
        self.sent[number] = ids
        return number, orders


async def publish_until_killed(victim, story, rng):
    async with aiohttp.ClientSession() as http, http.ws_connect(victim.url + "/v1/ws") as ws:
        await ws.send_str('{"c":"subscribe","t":"trades"}')
        reader = asyncio.ensure_future(listen(ws, story))
        loop = asyncio.get_running_loop()
        loop.call_later(rng.uniform(0.02, 0.5), victim.kill)
        try:
            while not reader.done():
                number, orders = story.batch(rng)
                await ws.send_bytes(frame(number, orders))
                await asyncio.sleep(0 if rng.random() < 0.9 else 0.002)
        except (ConnectionError, aiohttp.ClientError):
            pass
        await reader


def frame(number, orders):
    head = {"c": "publish", "t": "orders", "n": len(orders), "cid": f"o{number}", "a": "persisted"}
    trade = {"c": "publish", "t": "trades", "cid": f"t{number}", "a": "persisted"}
    lines = [json.dumps(head), *map(json.dumps, orders)]
    lines.append(json.dumps({**trade, "d": {"id": number}}))
    return "\n".join(lines).encode()


async def listen(ws, story):
    """Remember acks and, of the subscription, the newest bookmark seen."""
    async for message in ws:
        if not isinstance(message.data, str | bytes):
            return
        for line in message.data.splitlines():
            said = json.loads(line)
            if said["c"] == "ack" and "cid" in said:
                assert said["status"] == "success", said
                story.acknowledged[said["cid"]] = int(said["bm"])
            elif said["c"] == "p":
                assert int(said["bm"]) > story.seen
                story.seen = int(said["bm"])


async def get(http, url):
    async with http.get(url) as response:
        body = await response.read()
        assert response.status == 200, body
        return body


async def read_log(http, url, after):
    """The rows of the log behind a bookmark, dense."""
    text = await get(http, f"{url}/v1/log?from={after}&limit=1000000")
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["seq"] for row in rows] == list(range(after + 1, after + 1 + len(rows)))
    return rows


async def check(url, story):
    async with aiohttp.ClientSession() as http:
        new = await read_log(http, url, len(story.log))
        story.log += new
        assert story.seen <= len(story.log)
        check_batches(story, after=len(story.log) - len(new))
        orders = json.loads(await get(http, f"{url}/v1/topics/orders/records"))
        latest = {row["d"]["id"]: row["d"] for row in story.log if row["topic"] == "orders"}
        assert {order["id"]: order for order in orders} == latest
        trades = json.loads(await get(http, f"{url}/v1/topics/trades/records"))
        traded = [row["d"]["id"] for row in story.log if row["topic"] == "trades"]
        assert [trade["id"] for trade in trades] == traded
        await check_views(http, url, orders, traded, story)
        await converged(http, url, latest)


async def check_views(http, url, orders, traded, story):
    """The rows of views are those of the records that are there, in their order."""
    batches, by_trade = {}, {}
    for order in orders:
        by_trade.setdefault(order["batch"] if order["batch"] in traded else None, []).append(order)
        if order["id"] > 2:
            batches.setdefault(order["batch"], []).append(order["id"])
    rows = [{"batch": name, "n": len(ids), "ids": sum(ids)} for name, ids in batches.items()]
    logged = [row["d"] for row in story.log if row["topic"] == "orders" and row["d"]["id"] > 2]
    most, last = max([row["n"] for row in rows], default=0), logged[-1]["batch"] if logged else 0
    expected = {
        "batches": rows,
        "batches-C": rows,
        "newest": [{"batch": last, "most": most, "batches": len(rows)}] if rows else [],
        "traded": [
            {"orders": len(some)} | ({} if name is None else {"trade": name})
            for name, some in by_trade.items()
        ],
    }
    for name, wanted in expected.items():
        assert json.loads(await get(http, f"{url}/v1/topics/{name}/records")) == wanted, name


async def check_whole(url, story):
    """What every round has found is still there."""
    await check(url, story)
    async with aiohttp.ClientSession() as http:
        assert await read_log(http, url, 0) == story.log


def check_batches(story, after):
    """Every acknowledged batch is whole, at its bookmark; every other one whole or absent."""
    found, trades = {}, {}
    for row in story.log[after:]:
        if row["topic"] == "orders":
            found.setdefault(row["d"]["batch"], []).append(row)
        else:
            trades[row["d"]["id"]] = row["seq"]

    def at(cid):
        """The bookmark at which the log holds a publish."""
        number = int(cid[1:])
        if cid[0] == "t":
            return trades.get(number)
        return found[number][-1]["seq"] if number in found else None

    for number, rows in found.items():
        assert [row["d"]["id"] for row in rows] == story.sent[number]
        assert {row["d"]["of"] for row in rows} == {len(rows)}
    new = {cid: seq for cid, seq in story.acknowledged.items() if seq > after}
    lost = [cid for cid, bookmark in new.items() if bookmark != at(cid)]
    assert not lost, f"{len(lost)} acknowledged publishes are lost, among them {lost[:5]}"


async def converged(http, url, latest):
    async with asyncio.timeout(CONVERGED_S_MAX):
        while True:
            copy = json.loads(await get(http, f"{url}/v1/topics/orders-C/records"))
            if {order["id"]: order for order in copy} == latest:
                return
            await asyncio.sleep(0.02)


class Counts(NamedTuple):
    """What one data directory went through."""

    kills: int
    acknowledged: int


def live(directory, life, kills):
    """Kill the servers of one data directory so many times, and check what each finds."""
    rng, story = random.Random(SEED + life), Story()
    for _ in range(kills):
        victim = Victim(directory)
        asyncio.run(check(victim.url, story))
        asyncio.run(publish_until_killed(victim, story, rng))
    survivor = Victim(directory)
    asyncio.run(check_whole(survivor.url, story))
    survivor.kill()
    return Counts(kills, len(story.acknowledged))


def test_nothing_acknowledged_is_lost_and_nothing_is_half_there(tmp_path, capsys):
    lives = range(math.ceil(KILLS / KILLS_A_LIFE))
    kills = [min(KILLS - life * KILLS_A_LIFE, KILLS_A_LIFE) for life in lives]
    directories = [tmp_path / str(life) for life in lives]
    if len(lives) == 1:
        counts = [live(directories[0], 0, kills[0])]
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(len(lives), os.cpu_count() or 1), context) as pool:
            counts = list(pool.map(live, directories, lives, kills))
    acknowledged = sum(count.acknowledged for count in counts)
    with capsys.disabled():
        # What did not come back whole would have failed the life it belongs to.
        print(f"\n{KILLS} kills, {acknowledged:,} publishes acknowledged, 0 lost")
    assert sum(count.kills for count in counts) == KILLS
    assert acknowledged > KILLS


async def publish_to_desks(url):
    async with aiohttp.ClientSession() as http:
        for name in ("1", "2"):
            address = f"{url}/v1/topics/%2Fdesk%2F{name}/records"
            async with http.post(address, json={"id": name}) as response:
                assert response.status == 200


def test_lives_under_other_configurations_lose_nothing_either(tmp_path):
    """What may be changed is, between two kills; what would lose records is refused, and loses
    none."""
    rng, story = random.Random(SEED), Story()
    names = [rng.choice(list(ALLOWED)) for _ in range(CHANGES)]
    for name in ["as it was", *names]:
        victim = Victim(tmp_path, configuration=name)
        asyncio.run(check(victim.url, story))
        asyncio.run(publish_until_killed(victim, story, rng))
    victim = Victim(tmp_path)
    asyncio.run(publish_to_desks(victim.url))
    victim.kill()
    for name in rng.sample(list(REFUSED), min(len(REFUSED), CHANGES)):
        assert "have no place in this configuration" in refusal(tmp_path, name), name
    survivor = Victim(tmp_path)
    asyncio.run(check_desks(survivor.url))
    survivor.kill()


async def check_desks(url):
    async with aiohttp.ClientSession() as http:
        for name in ("1", "2"):
            found = await get(http, f"{url}/v1/topics/%2Fdesk%2F{name}/records")
            assert json.loads(found) == [{"id": name}]
