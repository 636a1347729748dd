"""For how long a connection may ask for nothing."""

from sow.core.definitions import Limits
from sow.server.http.idle_timeout import IdleTimer

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
