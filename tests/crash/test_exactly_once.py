"""Kill the server and the publisher at random moments: each message is in the log once, in order.

A publisher with a store in a file is a process of its own, and says what it has published. Each
round kills it, or the server, or both, and starts them again. Before some of them another
connection takes the name, sends again what the server has, and goes: the publisher loses the
answers to what it has sent, and takes the name back. In the end the log has whatever was published,
each message once, in order. SOW_KILLS sets the number of rounds. Clocks that are set and names that
expire are in `tests/simulation/publishers.py`.
"""

import asyncio
import json
import os
import random
import sys
import tempfile
from pathlib import Path

import aiohttp
import pytest

from sow.client import Client, Retry
from sow.errors import ClientError
from tests.crash.test_crash import read_log
from tests.crash.victim import FORKS, START_S_MAX, Victim
from tests.ports import free_port

KILLS = int(os.environ.get("SOW_KILLS", "10"))
SEED = int(os.environ.get("SOW_SEED", "20240808"))
KEYS = 10
ENDLESS = Retry(first_s=0.01, longest_s=0.1, give_up_s=START_S_MAX)

pytestmark = pytest.mark.edge


async def publish(url, store, first, say):
    """Publish until the process is killed; each number is said when it is in the store."""
    chance = random.Random(first)
    async with Client(url, retry=ENDLESS) as client:
        publisher = client.idempotent_publisher("feed", store)
        while True:
            some = range(first, first + chance.choice((1, 1, 7, 300)))
            bodies = [{"id": n % KEYS, "batch": 1, "n": n} for n in some]
            try:
                await publisher.publish("orders", bodies)
                first = some.stop
                say(first - 1)
                if publisher.waiting > 5_000 or chance.random() < 0.05:
                    await publisher.drain()
            except ClientError as error:
                if error.reason != "replaced":
                    raise
                publisher.restart()
            await asyncio.sleep(0)


def _publish(url, store, first, hears, errors):
    os.dup2(os.open(errors, os.O_WRONLY), sys.stderr.fileno())
    asyncio.run(publish(url, store, first, hears.send))


class Publishing:
    """A process that publishes numbers from `first` on, until `kill` returns the last that it has
    said."""

    def __init__(self, url, store, first):
        self._errors = Path(tempfile.mkstemp(dir=Path(store).parent, suffix=".errors")[1])
        self._says, hears = FORKS.Pipe(duplex=False)
        self._last = first - 1
        arguments = (url, str(store), first, hears, str(self._errors))
        self._process = FORKS.Process(target=_publish, args=arguments, daemon=True)
        self._process.start()
        hears.close()

    def wait(self):
        """Return once it has said something."""
        assert self._says.poll(START_S_MAX), self._errors.read_text()
        self._last = self._says.recv()

    def kill(self):
        self._process.kill()
        self._process.join()
        try:
            while self._says.poll():
                self._last = self._says.recv()
        except (EOFError, OSError):
            pass
        self._says.close()
        errors = self._errors.read_text()
        assert "Traceback" not in errors, errors
        return self._last


async def double(url):
    """Take the name for a moment, and send again what has its highest number."""
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{url}/v1/ws") as socket:
        await socket.send_str('{"c":"logon","client":"feed","sequence":true,"cid":"1"}')
        answer = (await socket.receive()).data
        if b'"replaced"' in answer:
            return  # the publisher has come back meanwhile
        highest = json.loads(answer)["sequence"]
        if highest:
            again = {"c": "publish", "seq": highest, "t": "orders", "cid": "2", "d": {"n": -1}}
            await socket.send_str(json.dumps(again))
            answer = await socket.receive()
            assert answer.type is not aiohttp.WSMsgType.BINARY or (
                b'"duplicate":true' in answer.data or b'"replaced"' in answer.data
            ), answer


async def finish(url, store):
    async with (
        Client(url, retry=ENDLESS) as client,
        client.idempotent_publisher("feed", store) as publisher,
    ):
        await publisher.drain()
    async with aiohttp.ClientSession() as http:
        return await read_log(http, url, 0)


def test_each_message_is_in_the_log_once_whoever_is_killed(tmp_path, capsys):
    rng, said = random.Random(SEED), []
    data, store = tmp_path / "data", tmp_path / "store"
    port = free_port()
    victim = Victim(data, port)
    first = 1
    publishing = Publishing(victim.url, store, first)
    for _ in range(KILLS):
        publishing.wait()
        asyncio.run(asyncio.sleep(rng.uniform(0.02, 0.3)))
        if rng.random() < 0.3:
            asyncio.run(double(victim.url))
        who = rng.choice(("server", "publisher", "both"))
        if who != "publisher":
            victim.kill()
        if who != "server":
            last = publishing.kill()
            said.append((first, last))
            # One more may be in the store, which was not said any more.
            first = last + 1_000
        if who != "publisher":
            victim = Victim(data, port)
        if who != "server":
            publishing = Publishing(victim.url, store, first)
    said.append((first, publishing.kill()))
    log = asyncio.run(finish(victim.url, store))
    victim.kill()
    numbers = [row["d"]["n"] for row in log]
    assert numbers == sorted(set(numbers)), "not once, or not in order"
    missing = {n for start, last in said for n in range(start, last + 1)}.difference(numbers)
    assert not missing, f"{len(missing)} are missing: {json.dumps(sorted(missing)[:10])}"
    with capsys.disabled():
        print(f"\n{KILLS} kills, {len(numbers):,} messages published, each once")
