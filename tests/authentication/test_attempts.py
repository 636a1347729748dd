"""How often somebody at an address may try."""

from sow.authentication import attempts
from sow.authentication.attempts import FREE_FAILURES, LONGEST_WAIT_US, Attempts


def test_there_are_so_many_a_second_and_as_many_at_once():
    tries = Attempts(20)
    assert [tries.wait_us("a", 0) for _ in range(20)] == [0] * 20
    wait_us = tries.wait_us("a", 0)
    assert 0 < wait_us <= 50_001
    assert tries.wait_us("b", 0) == 0
    assert tries.wait_us("a", wait_us) == 0
    assert tries.wait_us("a", wait_us) > 0


def test_each_failure_in_a_row_doubles_the_wait():
    tries, now_us, waits = Attempts(1_000_000), 0, []
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
    tries = Attempts(1)
    assert tries.wait_us("a", 10_000_000) == 0
    assert tries.wait_us("a", 5_000_000) > 0
    assert tries.wait_us("a", 5_500_000) > 0


def test_so_many_addresses_are_kept(monkeypatch):
    monkeypatch.setattr(attempts, "ADDRESSES_KEPT", 2)
    tries = Attempts(1)
    for address in "abc":
        assert tries.wait_us(address, 0) == 0
    assert tries.wait_us("c", 0) > 0
    assert tries.wait_us("b", 0) > 0
    assert tries.wait_us("a", 0) == 0, "it came longest ago"
    tries.failed("nobody", 0)
    tries.succeeded("nobody")
