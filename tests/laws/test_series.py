"""The law of series: events are those of a naive list, over lives, whatever is edited and retained.

A model keeps every event of a record since it came into being, and which of them are retained. Two
subscribers are compared, too: one has to have been told what was published and edited, in order;
one that begins with the last n events gets these.
"""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Series, Topic
from sow.engine.recovery.redo import stored_slices
from sow.errors import UnknownRecord
from sow.security.authorization import EVERYTHING
from sow.sessions.commands import record_ops
from sow.topic.series import Bound
from tests.effort import examples
from tests.laws.harness import SECOND, World

PRICES = Topic(
    "prices", "json", keys=("/id",), expires=True, series=Series(events_max=3, age_us=None)
)
RETAINS = [Series(3), Series(1), Series(None, 5 * SECOND), Series(4, 2 * SECOND), Series(None)]
IDS = (1, 2)
LIFETIME_S = 30.0


class Model:
    """What the events of the records are: lists of [seq, time, author, number]."""

    def __init__(self):
        self.retain = PRICES.series
        self.all = {}
        self.expires_us = {}

    def publish(self, id_, seq, time_us, author, number, expires_us):
        self.all.setdefault(id_, []).append([seq, time_us, author, number])
        self.expires_us[id_] = expires_us
        self.trim(id_)

    def trim(self, id_):
        found, most, age_us = self.all[id_], self.retain.events_max, self.retain.age_us
        if age_us is not None:
            found = [event for event in found if event[1] >= found[-1][1] - age_us]
        self.all[id_] = found[-most:] if most else found

    def remove(self, id_):
        self.all.pop(id_, None)

    def expire(self, now_us):
        for id_ in [one for one in self.all if 0 < self.expires_us[one] <= now_us]:
            self.remove(id_)


