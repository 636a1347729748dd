"""The state that a client builds from its lines, with any options, is in the end a query's result.

A naive client takes sows and whole updates as they are, merges deltas and drops what an oof names.
With random options, traffic, reading, and replacements with traffic between their steps, its
records are compared with those of the same filter and select list.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from sow.core.definitions import ConflatedTopic, Merge, SessionSettings, Topic
from sow.history import snapshot
from sow.sessions.queries import query_results
from sow.sessions.subscriptions import subscription_diff
from tests.effort import seeds
from tests.laws.harness import MS, SECOND, Client, World

TOPICS = (
    Topic("t", "json", keys=("/id",), expires=True),
    Topic("always", "json", keys=("/id",), conflation_policy="always"),
    ConflatedTopic("c", "json", "t", interval_us=300 * MS),
    ConflatedTopic("high", "json", "t", interval_us=300 * MS, filter="/v > 4"),
    ConflatedTopic("more", "json", "t", interval_us=300 * MS, enrichment=("/v * 2 AS /w/x",)),
    ConflatedTopic(
        "sums", "json", "t", interval_us=300 * MS, merges=(Merge("/v", "sum"), Merge("/c", "count"))
    ),
)
FOLLOWED = ("t", "t", "always", "c", "high", "more")
FILTERS = (None, None, "/v > 4", "/v < 5", "/v = 3", "/w/x > 0", "/id = 2")
SELECTS = (None, None, "/id,/v", "/v", "/id,/w/x", "-/n", "-/w/x", "-/,+/w")
PACES = ("", "", "conflation=500ms", "conflation=auto")


def merge(document, delta):
    """A client's own way of taking in a delta."""
    for name, value in delta.items():
        if isinstance(value, dict):
            under = document.get(name)
            document[name] = merge(dict(under) if isinstance(under, dict) else {}, value)
        else:
            document[name] = value
    return document


@dataclass
class Requested:
    """A subscription's command, and whether it requests a snapshot."""

    topic: str
    complete: bool
    delta: bool
    oof: bool
    filter: str | None
    select: str | None
    pace: str
    no_empties: bool

    @classmethod
    def at_random(cls, random, topic, oof=None):
        delta = random.random() < 0.5
        return cls(
            topic,
            random.random() < 0.7,
            delta,
            random.random() < 0.7 if oof is None else oof,
            random.choice(FILTERS),
            random.choice(SELECTS),
            random.choice(PACES),
            delta and random.random() < 0.4,
        )

    def command(self, name=None):
        kind = "delta_subscribe" if self.delta else "subscribe"
        opts = ["oof"] * self.oof + ["no_empties"] * self.no_empties + [self.pace] * bool(self.pace)
        more = {} if name is None else {"s": name}
        if name is not None:
            opts.append("replace")
        return {
            "c": f"sow_and_{kind}" if self.complete else kind,
            "t": self.topic,
            "opts": ",".join(opts),
            "cid": "1",
            **more,
            **self.question(),
        }

    def question(self):
        named = {"filter": self.filter, "select": self.select}
        return {name: value for name, value in named.items() if value is not None}


@dataclass
class Holder:
    """A client that follows one topic, and what it holds because of it."""

    client: Client
    requested: Requested
    lazy: bool
    name: str = ""
    sent_all: bool = False
    held: dict = field(default_factory=dict)
    of_another_shape: set = field(default_factory=set)

    def begin(self):
        self._ask(self.requested)

    def replace(self, requested, meanwhile):
        self._ask(requested, meanwhile)

    def _ask(self, requested, meanwhile=None):
        command = requested.command(self.name or None)
        for line in (
            self.client.say(**command)
            if meanwhile is None
            else self.client.say_in_steps(meanwhile, **command)
        ):
            # Lines before the ack belong to the previous request.
            if line["c"] == "ack":
                assert line["status"] == "success", line
                self._turn_to(requested, line["s"])
            self.hear(line)

    def _turn_to(self, requested, name):
        if requested.select != self.requested.select:
            self.of_another_shape = set(self.held)
        # What never said that records leave may have left some behind.
        self.sent_all = requested.oof and (self.sent_all or not self.name)
        self.requested, self.name = requested, name

    def read(self):
        for line in self.client.lines():
            self.hear(line)

    def hear(self, line):
        if line["c"] not in ("sow", "p", "oof"):
            return
        key, document = line["k"], line["d"]
        if line["c"] == "oof":
            self._hear_oof(key, line)
        elif line.get("delta"):
            assert key in self.held, f"a delta of a record that is not held: {line}"
            assert document or not self.requested.no_empties, "an empty delta"
            self.held[key] = merge(dict(self.held[key]), document)
        else:
            self.held[key] = document
            self.of_another_shape.discard(key)

    def _hear_oof(self, key, line):
        if self.sent_all:
            assert key in self.held, f"an oof of a record that is not held: {line}"
            if line["reason"] != "match" and key not in self.of_another_shape:
                assert line["d"] == self.held[key], "not the last state that was sent"
        self.held.pop(key, None)

    def check(self, world):
        lines = world.client().say(c="sow", t=self.requested.topic, **self.requested.question())
        expected = {line["k"]: line["d"] for line in lines if line["c"] == "sow"}
        for key in self.held.keys() - self.of_another_shape:
            document = self.held[key]
            if self.sent_all or (self.requested.complete and key in expected):
                assert document == expected.get(key), self.requested
        if self.requested.complete:
            assert expected.keys() <= self.held.keys(), self.requested


