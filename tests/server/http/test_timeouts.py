"""Timeouts: bytes extend a deadline, and an idle connection is closed."""

from sow.core.definitions import Limits
from sow.server.http.timeouts import BYTES_PER_S_MIN, IdleTimer, MinRateDeadline


def test_the_silent_are_given_up_after_one_idle_time():
    assert MinRateDeadline(100.0, 60.0).until_s == 160.0


def test_a_slow_line_may_take_as_long_as_its_body_needs():
    patience, now_s = MinRateDeadline(0.0, 60.0), 0.0
    for _ in range(3600):
        now_s += 1
        assert now_s < patience.until_s
        patience.on_bytes(now_s, BYTES_PER_S_MIN)
    assert patience.until_s == now_s + 60


def test_a_byte_now_and_then_does_not_buy_time():
    patience, now_s = MinRateDeadline(0.0, 60.0), 0.0
    while now_s < patience.until_s:
        now_s += 1
        patience.on_bytes(now_s, 1)
    assert now_s == 61


def test_much_at_once_buys_no_more_than_one_idle_time():
    patience = MinRateDeadline(0.0, 60.0)
    patience.on_bytes(1.0, 64 << 20)
    assert patience.until_s == 61.0


LIMITS = Limits(header_timeout_us=10_000_000, idle_timeout_us=60_000_000)


def test_who_says_nothing_is_given_up_after_the_idle_time():
    assert IdleTimer(100.0).due_s(LIMITS) == 160.0


def test_a_header_counts_from_its_first_byte_however_many_follow():
    silence = IdleTimer(0.0)
    for now_s in (55.0, 57.0, 64.0):
        silence.on_bytes(now_s)
    assert silence.due_s(LIMITS) == 65.0


def test_a_request_under_way_is_no_silence_and_time_begins_anew_after_it():
    silence = IdleTimer(0.0)
    silence.on_bytes(1.0)
    silence.begin()
    silence.on_bytes(30.0)
    assert silence.due_s(LIMITS) is None
    silence.end(500.0)
    assert silence.due_s(LIMITS) == 560.0
    silence.on_bytes(510.0)
    assert silence.due_s(LIMITS) == 520.0
