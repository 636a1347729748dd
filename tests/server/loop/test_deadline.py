"""An alarm rings when it is due, and looks at the clock now and then before that."""

import asyncio

from sow.core.clock import VirtualClock
from sow.server.loop.deadline import TIMER_S_MAX, DeadlineTimer
from tests.server.stand_ins import SECOND, stepped


def rung_at(clock):
    """An alarm, and the loop's times at which it has rung."""
    times, loop = [], asyncio.get_running_loop()
    return DeadlineTimer(clock, lambda: times.append(round(loop.time(), 3))), times


@stepped
async def test_it_rings_once_at_the_time_it_was_last_set_to():
    clock = VirtualClock(100 * SECOND)
    alarm, times = rung_at(clock)
    alarm.set(103 * SECOND)
    alarm.set(102 * SECOND)
    alarm.set(102 * SECOND)
    await asyncio.sleep(5)
    assert times == [2.0]


@stepped
async def test_what_is_over_rings_at_once_and_what_is_far_away_is_looked_after():
    clock = VirtualClock(100 * SECOND)
    alarm, times = rung_at(clock)
    alarm.set(99 * SECOND)
    await asyncio.sleep(1)
    alarm.set(100_000 * SECOND)
    await asyncio.sleep(20)
    assert times == [0.0, 1.0 + TIMER_S_MAX]


@stepped
async def test_it_can_be_set_to_never_and_to_the_same_moment_again():
    alarm, times = rung_at(VirtualClock(0))
    alarm.set(SECOND)
    alarm.set(None)
    await asyncio.sleep(2)
    assert times == []
    alarm.set(SECOND)
    await asyncio.sleep(2)
    alarm.set(SECOND)
    await asyncio.sleep(2)
    assert times == [3.0, 5.0]
    alarm.set(9 * SECOND)
    alarm.cancel()
    await asyncio.sleep(20)
    assert times == [3.0, 5.0]
