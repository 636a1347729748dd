"""Each long run of the collector is told by its own name, and after the end none."""

import asyncio
import gc

from sow.server.loop import gc_latency
from sow.server.loop.gc_latency import COLLECTIONS, GcLatency
from sow.server.loop.loop_latency import LoopLatency
from tests.server.stand_ins import stepped


@stepped
async def test_runs_of_the_collector_are_noted_until_it_is_closed(monkeypatch):
    monkeypatch.setattr(gc_latency, "NOTED_S", -1.0)
    watch, before = LoopLatency(), len(gc.callbacks)
    garbage = GcLatency(watch)
    for generation in range(3):
        gc.collect(generation)
    assert watch.longest_s == {}, "not from within"
    await asyncio.sleep(0)
    assert watch.longest_s.keys() >= {*COLLECTIONS}
    garbage.close()
    assert len(gc.callbacks) == before


@stepped
async def test_short_runs_are_nothing_worth_a_word(monkeypatch):
    monkeypatch.setattr(gc_latency, "NOTED_S", 3600.0)
    watch = LoopLatency()
    garbage = GcLatency(watch)
    gc.collect()
    await asyncio.sleep(0)
    garbage.close()
    assert watch.longest_s == {}
