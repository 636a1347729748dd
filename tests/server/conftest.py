"""The clock of nodes of a shared log that run for a test."""

import asyncio

import pytest

from sow.server.boot import log_member
from sow.server.loop.log_driver import LogDriver
from tests.server.stand_ins import SteadyLoop


@pytest.fixture
def steady(monkeypatch):
    """Leases run by a clock that stands still while the machine holds the nodes up."""

    def driver(*given, **more):
        time = asyncio.get_running_loop().time
        return LogDriver(*given, now_us=lambda: int(time() * 1e6), **more)

    monkeypatch.setattr("asyncio.events.new_event_loop", SteadyLoop)
    monkeypatch.setattr(log_member, "LogDriver", driver)
