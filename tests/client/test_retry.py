"""How a client comes back: more and more patiently, by chance a little apart, not for ever."""

import asyncio

import pytest

from sow.client import Retry


def waits(chance=lambda: 0.0, **settings):
    """The pauses before each attempt, and the seconds reported to each."""
    paused = []

    async def sleep(seconds):
        paused.append(seconds)

    async def work():
        retry = Retry(sleep=sleep, chance=chance, **settings)
        return [waited async for waited in retry.attempts()]

    reported = asyncio.run(work())
    return paused, reported


def test_waits_grow_and_end():
    paused, reported = waits(first_s=1, longest_s=4, give_up_s=12)
    assert paused == [1, 2, 4, 4, 4]
    assert reported == [1, 3, 7, 11, 15]


def test_no_time_is_no_attempt():
    assert waits(give_up_s=0) == ([], [])


@pytest.mark.parametrize(("chance", "share"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_chance_takes_away_half_of_a_wait_at_most(chance, share):
    paused, _ = waits(lambda: chance, first_s=8, longest_s=8, give_up_s=8)
    assert paused[0] == 8 * share


def test_a_minute_is_a_dozen_or_two_attempts_as_it_comes():
    assert 10 < len(waits()[0]) < 25
