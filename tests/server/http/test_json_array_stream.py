"""Descriptions are the same however many steps they take."""

import pytest

from sow.server.http.json_array_stream import answer_array
from sow.server.http.route import Route
from tests.server.stand_ins import Served, World, stepped


class Place(Served):
    """A door that describes so many things."""

    def __init__(self):
        world = World()
        super().__init__(world, Route("GET", "/things/{count}", "logon", self.answer, ""))

    async def answer(self, request):
        things = range(int(request.match_info["count"]))
        turns = self.world.driver.turns
        return await answer_array(turns, request, things, lambda at: {"at": at})


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("at_once", [1, 2, 50])
@stepped
async def test_descriptions_are_the_same_in_however_many_steps(monkeypatch, at_once, count):
    monkeypatch.setattr("sow.server.http.json_array_stream.DESCRIBED_AT_ONCE", at_once)
    async with Place() as place:
        found = (await place.get(f"/things/{count}")).json
        assert found == [{"at": at} for at in range(count)]
