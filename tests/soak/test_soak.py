"""A small soak: two lives of some rounds, in which nothing grows and nothing is lost."""

import asyncio

from tests import forks
from tests.soak import bounds
from tests.soak.soak import FILES_MORE_MAX, GROWN_BYTES_MAX, LONGER_S_MAX, SMALL, Look, Soak, faults


def test_a_small_soak_passes(tmp_path):
    soak = Soak(tmp_path, SMALL, forks.started)

    async def run():
        return [
            await soak.live(lambda: soak.rounds >= 2),
            await soak.live(lambda: soak.rounds >= 3),
        ]

    lives = asyncio.run(run())
    assert [len(looks) for looks in lives] == [2, 1]
    # How long a step takes says how busy the machine is.
    looks = [[look._replace(longest_s=0.0) for look in life] for life in lives]
    assert [list(faults(life)) for life in looks] == [[], []]


def test_what_grows_is_found():
    flat = Look(100 << 20, 30, 0.01)
    grown = flat._replace(memory_bytes=flat.memory_bytes + GROWN_BYTES_MAX + 1)
    leaking = flat._replace(files=flat.files + FILES_MORE_MAX + 1)
    assert list(faults([flat, flat])) == []
    assert len(list(faults([flat, flat, grown]))) == 1
    assert len(list(faults([flat, leaking]))) == 1
    longer = flat._replace(longest_s=flat.longest_s + LONGER_S_MAX + 0.001, longest="a query")
    assert list(faults([flat, longer])) == [
        "round 2: a query took 511 ms, no step over 10 ms in the first"
    ]


def test_a_small_soak_of_bounds_stays_under_the_stated_sum(tmp_path):
    soak = bounds.Bounds(tmp_path, bounds.SMALL, forks.started)

    async def run():
        return [
            await soak.live(lambda: soak.rounds >= 2),
            await soak.live(lambda: soak.rounds >= 3),
        ]

    for looks in asyncio.run(run()):
        assert list(bounds.faults(looks)) == []
        assert max(look.queue_bytes for look in looks) > 0
        assert all(look.queue_bytes <= look.limit_bytes for look in looks)


def test_more_than_the_stated_sum_is_found():
    within = bounds.Look(100, 100.0, 1.0, 2.0)
    assert list(bounds.faults([within])) == []
    assert len(list(bounds.faults([within, within._replace(memory_bytes=101)]))) == 1
