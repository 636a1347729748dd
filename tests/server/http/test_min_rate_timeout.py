"""Time is earned by bytes, and runs out for the silent and for those who trickle."""

from sow.server.http.min_rate_timeout import BYTES_PER_S_MIN, MinRateDeadline


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
