"""One address: who is let in to it, and with which parameters."""

from sow.server.http.route import READ_METHODS, Route
from tests.server.stand_ins import Served, World, stepped


@stepped
async def test_a_parameter_that_the_route_does_not_name_reaches_no_handler():
    async def handler(_request):
        raise AssertionError("reached")

    for method in READ_METHODS:
        route = Route("GET", "/x", "logon", handler, "", ("a",), ("b",))
        async with Served(World(), route) as place:
            assert (await place.ask(method, "/x?c=1")).status == 400
            assert (await place.ask(method, "/x?b=1")).status == 400
