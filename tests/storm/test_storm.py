"""Every storm in a small size: its clients get what they should, and the server serves others."""

import asyncio

import pytest

from tests import forks
from tests.storm.storms import STORMS, target, weather

SOON = "<Limits><HeaderTimeout>300ms</HeaderTimeout></Limits>"


@pytest.mark.parametrize("storm", STORMS, ids=lambda storm: storm.__name__)
def test_a_small_storm_passes(storm, tmp_path):
    async def run():
        async with target(tmp_path, SOON, begin=forks.started) as server:
            found = await weather(server, storm, STORMS[storm][1])
            assert await server.ask(b"/readyz") == 200
            return found

    assert asyncio.run(run()).said
