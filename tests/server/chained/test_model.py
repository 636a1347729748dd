"""Random lives: clients of a chained server hold what a query finds, whatever is lost meanwhile.

Each client follows one thing, and some begin late. Between the steps of a publisher connections are
dropped, the link is cut and mended, and upstream starts again. In the end each client's lines,
applied in order, give the answer of a query, no line comes twice, and those to single changes have
every change.
"""

import random

import pytest

from sow.server.chained.shared_subscription import SharedSubscription
from tests.effort import TIMES
from tests.server.chained.chains import ALL, DELTAS, known

STEPS = 40
FOLLOWED = [
    ALL,
    {**ALL, "filter": "/x > 0"},
    {**ALL, "filter": "/x > 0", "opts": "oof"},
    DELTAS,
    {**DELTAS, "opts": "oof,timestamp", "filter": "/x < 2"},
]


class Follower:
    """A client and the lines that it has received."""

    def __init__(self, pair, wanted):
        self.wanted = wanted
        self._socket = pair.chained.socket()
        self.socket = self._socket.__enter__()
        self.lines = []
        while not self.lines or self.lines[-1]["status"] == "failure":
            # A connection may be lost in this moment.
            self.socket.send({"cid": "1", **wanted})
            self.lines = self.socket.until(c="ack")
        if self.lines[-1]["a"] == "processed":
            self.lines += self.socket.until(c="ack", a="completed")

    def end(self, mark, closes=True):
        """All lines up to the record of the end."""
        while self.lines[-1].get("d", {}).get("id") != mark:
            self.lines.append(self.socket.line())
        if closes:
            self._socket.__exit__(None, None, None)

    def check(self, pair):
        lines = [line for line in self.lines if line["c"] in ("sow", "p", "oof")]
        live = [int(line["bm"]) for line in lines if line["c"] == "p"]
        assert live == sorted({*live}), "a change comes twice, or out of order"
        held = known(lines)
        # Without oof a client keeps what has left the filter.
        if "oof" in self.wanted.get("opts", "") or "filter" not in self.wanted:
            found = pair.upstream.records("orders", filter=self.wanted.get("filter", "1=1"))
            gone = [one for one in held.values() if one not in found]
            assert len(held) >= len(found)
            assert all(one in held.values() for one in found)
            assert "oof" not in self.wanted.get("opts", "") or not gone


class Life:
    """One life of a pair of servers, by its random numbers."""

    def __init__(self, pair, seed):
        self.pair, self.chance = pair, random.Random(seed)
        self.is_cut = False
        self.followers = []

    def publish(self):
        chance = self.chance
        documents = [
            {"id": chance.randrange(12), "x": chance.randrange(-1, 4), "y": chance.random()}
            for _ in range(chance.randrange(1, 4))
        ]
        self.pair.upstream.publish("orders", *documents)

    def patch(self):
        body = b'{"id": %d, "z": %d}' % (self.chance.randrange(12), self.chance.randrange(9))
        path, kind = "/v1/topics/orders/records", {"Content-Type": "application/json"}
        self.pair.upstream.request("PATCH", path, data=body, headers=kind)

    def delete(self):
        path = f"/v1/topics/orders/records?filter=/id%20=%20{self.chance.randrange(12)}"
        self.pair.upstream.request("DELETE", path)

    def follow(self):
        if not self.is_cut and len(self.followers) < 8:
            self.pair.chained.wait(self._there())
            self.followers.append(Follower(self.pair, self.chance.choice(FOLLOWED)))

    async def _there(self):
        await self.pair.chained.server._source._upstream.there.wait()

    def drop(self):
        self.pair.upstream.call(self.pair.relay.drop)

    def cut(self):
        if not self.is_cut:
            self.pair.relay.cut()
        else:
            self.pair.relay.mend()
        self.is_cut = not self.is_cut

    def restart(self):
        if not self.is_cut:
            self.cut()
        self.pair.upstream.stop()
        self.pair.upstream.start()

    def live(self):
        often = [self.publish] * 8 + [self.patch] * 3 + [self.delete] * 2 + [self.follow] * 3
        seldom = [self.drop, self.cut, self.restart]
        self.follow()
        for _ in range(STEPS):
            self.chance.choice(often + seldom)()
        if self.is_cut:
            self.cut()
        self.pair.upstream.publish("orders", {"id": "end", "x": 1})
        for one in self.followers:
            one.end("end")
        for one in self.followers:
            one.check(self.pair)


@pytest.mark.parametrize("seed", range(4 * TIMES))
def test_clients_hold_what_a_query_finds(pair, seed):
    Life(pair, seed).live()


def test_a_planted_repeat_is_found(pair, monkeypatch):
    """A subscription that goes on a change too early repeats one."""
    note = SharedSubscription.note_place
    monkeypatch.setattr(
        SharedSubscription,
        "note_place",
        lambda one, place, bookmark: note(one, place - 1, str(int(bookmark) - 1)),
    )
    life = Life(pair, 0)
    life.followers.append(Follower(pair, ALL))
    life.pair.upstream.publish("orders", {"id": 1}, {"id": 2})
    life.followers[0].end(2, closes=False)
    life.restart()
    life.cut()
    life.pair.upstream.publish("orders", {"id": "end"})
    life.followers[0].end("end")
    with pytest.raises(AssertionError, match="comes twice"):
        life.followers[0].check(pair)
