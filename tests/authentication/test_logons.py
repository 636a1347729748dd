"""What goes on from one authenticator to the next; how hashing takes turns is seen in
test_authenticator.py."""

import asyncio

from sow.authentication import logons
from sow.authentication.logons import HASHED_AT_ONCE, Hashing, Known, Logons


def test_so_many_are_known(monkeypatch):
    monkeypatch.setattr(logons, "KNOWN_MAX", 2)
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
            one = asyncio.create_task(hashing.run(thread))
            for _ in range(3):
                await asyncio.sleep(0)
            one.cancel()
        last = asyncio.create_task(hashing.run(thread))
        await asyncio.sleep(0)
        assert len(begun) == HASHED_AT_ONCE
        over.set()
        assert await last
        assert len(begun) == HASHED_AT_ONCE + 1

    asyncio.run(all_leave())
