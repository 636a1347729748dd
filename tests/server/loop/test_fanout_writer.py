"""Many sessions are written to in turns, each once for all that it was told."""

import asyncio

import pytest

from sow.server.loop.fanout_writer import WRITTEN_AT_ONCE, WRITTEN_BETWEEN_LOOKS, FanoutWriter
from sow.server.loop.latency import LoopLatency
from sow.server.loop.scheduler import FairScheduler
from tests.server.stand_ins import stepped, turns


class Written:
    """Who was written to, with a loop that gives one step in each turn."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr("sow.server.loop.scheduler.SLICE_S", 0.0)
        self.names = []
        self.writing = FanoutWriter(FairScheduler(LoopLatency(), lambda: None), self.names.append)


@stepped
async def test_a_hundred_are_written_to_at_once_and_the_others_in_turns(monkeypatch):
    written = Written(monkeypatch)
    everybody = [f"s{number}" for number in range(WRITTEN_AT_ONCE + 50)]
    written.writing.begin(everybody, 0.0)
    assert written.names == everybody[:WRITTEN_AT_ONCE]
    lengths = []
    while len(written.names) < len(everybody):
        await turns(1)
        lengths.append(len(written.names))
    assert len(lengths) == 50 / WRITTEN_BETWEEN_LOOKS, "so many in each"
    assert written.names == everybody
    assert sum(written.writing.times.counts) == len(everybody)


@stepped
async def test_who_waits_and_is_sent_more_is_written_to_once(monkeypatch):
    written = Written(monkeypatch)
    everybody = [f"s{number}" for number in range(WRITTEN_AT_ONCE + 2)]
    written.writing.begin(everybody, 0.0)
    written.writing.begin([everybody[-1], "new", everybody[0]], 0.0)
    await turns(10)
    assert written.names == [*everybody, "new", everybody[0]]
    written.writing.begin(["again"], None)
    assert written.names[-1] == "again"


@stepped
async def test_at_the_end_nobody_is_left_out(monkeypatch):
    written = Written(monkeypatch)
    everybody = [f"s{number}" for number in range(WRITTEN_AT_ONCE + 50)]
    written.writing.begin(everybody, 0.0)
    written.writing.finish()
    await turns(3)
    assert written.names == everybody


@stepped
async def test_a_session_that_fails_keeps_nobody_else_waiting(monkeypatch):
    written = Written(monkeypatch)
    everybody = [f"s{number}" for number in range(WRITTEN_AT_ONCE + 3)]

    def write(name):
        if name in (everybody[1], everybody[-2]):
            raise RuntimeError(name)
        written.names.append(name)

    writing = FanoutWriter(FairScheduler(LoopLatency(), lambda: None), write)
    with pytest.raises(RuntimeError):
        writing.begin(everybody, 0.0)
    failed = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))
    await turns(30)
    writing.begin(["later"], 0.0)
    await turns(10)
    assert written.names == [everybody[0], *everybody[2:-2], everybody[-1], "later"]
    assert len(failed) == 1
