"""What goes on from one authenticator to the next; how hashing takes turns is seen in
test_authenticator.py."""

import asyncio

import pytest

from sow.errors import TooManyLogons
from sow.security.authentication import session_cache
from sow.security.authentication.session_cache import (
    FREE_FAILURES,
    HASHED_AT_ONCE,
    LONGEST_WAIT_US,
    Attempts,
    Hashing,
    Known,
    Logons,
    network_of,
)


def test_so_many_are_known(monkeypatch):
    monkeypatch.setattr(session_cache, "KNOWN_MAX", 2)
    known = Known()
    for at in range(3):
        known.put(known.sum_of(str(at)), at, None)
    assert [known.get(known.sum_of(str(at)), 0) for at in range(3)] == [None, 1, 2]
    assert known.sum_of("a", "bc") != known.sum_of("ab", "c")
    assert known.sum_of("a") != Known().sum_of("a")


def test_what_is_known_for_a_while_is_not_known_after_it():
    known = Known()
    known.put(b"x", "ann", 10)
    assert known.get(b"x", 9) == "ann"
    assert known.get(b"x", 10) is None


def test_attempts_are_bounded_where_it_is_said():
    assert Logons().attempts is None
    assert Logons(lambda: 20).attempts.wait_us("a", 0) == 0


def test_who_goes_away_leaves_no_room_for_more_threads():
    async def all_leave():
        hashing, begun, over = Hashing(), [], asyncio.Event()

        async def thread():
            begun.append(True)
            return await over.wait()

        for _ in range(3 * HASHED_AT_ONCE):
            one = asyncio.create_task(hashing.run("", thread))
            for _ in range(3):
                await asyncio.sleep(0)
            one.cancel()
        last = asyncio.create_task(hashing.run("", thread))
        await asyncio.sleep(0)
        assert len(begun) == HASHED_AT_ONCE
        over.set()
        assert await last
        assert len(begun) == HASHED_AT_ONCE + 1

    asyncio.run(all_leave())


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


class Threads:
    """Threads that end when they are told to; `begun` says whose each was, in their order."""

    def __init__(self):
        self.hashing, self.begun, self.over = Hashing(), [], []

    async def come(self, *addresses):
        """A logon from each address, one after the other."""
        coming = [asyncio.create_task(self._one(address)) for address in addresses]
        await settle()
        return coming

    def _one(self, address):
        async def thread():
            self.begun.append(address)
            over = asyncio.get_running_loop().create_future()
            self.over.append(over)
            return await over

        return self.hashing.run(address, thread)

    async def end(self, count):
        for _ in range(count):
            self.over.pop(0).set_result(True)
            await settle()


GUESSER, OTHER = "192.0.2.7", "192.0.2.8"


def test_addresses_take_turns_however_many_logons_one_of_them_has():
    async def work():
        threads = Threads()
        waiting = await threads.come(*[GUESSER] * 60, OTHER, *[GUESSER] * 3, "192.0.2.9", OTHER)
        await threads.end(5)
        assert threads.begun == [
            *[GUESSER] * HASHED_AT_ONCE, GUESSER, OTHER, "192.0.2.9", GUESSER, OTHER
        ]  # fmt: skip
        while threads.over:
            await threads.end(1)
        assert all(await asyncio.gather(*waiting))
        await threads.come(OTHER, OTHER)
        assert threads.begun[-2:] == [OTHER, OTHER], "and nothing is taken"

    asyncio.run(work())


def test_the_addresses_of_one_network_have_one_turn():
    async def work():
        threads = Threads()
        network = [f"2001:db8:0:1::{host:x}" for host in range(20)]
        await threads.come(*network, "2001:db8:0:2::1", "::ffff:192.0.2.8", OTHER)
        await threads.end(4)
        own, other, mapped, last = threads.begun[HASHED_AT_ONCE:]
        assert own.startswith("2001:db8:0:1:")
        assert [other, mapped] == ["2001:db8:0:2::1", "::ffff:192.0.2.8"]
        assert last.startswith("2001:db8:0:1:")

    asyncio.run(work())


