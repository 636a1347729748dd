"""Which event loop runs, and its timer: set for the next deadline, and what the log warns of."""

import asyncio
import logging
import time
from types import SimpleNamespace

import pytest

from sow.errors import ClientError
from sow.server.loop.event_loop import (
    TIMER_S_MAX,
    ClockJumps,
    DeadlineTimer,
    asyncio_loop,
    loop_factory,
    loop_name,
)
from tests.server.stand_ins import SECOND, stepped
from tests.virtual_clock import VirtualClock


class UvLoop(asyncio.SelectorEventLoop):
    """In the place of uvloop's, whose clock counts whole milliseconds."""

    __module__ = "uvloop"

    def time(self):
        return round(super().time(), 3)


def there(name):
    """As if uvloop was installed."""
    assert name == "uvloop"
    return SimpleNamespace(Loop=UvLoop)


def missing(name):
    """As if it was not."""
    raise ModuleNotFoundError(f"No module named {name!r}")


@pytest.mark.parametrize("name", [None, "uvloop"])
def test_uvloop_is_used_where_it_is_installed(name):
    loop = loop_factory(name, there)()
    assert isinstance(loop, UvLoop)
    assert loop_name(loop) == "uvloop"
    assert loop.time is time.monotonic, "a slice is shorter than two of its milliseconds"
    loop.close()


def test_without_it_the_loop_is_that_of_python():
    assert loop_factory(None, missing) is asyncio_loop


def test_asyncio_may_be_requested_for_where_uvloop_is_installed():
    assert loop_factory("asyncio", there) is asyncio_loop


def test_who_asks_for_uvloop_is_sent_how_to_have_it():
    with pytest.raises(ClientError, match=r"not installed.*sow\[uvloop\]"):
        loop_factory("uvloop", missing)


def test_a_loop_is_known_by_the_library_that_made_it():
    loop = loop_factory("asyncio")()
    assert loop_name(loop) == "asyncio"
    assert loop.time is time.monotonic, "read without a call of Python's"
    loop.close()


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


class Clock:
    """A clock of which one can say what was done to it."""

    def __init__(self):
        self.ahead, self.stepped_us = 0, 0

    def ahead_us(self):
        return self.ahead


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.WARNING, "sow")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_clock_that_was_set_back_is_sent_once_until_both_agree_again(logged):
    clock = Clock()
    watch = ClockJumps(clock)
    for clock.ahead in (0, 900_000, 7_000_000, 6_500_000):
        watch.look()
    assert len(logged()) == 1
    assert "ahead of the machine's by 7 s" in logged()[0]
    assert watch.ahead_s() == 6.5
    for clock.ahead in (500_000, 3_000_000):
        watch.look()
    assert len(logged()) == 2


def test_each_step_forward_is_sent_by_its_own_length(logged):
    clock = Clock()
    watch = ClockJumps(clock)
    for clock.stepped_us in (0, 60_000_000, 60_000_000, 65_000_000):
        watch.look()
    assert [text.split("forward by ")[1].split(",")[0] for text in logged()] == ["60 s", "5 s"]


def test_what_a_time_server_corrects_is_nobodys_concern():
    clock = Clock()
    clock.ahead = 1_000_000
    assert ClockJumps(clock).ahead_s() == 0.0
