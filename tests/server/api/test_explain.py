"""The story of a record: its windows, what is pending, and which followers get it."""

import random
from dataclasses import replace

import pytest

from conflated_topics import FocusedConflator, PerKey, Tick
from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic
from sow.core.keys import sow_key
from sow.security.authorization import EVERYTHING
from sow.server.api.explain import ExplainHandler, windows_of
from sow.server.api.explain_past import RecordUpdate
from sow.server.api.snapshots import AsOfQueries
from tests.laws.guarding import reading, rights
from tests.server.stand_ins import ORDERS, SECOND, Served, World, routes_to, stepped

INTERVAL_US = 1000
SCHEDULES = {"per-key": PerKey, "tick": Tick}


def came(*times_us, counts=None):
    passes = counts or [True] * len(times_us)
    return [
        RecordUpdate(n, at, ok) for n, (at, ok) in enumerate(zip(times_us, passes, strict=True), 1)
    ]


def windows(updates, schedule="per-key", since_us=None):
    found = windows_of(updates, schedule, INTERVAL_US, since_us)
    return [(one.opened_us, one.ends_us, [u.bookmark for u in one.updates]) for one in found]


def test_a_window_opens_at_its_first_update_and_ends_an_interval_later():
    updates = came(100, 500, 1099, 1100, 5000)
    assert windows(updates) == [(100, 1100, [1, 2, 3]), (1100, 2100, [4]), (5000, 6000, [5])]


def test_a_tick_ends_windows_at_multiples_of_the_interval():
    updates = came(100, 999, 1000, 5000)
    assert windows(updates, "tick") == [(100, 1000, [1, 2]), (1000, 2000, [3]), (5000, 6000, [4])]


def test_what_does_not_pass_opens_a_window_only_where_it_takes_something_away():
    updates = came(100, 3000, 6000, counts=[True, False, False])
    assert windows(updates) == [(100, 1100, [1]), (3000, 4000, [2])]


def test_where_windows_touch_those_before_a_pause_are_not_sent():
    updates = came(1500, 2400, 3300, 5000, 5100)
    assert windows(updates, since_us=1000) == [(5000, 6000, [4, 5])]
    assert windows(updates, since_us=500)[0] == (1500, 2500, [1, 2])
    assert windows(came(1500, 2400), since_us=1000) == []


def test_after_a_pause_it_is_known_what_the_last_update_left_there():
    """A record that is removed and published again each time, after a pause: of the first removal
    nobody knows whether it takes anything away, of the second one it is plain."""
    updates = came(1500, 1510, 5000, 5010, 9000, counts=[False, True] * 2 + [True])
    for schedule in SCHEDULES:
        assert [bookmarks for *_, bookmarks in windows(updates, schedule, since_us=1000)][-2:] == [
            [3, 4],
            [5],
        ]


def cut(updates, schedule):
    """What the conflator makes of them: the updates that each release consists of."""
    held = set()
    conflator = FocusedConflator(
        SCHEDULES[schedule](INTERVAL_US), held.__contains__, lambda a, b: a + b
    )
    found = []

    def release(until_us):
        while (due_us := conflator.due_us()) is not None and due_us <= until_us:
            values, removals = conflator.take(due_us)
            held.update(key for key, _ in values)
            found.extend(value for _, value in values)
            held.difference_update(one.key for one in removals)
            found.extend([one.value[-1:] for one in removals])

    for one in updates:
        release(one.at_us)
        conflator.offer(["k"], [(one.bookmark,)], one.at_us, [one.counts])
    release(10**9)
    return found


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_law_they_are_those_of_the_conflator(schedule):
    for seed in range(300):
        assert worked_out(seed, schedule) == by_conflator(seed, schedule), seed


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_law_who_has_read_less_of_the_log_says_less_and_nothing_else(schedule):
    for seed in range(300):
        updates, pick = drawn(seed, passing=0.6), random.Random(seed)
        first = pick.randrange(len(updates))
        since_us = updates[first - 1].at_us if first else 0
        some = windows_of(updates[first:], schedule, INTERVAL_US, since_us)
        assert some == windows_of(updates, schedule, INTERVAL_US, None)[-len(some) or 10**9 :], seed


def drawn(seed, passing=1.0):
    pick = random.Random(seed)
    times = sorted(pick.sample(range(1, 12_000), pick.randint(1, 25)))
    return came(*times, counts=[pick.random() < passing for _ in times])


def worked_out(seed, schedule):
    return [tuple(u.bookmark for u in one.updates)
            for one in windows_of(drawn(seed), schedule, INTERVAL_US, None)]  # fmt: skip


def by_conflator(seed, schedule):
    return cut(drawn(seed), schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_law_can_fail(schedule, monkeypatch):
    """Planted: windows that each update makes longer, as no conflated topic has them."""
    real = windows_of
    monkeypatch.setitem(
        globals(),
        "windows_of",
        lambda came, kind, interval, since: real(came, kind, interval + 1, since),
    )
    with pytest.raises(AssertionError):
        test_law_they_are_those_of_the_conflator(schedule)


COPY = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)
DEAR = replace(COPY, name="dear-C", filter="/px > 10")
TICKING = replace(COPY, name="ticking-C", schedule="tick")
PASSING = replace(ORDERS, name="passing", durability="transient")
OF_PASSING = replace(COPY, name="passing-C", underlying="passing")
PATH = "/v1/topics/{topic}/records/{key}/why"


