"""What travels: an exchange for each route, and none besides."""

import msgspec

from sow.core.media_types import JSON
from sow.server.api.openapi_examples import EXCHANGES
from sow.server.boot.routes import routes
from tests.server.api.test_openapi import TABLE


def test_each_route_has_its_exchange():
    assert {f"{route.method} {route.path}" for route in TABLE} == EXCHANGES.keys()
    assert routes.__module__ == "sow.server.boot.routes"


def test_what_is_json_has_a_type_that_can_be_read():
    for exchange in EXCHANGES.values():
        msgspec.json.Decoder(exchange.answer)
        msgspec.json.Decoder(exchange.body)
        assert (JSON in exchange.answers) or exchange.answer is not None
