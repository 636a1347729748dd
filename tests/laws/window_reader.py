"""A naive reader of live windows, and the law that it holds them to.

It applies lines one after the other: an oof takes a record out, every other line puts one in, at
the place that the line says. After each line it holds no more than the window has room for, and
once all is read it holds what the same query answers, in the query's order.
"""

import json
from dataclasses import dataclass, field

from tests.laws.test_client_state import merge


@dataclass
class WindowReader:
    """One window of a client: its request, and the (key, document)s that it holds."""

    client: object
    topic: str
    order_by: str | None = None
    top_n: int = 3
    skip_n: int = 0
    filter: str | None = None
    select: str | None = None
    delta: bool = False
    opts: tuple = ()
    positions: bool = True
    name: str = ""
    held: list = field(default_factory=list)
    room: int = 0
    coming: bool = False
    phase: int = 0
    turns: int = 0
    """The marks that were read."""

    def question(self):
        requested = {
            "filter": self.filter,
            "order_by": self.order_by,
            "select": self.select,
            "top_n": self.top_n,
            "skip_n": self.skip_n,
        }
        return {name: value for name, value in requested.items() if value is not None}

    def command(self, **more):
        opts = ["live", *self.opts, *["positions"] * self.positions, *more.pop("opts", ())]
        kind = "delta_subscribe" if self.delta else "subscribe"
        return {
            "c": f"sow_and_{kind}",
            "t": self.topic,
            "cid": "1",
            "opts": ",".join(opts),
            **self.question(),
            **more,
        }

    def begin(self):
        """Subscribe."""
        self.room = self.top_n
        self.release_others(self.client.say(**self.command()))

    def scroll(self, meanwhile=None, **other):
        """Replace it by another window over the same topic in the same order; returns how many
        records the answer is about."""
        before = {name: getattr(self, name) for name in other}
        for name, value in other.items():
            setattr(self, name, value)
        command = self.command(s=self.name, opts=("replace",))
        said = (
            self.client.say(**command)
            if meanwhile is None
            else self.client.say_in_steps(meanwhile, **command)
        )
        at = next(at for at, line in enumerate(said) if line["c"] == "ack")
        for name, value in before.items():
            setattr(self, name, value)
        self.release_others(said[:at])
        for name, value in other.items():
            setattr(self, name, value)
        self.room = max(self.room, self.top_n)
        self.release_others(said[at:])
        return sum(line["c"] in ("sow", "oof") for line in said[at:])

    def read(self):
        """Take in what has come."""
        self.release_others(self.client.lines())

    def release_others(self, lines):
        for line in lines:
            self.hear(line)

    def hear(self, line):
        """One line."""
        kind = line["c"]
        if kind == "ack":
            assert line["status"] == "success", line
            self.name = line.get("s", self.name)
        if line.get("s") != self.name:
            return
        if kind in ("group_begin", "group_end", "turn_end"):
            self.coming, self.phase = kind == "group_begin", 0
            self.turns += kind == "turn_end"
            self.room = self.room if self.coming else self.top_n
        elif kind in ("sow", "p", "oof"):
            self._hear_record(kind, line)
            assert len(self.held) <= self.room, f"more than there is room for: {line}"

    def _hear_record(self, kind, line):
        key, document = line["k"], line["d"]
        keys = [one for one, _ in self.held]
        before = dict(self.held).get(key)
        self._hear_in_order(kind, before)
        if key in keys:
            del self.held[keys.index(key)]
        if kind == "oof":
            assert before is not None, f"an oof of what is not held: {line}"
            if line["reason"] != "match":
                assert document == before, "not the last state that was sent"
            assert not self.positions or line["at"] == keys.index(key)
            return
        if line.get("delta"):
            assert before is not None, f"a delta of what is not held: {line}"
            document = merge(json.loads(json.dumps(before)), document)
        at = line["at"] if self.positions else len(self.held)
        assert 0 <= at <= len(self.held), line
        self.held.insert(at, (key, document))

    def _hear_in_order(self, kind, before):
        """Removed rows come first, then added ones, then changes."""
        if self.coming:
            assert kind == "sow"
            return
        phase = 0 if kind == "oof" else 1 if before is None else 2
        assert phase >= self.phase, "a turn in another order"
        self.phase = phase

    def check(self, world):
        """It holds what the query answers."""
        lines = world.client().say(c="sow", t=self.topic, **self.question())
        expected = [(line["k"], line["d"]) for line in lines if line["c"] == "sow"]
        if self.positions:
            assert self.held == expected
        else:
            assert sorted(self.held, key=str) == sorted(expected, key=str)
