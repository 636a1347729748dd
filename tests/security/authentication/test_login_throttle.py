"""How often somebody at an address may try."""

from sow.security.authentication import login_throttle
from sow.security.authentication.login_throttle import (
    FREE_FAILURES,
    LONGEST_WAIT_US,
    Attempts,
    network_of,
)


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
    monkeypatch.setattr(login_throttle, "ADDRESSES_KEPT", 2)
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