class Run:
    """Random clients and traffic."""

    def __init__(self, seed):
        self.random = random = Random(seed)
        bound = random.choice((8, 30, 1000))
        self.world = World(*TOPICS, sessions=SessionSettings(queue_messages_max=bound))
        # What a queue merges is no state of a record.
        self.followed = FOLLOWED if bound < 1000 else (*FOLLOWED, "sums")
        self.number = 0
        self.holders = [self._holder(at) for at in range(6)]

    def _holder(self, at):
        topic = self.random.choice(self.followed)
        client = self.world.client()
        return Holder(client, Requested.at_random(self.random, topic), lazy=at % 2 == 1)

    def step(self):
        random = self.random
        act = random.choices(
            (self._publish, self._delete, self._pass, self._begin, self._replace),
            (45, 6, 20, 12, 5),
        )[0]
        act(random)
        for holder in self.holders:
            if not holder.lazy or random.random() < 0.1:
                holder.read()
        self.world.check()

    def _publish(self, random):
        documents = [self._document(random) for _ in range(random.choice((1, 1, 2, 4)))]
        topic = random.choice(("t", "t", "always"))
        expires_s = random.choice((None, None, None, 1)) if topic == "t" else None
        self.world.publish(topic, *documents, delta=random.random() < 0.3, expires_s=expires_s)

    def _document(self, random):
        self.number += 1
        document = {"id": random.randrange(5), "n": random.choice((0, self.number))}
        if random.random() < 0.8:
            document["v"] = random.randrange(10)
        if random.random() < 0.7:
            document["w"] = random.choice(
                ({"x": random.randrange(3)}, {"x": {"z": 1}}, {"x": {}}, {"y": 1}, 7, [1], {}, None)
            )
        return document

    def _delete(self, random):
        self.world.delete(random.choice(("t", "always")), f"/v > {random.randrange(10)}")

    def _pass(self, random):
        self.world.advance(random.choice((1, 50, 200, 700)) * MS)

    def _begin(self, random):
        waiting = [holder for holder in self.holders if not holder.name]
        if waiting:
            random.choice(waiting).begin()

    def _replace(self, random):
        following = [holder for holder in self.holders if holder.name]
        if following:
            holder = random.choice(following)
            oof = random.choice((True, True, None)) if holder.requested.oof else None
            requested = Requested.at_random(random, holder.requested.topic, oof)
            acts = (self._publish, self._publish, self._delete, self._pass)
            meanwhile = random.choice((None, lambda: random.choice(acts)(random)))
            holder.replace(requested, meanwhile)

    def finish(self):
        for _ in range(4):
            self.world.advance(SECOND)
            for holder in self.holders:
                holder.read()
        for holder in self.holders:
            if holder.name:
                assert holder.client.session.ended is None
                holder.check(self.world)


@pytest.fixture(params=["short", "streamed"])
def _size(request, monkeypatch):
    """Answers, and what a replacement says, are written at once, or a line or two at a time."""
    if request.param == "streamed":
        for module in (snapshot, query_results, subscription_diff):
            monkeypatch.setattr(module, "ANSWER_CHUNK_ROWS", 2)


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.usefixtures("_size")
def test_a_client_ends_with_what_a_query_answers(seed):
    run = Run(seed)
    for _ in range(100):
        run.step()
    run.finish()