class Place(Served):
    def __init__(self):
        world = World(ORDERS, PASSING, COPY, DEAR, TICKING, OF_PASSING)
        past = AsOfQueries(world.runtime, world.executor.subscriptions.past)
        self.door = ExplainHandler(world.runtime, world.executor, past)
        super().__init__(world, *routes_to(self.door))

    def at(self, seconds, *bodies, topic="orders"):
        """Let time pass up to so many seconds, and publish."""
        clock, engine = self.world.clock, self.world.engine
        until_us = 1_000 * SECOND + round(seconds * SECOND)
        clock.advance(until_us - clock.now_us())
        engine.advance(until_us)
        if bodies:
            self.world.publish(*bodies, topic=topic)

    def key(self, number, topic="orders"):
        return str(sow_key(self.world.engine.topic(topic).records.domain, str(number)))

    async def why(self, topic, number=1, of="orders"):
        await self.world.runtime.durable()
        return await self.get(f"/v1/topics/{topic}/records/{self.key(number, of)}/why")

    def seen_by(self, given, topic="orders-C"):
        return run_to_completion(
            self.door._explain(self.world.engine.topic(topic), self.key(1), given, "1")
        )


@stepped
async def test_what_waits_and_what_became_one_is_sent():
    async with Place() as place:
        place.at(0.0, b'{"id":1,"px":1}')
        place.at(0.3, b'{"id":1,"px":2}', b'{"id":2,"px":2}')
        found = (await place.why("orders-C")).json
        assert (found["held"], found["waits"]) == (None, True)
        assert found["windows"][0]["updates"] == 2
        assert found["why"][0] == "orders-C does not have it yet: it is sent when its window ends"
        assert found["why"][1].startswith("2 wait in a window from 1970-01-01T00:16:40")
        place.at(1.5, b'{"id":1,"px":3}')
        found = (await place.why("orders-C")).json
        assert found["held"]["bookmark"] == "2"
        assert [window["bookmarks"] for window in found["windows"]] == [["4"], ["1", "2"]]
        assert found["why"][0].startswith("what orders-C holds is 2 updates as one, 1 to 2, which")
        assert found["why"][1].startswith("1 waits in a window from ")
        assert (found["underlying"], found["newest"]["bookmark"]) == ("orders", "4")


@stepped
async def test_a_record_that_is_quiet_keeps_the_story_of_its_last_window():
    async with Place() as place:
        place.at(0.0, b'{"id":1,"px":1}')
        place.at(500.0, b'{"id":2}')
        found = (await place.why("orders-C")).json
        assert found["why"] == [
            "what orders-C holds is update 1, alone in its window, which ended "
            "1970-01-01T00:16:41.000000Z"
        ]


@stepped
async def test_what_the_filter_keeps_out_is_said():
    async with Place() as place:
        place.at(0.0, b'{"id":1,"px":1}')
        found = (await place.why("dear-C")).json
        assert (found["held"], found["windows"]) == (None, [])
        assert found["why"] == ["dear-C does not have it: it does not match the topic's Filter"]


@stepped
async def test_windows_of_ticks_end_together():
    async with Place() as place:
        place.at(0.4, b'{"id":1,"px":1}')
        (window,) = (await place.why("ticking-C")).json["windows"]
        assert window["ends"] == "1970-01-01T00:16:41.000000Z"


@stepped
async def test_updates_that_never_pause_are_sent_without_a_guess():
    async with Place() as place:
        for tenth in range(0, 300, 9):
            place.at(tenth / 10, b'{"id":1,"px":%d}' % tenth)
        found = (await place.why("orders-C")).json
        assert found["windows"] == []
        assert "the start of its window is not known" in found["why"][-1]


@stepped
async def test_a_topic_that_is_not_conflated_and_one_without_a_log_say_so():
    async with Place() as place:
        place.at(0.0, b'{"id":1}')
        place.at(0.0, b'{"id":1}', topic="passing")
        found = (await place.why("orders")).json
        assert found["why"] == ["orders is not conflated: each update is sent as it comes"]
        found = (await place.why("passing-C", of="passing")).json
        assert found["why"] == ["the updates of passing are in no log, and so cannot be shown"]
        assert found["windows"] is None


@stepped
async def test_a_record_that_nobody_has_is_not_there():
    async with Place() as place:
        assert (await place.why("orders-C", 7)).status == 404


@stepped
async def test_who_may_not_see_all_is_not_sent_of_updates():
    async with Place() as place:
        place.at(0.0, b'{"id":1,"px":1}')
        place.at(1.5)
        await place.world.runtime.durable()
        assert place.seen_by(EVERYTHING)["windows"]
        found = place.seen_by(rights(reading("orders-C")))
        assert (found["windows"], found["underlying"], found["newest"]) == (None, None, None)
        assert found["why"] == [
            "you may not read its whole underlying topic, and so not see which updates became one"
        ]
        some = rights(reading(".*", filter="/px > 5"))
        with pytest.raises(Exception, match="has no such record"):
            place.seen_by(some)
