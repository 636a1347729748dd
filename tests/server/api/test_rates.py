"""What is answered of the last two minutes, to whom, and that somebody takes it once a second."""

import asyncio
from urllib.parse import quote

from sow.core.security_definitions import Allow
from sow.server.api.rates import RatesHandler
from tests.server.stand_ins import (
    SECOND,
    Anybody,
    Served,
    World,
    asking,
    authenticator_of,
    routes_to,
    stepped,
)

RATES = "/v1/topics/orders/rates"


class Place(Served):
    def __init__(self, **more):
        world = World()
        self.rates = RatesHandler(world.runtime, world.engine)
        super().__init__(world, *routes_to(self.rates), **more)

    async def second(self, *bodies):
        """A second in which these are published."""
        if bodies:
            self.world.publish(*bodies)
        self.world.clock.advance(SECOND)
        await self.rates.look()

    def key(self):
        return self.world.engine.topic("orders").records.table.sow_key(0)


@stepped
async def test_two_minutes_are_answered_a_figure_a_second():
    async with Place() as place:
        await place.rates.look()
        await place.second(b'{"id":1}', b'{"id":2}')
        await place.second()
        answer = await place.get(RATES)
        assert answer.json == {
            "step_ms": 1000,
            "end": "1970-01-01T00:16:42.000000Z",
            "in": [2, 0],
            "out": [2, 0],
        }


@stepped
async def test_one_record_is_watched_from_when_it_is_asked_for():
    async with Place() as place:
        await place.second(b'{"id":1}')
        key = place.key()
        path = f"{RATES}?k={quote(key)}"
        assert (await place.get(path)).json["in"] == []
        await place.second(b'{"id":1}', b'{"id":2}')
        assert (await place.get(path)).json["in"] == [1]
        answer = await place.get(f"{RATES}?k=none")
        assert (answer.status, answer.json["reason"]) == (404, "not found")


@stepped
async def test_a_topic_that_is_not_there_has_no_rates():
    async with Place() as place:
        assert (await place.get("/v1/topics/none/rates")).status == 404


@stepped
async def test_who_sees_some_records_only_gets_no_figures_of_the_others():
    rows = Allow("orders", ("read",), filter="/id = 1")
    async with Place(authn=authenticator_of(asking(rows), lambda _by: Anybody())) as place:
        await place.rates.look()
        await place.second(b'{"id":2}')
        hidden = place.key()
        ask = {"Authorization": "Bearer ann"}
        answer = await place.get(RATES, **ask)
        assert (answer.status, answer.json["in"], answer.json["out"]) == (200, [], [])
        assert (await place.get(f"{RATES}?k={quote(hidden)}", **ask)).status == 404


@stepped
async def test_somebody_looks_once_a_second_until_the_server_stops():
    async with Place() as place:
        place.rates.begin()
        await asyncio.sleep(0.5)
        for number in range(3):
            place.world.publish(b'{"id":%d}' % number)
            place.world.clock.advance(SECOND)
            await asyncio.sleep(1)
        assert (await place.get(RATES)).json["in"] == [1, 1, 1]