def test_who_fills_the_queue_makes_room_for_another_address(monkeypatch):
    monkeypatch.setattr(session_cache, "WAITING_MAX", 4)

    async def work():
        threads = Threads()
        waiting = await threads.come(*[GUESSER] * (HASHED_AT_ONCE + 4))
        (refused,) = await threads.come(GUESSER)
        with pytest.raises(TooManyLogons):
            await refused
        others = await threads.come(OTHER, OTHER, OTHER)
        for one in (waiting[-1], waiting[-2], others[-1]):
            with pytest.raises(TooManyLogons):
                await one
        await threads.end(6)
        assert threads.begun[HASHED_AT_ONCE:] == [GUESSER, OTHER, GUESSER, OTHER]
        assert await asyncio.gather(*waiting[:-2], *others[:-1]) == [True] * 6

    asyncio.run(work())


def test_who_goes_away_while_he_waits_takes_nobodys_turn():
    async def work():
        threads = Threads()
        waiting = await threads.come(*[GUESSER] * HASHED_AT_ONCE, OTHER, GUESSER, OTHER)
        threads.over.pop(0).set_result(True)
        await asyncio.sleep(0)  # the turn is given, and not begun
        for one in waiting[-3::2]:
            one.cancel()
        await settle()
        assert threads.begun == [*[GUESSER] * HASHED_AT_ONCE, GUESSER]
        await threads.end(2)
        await threads.come(OTHER)
        assert threads.begun[-1] == OTHER

    asyncio.run(work())


def test_there_are_so_many_a_second_and_as_many_at_once():
    tries = Attempts(lambda: 20)
    assert [tries.wait_us("a", 0) for _ in range(20)] == [0] * 20
    wait_us = tries.wait_us("a", 0)
    assert 0 < wait_us <= 50_001
    assert tries.wait_us("b", 0) == 0
    assert tries.wait_us("a", wait_us) == 0
    assert tries.wait_us("a", wait_us) > 0


def test_each_failure_in_a_row_doubles_the_wait():
    tries, now_us, waits = Attempts(lambda: 1_000_000), 0, []
    for _ in range(14):
        wait_us = tries.wait_us("a", now_us)
        waits.append(wait_us)
        now_us += wait_us
        assert wait_us == 0 or tries.wait_us("a", now_us) == 0
        tries.failed("a", now_us)
    assert waits[: FREE_FAILURES + 1] == [0] * (FREE_FAILURES + 1)
    assert waits[FREE_FAILURES + 1 : FREE_FAILURES + 4] == [100_000, 200_000, 400_000]
    assert waits[-1] == LONGEST_WAIT_US
    tries.wait_us("a", now_us + LONGEST_WAIT_US)
    tries.succeeded("a")
    tries.failed("a", now_us + LONGEST_WAIT_US)
    assert tries.wait_us("a", now_us + LONGEST_WAIT_US) == 0


def test_a_clock_that_steps_back_gives_nothing_away():
    tries = Attempts(lambda: 1)
    assert tries.wait_us("a", 10_000_000) == 0
    assert tries.wait_us("a", 5_000_000) > 0
    assert tries.wait_us("a", 5_500_000) > 0


def test_so_many_addresses_are_kept(monkeypatch):
    monkeypatch.setattr(session_cache, "ADDRESSES_KEPT", 2)
    tries = Attempts(lambda: 1)
    for address in "abc":
        assert tries.wait_us(address, 0) == 0
    assert tries.wait_us("c", 0) > 0
    assert tries.wait_us("b", 0) > 0
    assert tries.wait_us("a", 0) == 0, "it came longest ago"
    tries.failed("nobody", 0)
    tries.succeeded("nobody")


def test_who_has_a_network_has_the_attempts_of_one_address():
    here = Attempts(lambda: 2)
    waits = [here.wait_us(f"2001:db8:0:7::{at:x}", 0) for at in range(4)]
    assert [wait > 0 for wait in waits] == [False, False, True, True]
    for other in ("2001:db8:0:8::1", "192.0.2.1", "::ffff:192.0.2.2", "fe80::1", "fe80::2", ""):
        assert here.wait_us(other, 0) == 0
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"


def test_how_many_there_are_may_change_at_any_time():
    most = 1
    tries = Attempts(lambda: most)
    assert tries.wait_us("a", 0) == 0
    assert tries.wait_us("a", 0) > 0
    most = 100
    assert tries.wait_us("a", 10_000) == 0
    assert [tries.wait_us("a", 2_000_000) for _ in range(100)] == [0] * 100
    most = 1
    assert tries.wait_us("a", 3_000_000) == 0
    assert tries.wait_us("a", 3_000_000) > 0, "what was left to it is not"
