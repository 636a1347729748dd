"""The demo's feed: the market of a seed, published in slices of real time by a client."""

import asyncio

import pytest

from sow.cli import market_feed
from sow.cli.market import Market
from sow.core.clock import VirtualClock
from sow.errors import SowError
from sow.protocol.encodings import timestamp

START_US = 1_700_000_000_000_000


class Enough(Exception):
    """Ends a feed, which never ends by itself."""


class Publisher:
    """Keeps what it is sent."""

    def __init__(self):
        self.frames = []

    async def send(self, bodies):
        self.frames.append(bodies)


class Client:
    """A client whose publishers a test can read."""

    made = None

    def __init__(self, url, name):
        self.url, self.name, self.publishers = url, name, {}
        Client.made = self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        return None

    async def publisher(self, topic):
        self.publishers[topic] = Publisher()
        return self.publishers[topic]


@pytest.fixture
def slices(monkeypatch):
    """Runs a feed for so many slices, of as many seconds each, on a clock of its own."""
    clock = VirtualClock(START_US)
    monkeypatch.setattr(market_feed, "Client", Client)
    monkeypatch.setattr(market_feed, "SystemClock", lambda: clock)

    def run(seconds, seed=1, rate=2000.0):
        left = list(seconds)

        async def sleep(_seconds):
            if not left:
                raise Enough
            clock.advance(round(left.pop(0) * 1e6))

        monkeypatch.setattr(market_feed.asyncio, "sleep", sleep)
        with pytest.raises(Enough):
            asyncio.run(market_feed.publish("http://there", rate, seed))
        return Client.made

    return run


def test_each_slice_is_the_time_that_has_really_passed(slices):
    client = slices([0.01, 0.25], seed=7)
    market = Market(7, 2000.0)
    expected = [
        market.slice(seconds, timestamp(START_US + after).encode())
        for seconds, after in [(0.01, 10_000), (0.25, 260_000)]
    ]
    assert client.publishers["quotes"].frames == [quotes for quotes, _ in expected]
    assert client.publishers["orders"].frames == [orders for _, orders in expected]


def test_what_the_server_refuses_is_said_in_a_sentence(monkeypatch, capsys):
    async def refused(url, rate, seed):
        raise SowError(f"no server answers at {url} ({rate:g}, {seed})")

    monkeypatch.setattr(market_feed, "publish", refused)
    monkeypatch.setattr("sys.argv", ["feed", "http://there", "4000", "1"])
    assert market_feed.main() == 1
    assert capsys.readouterr().err == "no server answers at http://there (4000, 1)\n"


def test_ctrl_c_is_no_failure(monkeypatch):
    async def interrupted(_url, _rate, _seed):
        raise KeyboardInterrupt

    monkeypatch.setattr(market_feed, "publish", interrupted)
    monkeypatch.setattr("sys.argv", ["feed", "http://there", "4000", "1"])
    assert market_feed.main() == 0
