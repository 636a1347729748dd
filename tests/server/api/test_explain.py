"""The story of a record: its windows, what is pending, and which followers get it."""

from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic
from sow.core.keys import sow_key
from sow.security.authorization import EVERYTHING
from sow.server.api.explain import ExplainHandler
from tests.laws.guarding import reading, rights
from tests.server.stand_ins import ORDERS, SECOND, Served, World, routes_to, stepped

COPY = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)
DEAR = replace(COPY, name="dear-C", filter="/px > 10")
TICKING = replace(COPY, name="ticking-C", schedule="tick")
PASSING = replace(ORDERS, name="passing", durability="transient")
OF_PASSING = replace(COPY, name="passing-C", underlying="passing")
PATH = "/v1/topics/{topic}/records/{key}/why"


class Place(Served):
    def __init__(self):
        world = World(ORDERS, PASSING, COPY, DEAR, TICKING, OF_PASSING)
        self.door = ExplainHandler(world.runtime, world.engine)
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
            self.door._explain(self.world.engine.topic(topic), self.key(1), given)
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
        with pytest.raises(Exception, match="has no record"):
            place.seen_by(some)
