"""`/v1/topics/{topic}/rates`: two minutes of a topic's or a record's updates, a figure a second.

The figures are those of `sow.engine.rates`; here is the clock that has them taken once a second,
from when the server has its records until it stops. Who sees some records of a topic only gets no
figures of the topic: they count changes that are hidden from him.
"""

import asyncio

from aiohttp import web

from sow.engine.engine import Engine
from sow.engine.rates import RATE_STEP_US, RateKeeper
from sow.protocol.replies import timestamp
from sow.server.api.record_resource import RecordState
from sow.server.api.response_schemas import RatesAnswered
from sow.server.api.topics import TOPIC_PATH
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.responses import json_response
from sow.server.http.route import no_such_record, operation, parameters_of, route
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.queries.access_control import row_policy_for

TAKING_RATES = "taking the rates"
"""The name of this work in metrics."""


class RatesHandler:
    """`/v1/topics/{topic}/rates` of one server."""

    def __init__(self, runtime: ServerRuntime, engine: Engine) -> None:
        self._runtime = runtime
        self._engine = engine
        self._rates = RateKeeper(engine)

    def begin(self) -> None:
        """Take the figures once a second, until the runtime closes."""
        self._runtime.begin(self._take())

    async def _take(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(RATE_STEP_US / 1e6)

    async def look(self) -> None:
        """Take the figures of the seconds since the last look."""
        await self._runtime.turns.run(TAKING_RATES, self._rates.look(self._runtime.now_us()))

    @route("GET", TOPIC_PATH + "/rates", "read", "Updates in each of the last seconds", ("k",))
    @operation("get_rates", RatesAnswered)
    async def rates(self, request: web.Request) -> web.Response:
        """`GET …/rates`: up to 120 figures in and out; with `k` of one record, by its SowKey, which
        is watched from now on."""
        topic = self._engine.topic(request.match_info["topic"])
        sow_key = parameters_of(request).get("k")
        if sow_key is not None:
            records = topic.records
            slot = records.table.find(sow_key)
            if slot is None or RecordState(request, records, slot).body is None:
                raise no_such_record(topic.name, sow_key)
            identity = records.table.identities[slot] or ""
            found = self._rates.of_record(topic, identity, self._runtime.now_us())
        else:
            found = self._rates.of_topic(topic.name)
            guard = row_policy_for(permissions_of(request), topic.records)
            if guard is not None and guard.rows is not None:
                found = found._replace(taken=(), given=())
        return json_response(
            {
                "step_ms": RATE_STEP_US // 1000,
                "end": timestamp(found.end_us),
                "in": [*found.taken],
                "out": [*found.given],
            }
        )
