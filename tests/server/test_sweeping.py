"""The server lets go of what nobody sends any more within a minute, until it is closed."""

import asyncio

from sow.kept import Cache
from sow.server.step_watch import StepWatch
from sow.server.sweeping import Sweeping
from tests.server.stand_ins import stepped


@stepped
async def test_what_is_not_asked_for_is_gone_after_a_minute():
    few, watch = Cache(10), StepWatch()
    swept = Sweeping(watch)
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
