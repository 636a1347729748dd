"""A query of a view has all that was acknowledged before it began, whatever others do meanwhile.

Publishes in slices, commits and queries go on in steps, in an order of chance; views are released a
few rows at a time. An acknowledged row stands in every later answer, of views, views of views,
joins and groups that clients ask for, and no answer has what nobody has published.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import pytest

from sow.core.definitions import WRITES, WRITES_BEFORE, Join, Topic, View
from sow.protocol.publish_batching import read_frames
from sow.query import Query
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from sow.sessions.queries.query_results import execute_query
from tests.effort import seeds
from tests.laws.harness import World

TICKS = Topic("ticks", "json", keys=("/nr",), hash_indexes=(("/place",),))
PLACES = Topic("places", "json", keys=("/place",))
NAMES = "abc"


def counted(name, of, n="COUNT(/nr)"):
    return View(name, "json", of, ("/place", f"{n} AS /n"), ("/place",))


EACH = View("each", "json", ("ticks",), ("/nr", "MAX(/place) AS /place"), ("/nr",))
VIEWS = (
    counted("by", ("ticks",)),
    EACH,
    counted("above", ("each",)),
    counted("top", ("by",), n="MAX(/n)"),
    View(
        "joined", "json", ("ticks", "places"),
        ("[places]./place AS /place", "COUNT([ticks]./nr) AS /n"), ("[places]./place",),
        joins=(Join("ticks", "/place", "places", "/place"),),
    ),
)  # fmt: skip
GROUPS = {
    f"groups of {topic}": {"t": topic, "opts": f"projection=[{n} AS /n,/place],grouping=[/place]"}
    for topic, n in (("ticks", "COUNT(/nr)"), ("each", "COUNT(/nr)"), ("top", "MAX(/n)"))
}


@dataclass(eq=False)
class Act:
    """Something under way: its steps, who does it, and what is done when it is over."""

    steps: Any
    who: Any
    end: Any
    begun: Counter = field(default_factory=Counter)


class Server:
    """A world, and what goes on in it."""

    def __init__(self, seed):
        self.chance, self.world = Random(seed), World(TICKS, PLACES, *VIEWS, WRITES, WRITES_BEFORE)
        self.numbers, self.epochs = count(1), count(1)
        self.acts: list[Act] = []
        self.published, self.acknowledged = Counter(), Counter()
        self.answers = 0

    def rows(self, most):
        numbers = [next(self.numbers) for _ in range(self.chance.randint(1, most))]
        rows = [{"nr": number, "place": self.chance.choice(NAMES)} for number in numbers]
        self.published.update(row["place"] for row in rows)
        return rows

    def is_busy(self, who):
        return any(act.who == who for act in self.acts)

    def publish(self, who):
        rows = self.rows(20)
        head = {"c": "publish", "t": "ticks", "n": len(rows), "cid": "1", "a": "processed"}
        frame = "\n".join(map(json.dumps, (head, *rows))).encode()
        session, now = self.world.client().session, lambda: self.world.now
        steps = self.world.executor.carry_out(session, read_frames([frame]), now)
        self._begin(steps, who, rows)

    def commit(self):
        rows = self.rows(12)
        bodies = [json.dumps(row).encode() for row in rows]
        writes = StagedWrites(self.world.engine)
        staged = StagedRows(["publish"] * len(rows), [None] * len(rows), bodies)
        steps, _ = writes.read(writes.topic("ticks"), staged)
        applying = writes.applying("w", next(self.epochs), "ticks", steps, self.world.now)
        self._begin(applying, "commit", rows)

    def _begin(self, steps, who, rows):
        places = Counter(row["place"] for row in rows)
        self.acts.append(Act(steps, who, lambda _: self.acknowledged.update(places)))

    def query(self, name):
        least = Counter(self.acknowledged)

        def end(found):
            rows = [json.loads(body) for body in found.rows.part(0, len(found.rows)).bodies]
            self._check(name, rows, least)

        self.acts.append(Act(execute_query(self.world.engine, name, Query()), name, end))

    def group(self, name):
        least, client = Counter(self.acknowledged), self.world.client()
        frame = json.dumps({"c": "sow", "cid": "1", **GROUPS[name]}).encode()
        reads, now = read_frames([frame]), lambda: self.world.now

        def end(_):
            self.world.settle()
            self._check(name, [line["d"] for line in client.lines() if line["c"] == "sow"], least)

        self.acts.append(Act(self.world.executor.carry_out(client.session, reads, now), name, end))

    def _check(self, name, rows, least):
        found = Counter()
        for row in rows:
            found[row["place"]] += row.get("n", 1)
        self.answers += 1
        assert found >= least, f"{name} lacks what was acknowledged: {found}, not {least}"
        assert found <= self.published, f"{name} has what nobody has published"

    def go_on(self, act):
        """A step; returns whether it did anything."""
        try:
            return not next(act.steps)
        except StopIteration as over:
            self.acts.remove(act)
            act.end(over.value)
            return True

    def turn(self):
        """Something that happens."""
        chance = self.chance.random()
        who = self.chance.randrange(3)
        asked = self.chance.choice([*(view.name for view in VIEWS), *GROUPS])
        if chance < 0.12 and not self.is_busy(who):
            self.publish(who)
        elif chance < 0.15 and not self.is_busy("commit"):
            self.commit()
        elif chance < 0.25 and not self.is_busy(asked):
            self.group(asked) if asked in GROUPS else self.query(asked)
        elif chance < 0.35:
            self.world.settle_once()
        elif chance < 0.38:
            self.world.advance(self.chance.choice([1000, 100_000, 700_000]))
        elif self.acts:
            for act in [self.chance.choice(self.acts)] if chance < 0.7 else list(self.acts):
                self.go_on(act)

    def end(self):
        """Run what is under way to its end; time passes where all wait for it."""
        while self.acts:
            went_on = [self.go_on(act) for act in list(self.acts)]
            if not any(went_on):
                self.world.advance(100_000)
            self.world.settle_once()
        self.world.settle()
        self.world.check()


@pytest.mark.parametrize("seed", seeds(20))
def test_a_query_has_what_was_acknowledged_before_it_began(seed, monkeypatch):
    server = Server(seed)
    for name, values in (
        ("sow.engine.bulk_publish.SLICE_ROWS", (2, 5)),
        ("sow.sessions.commands.commit_plan.STORED_AT_ONCE", (1, 3)),
        ("sow.sessions.commands.staged_writes.WAITED_ROWS_MAX", (0, 3, 4000)),
        ("sow.engine.views.ROWS_AT_ONCE", (2, 5, 500)),
        ("sow.engine.output.CAUGHT_UP_US", (20, 2000)),
        ("sow.topic.views.view.RELEASED_AT_ONCE", (2, 5, 250)),
    ):
        monkeypatch.setattr(name, server.chance.choice(values))
    server.world.publish("places", *[{"place": name} for name in NAMES])
    for _ in range(200):
        server.turn()
    server.end()
    for name in (*(view.name for view in VIEWS), *GROUPS):
        server.group(name) if name in GROUPS else server.query(name)
    server.end()
    assert server.answers > len(VIEWS)