class Run:
    """A world, its model, and a subscriber who is there from its beginning."""

    def __init__(self):
        self.world, self.model = World(PRICES), Model()
        self.number = 0
        self.told = []
        self.follow()

    def follow(self):
        self.client = self.world.client()
        self.client.say(c="subscribe", t="prices")

    def publish(self, id_, author, lifetime, count):
        client = self.world.client()
        client.say(c="logon", client=author)
        more = {"x": LIFETIME_S} if lifetime else {}
        for _ in range(count):
            self.number += 1
            client.say(c="publish", t="prices", d={"id": id_, "n": self.number}, **more)
            now_us = self.world.now
            expires_us = now_us + int(LIFETIME_S * SECOND) if lifetime else 0
            seq = self.world.engine.seq
            self.model.publish(id_, seq, now_us, author, self.number, expires_us)
            self.told.append((id_, self.number, None, False))

    def edit(self, id_, place, author):
        events = self.model.all.get(id_, [])
        seq = events[place % len(events)][0] if events else 1
        self.number += 1
        topic = self.world.engine.topic("prices")
        body = json.dumps({"id": id_, "n": self.number}).encode()
        message = self.world.engine.read(topic, [body], now_us=self.world.now, author=author)
        editing = record_ops.edit(
            self.world.engine, "prices", seq, message, self.world.now, rights=lambda: EVERYTHING
        )
        if not events:
            with pytest.raises(UnknownRecord):
                run_to_completion(editing)
            return
        run_to_completion(editing)
        self.world.settle()
        is_newest = seq == events[-1][0]
        events[place % len(events)][2:] = [author, self.number]
        self.told.append((id_, self.number, seq, not is_newest))

    def delete(self, id_):
        self.world.delete("prices", f"/id = {id_}")
        self.model.remove(id_)

    def wait(self, seconds):
        self.world.advance(seconds * SECOND)
        self.model.expire(self.world.now)

    def reload(self, retain):
        self.model.retain = retain
        topic = replace(PRICES, series=retain)
        configuration = replace(self.world.configuration, topics=(topic,))
        self.world.executor.reconfigure(configuration, self.world.now)
        self.world.configuration = configuration
        self.world.settle()
        for id_ in self.model.all:
            self.model.trim(id_)

    def checkpoint(self, meanwhile):
        """Written in slices of two rows, between which something else happens."""
        seq = self.world.engine.seq
        slices = stored_slices(self.world.engine.catalog, "prices", 2)

        def cut():
            for number, part in enumerate(slices):
                yield part
                if number < len(meanwhile):
                    self.act(meanwhile[number])

        self.world.checkpoints["prices"].write(seq, cut())

    def restart(self):
        self.compare_told()
        self.world = self.world.restart()
        self.told.clear()
        self.follow()
        for id_, events in self.model.all.items():
            # What a narrower Retain has let go may be in the log still: it is retained again.
            found = self.events(id_)
            assert found[len(found) - len(events) :] == events
            self.model.all[id_] = found

    def act(self, act):
        getattr(self, act[0])(*act[1:])

    # Comparing.

    def events(self, id_):
        events = self.world.engine.topic("prices").records.events
        return [
            [event.seq, event.ts_us, event.author, json.loads(event.body)["n"]]
            for event in events.last(str(id_), 10**6)
        ]

    def compare(self):
        for id_ in IDS:
            assert self.events(id_) == self.model.all.get(id_, [])
        newest = {id_: events[-1][3] for id_, events in self.model.all.items()}
        assert {row["id"]: row["n"] for row in self.world.records("prices")} == newest
        self.world.check()

    def compare_told(self):
        lines = [line for line in self.client.lines() if line["c"] == "p"]
        assert [
            (line["d"]["id"], line["d"]["n"], line.get("seq"), line.get("past", False))
            for line in lines
        ] == self.told
        assert all(("seq" in line) == line.get("edit", False) for line in lines)
        self.told.clear()

    def compare_last(self, count):
        client = self.world.client()
        lines = client.say(c="sow_and_subscribe", t="prices", opts=f"last={count}")
        found = {}
        for line in lines:
            if line["c"] == "sow":
                found.setdefault(line["d"]["id"], []).append(line["d"]["n"])
        assert found == {
            id_: [event[3] for event in events[-count:]] for id_, events in self.model.all.items()
        }
        client.session.end("done", self.world.now)

    def compare_range(self, id_, first, count, limit):
        events = self.model.all.get(id_, [])
        start, until = (events[0][0] if events else 0) + first, first + count
        until += events[0][0] if events else 0
        wanted = [event for event in events if start <= event[0] <= until]
        by_number = self.world.engine.topic("prices").records.events.part(
            str(id_), Bound(start), Bound(until), limit
        )
        assert [event.seq for event in by_number[0]] == [one[0] for one in wanted[-limit:]]
        assert by_number[1] == (len(wanted) > limit)


ids = st.sampled_from(IDS)
changes = st.one_of(
    st.tuples(
        st.just("publish"), ids, st.sampled_from(["ann", "bob"]), st.booleans(), st.integers(1, 3)
    ),
    st.tuples(st.just("edit"), ids, st.integers(0, 9), st.sampled_from(["ann", "eve"])),
    st.tuples(st.just("delete"), ids),
    st.tuples(st.just("wait"), st.sampled_from([1, 3, 40])),
)
acts = st.one_of(
    changes,
    st.tuples(st.just("reload"), st.sampled_from(RETAINS)),
    st.tuples(st.just("checkpoint"), st.lists(changes, max_size=4)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("compare_last"), st.integers(1, 4)),
    st.tuples(
        st.just("compare_range"), ids, st.integers(0, 4), st.integers(0, 5), st.integers(1, 3)
    ),
)


@examples(60)
@given(st.lists(acts, max_size=20))
def test_events_are_those_of_a_list_over_lives(taken):
    run = Run()
    for act in [*taken, ("restart",)]:
        run.act(act)
        run.compare()
    run.compare_last(2)
    run.compare_told()
