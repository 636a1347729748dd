"""The server lets go of what nobody sends any more within a minute, until it is closed."""

import asyncio

from sow.core.cache import Cache
from sow.server.loop.cache_sweeping import CacheSweeper
from sow.server.loop.loop_latency import LoopLatency
from tests.server.stand_ins import stepped


@stepped
async def test_what_is_not_requested_for_is_gone_after_a_minute():
    few, watch = Cache(10), LoopLatency()
    swept = CacheSweeper(watch)
    for name in "abc":
        few.keep(name, name.upper(), 3)
        await asyncio.sleep(20)
        assert few.get("a") == "A"
    await asyncio.sleep(60)
    assert len(few) == 0
    swept.close()
    few.keep("a", "A", 3)
    await asyncio.sleep(60)
    assert len(few) == 1
    assert list(watch.longest_s) == ["letting go of filters"]
