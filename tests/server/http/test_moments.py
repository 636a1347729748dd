"""How far a follower is behind, and the bookmark that a request is to contain."""

import pytest

from sow.errors import AnotherLog, ClientError
from sow.server.http.preconditions import WAIT_S, WAIT_S_MAX, Heard, least_bookmark, waited_s

SECOND = 1_000_000
LOG = "0123456789abcdef"


class Time:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_a_lag_is_silence_and_what_is_not_applied():
    time = Time()
    heard = Heard("http://primary", lambda: 5 * SECOND, time)
    heard.hear(1_000 * SECOND)
    heard.apply(998 * SECOND)
    assert heard.lag_us() == 2 * SECOND
    time.now_s += 1
    assert heard.lag_us() == 3 * SECOND
    heard.apply(1_000 * SECOND)
    assert heard.lag_us() == SECOND
    heard.hear()
    assert heard.lag_us() == 0


def test_it_is_stale_only_beyond_what_it_may_be():
    time = Time()
    heard = Heard("http://primary", lambda: 5 * SECOND, time)
    time.now_s += 5
    assert heard.stale_s() is None
    time.now_s += 0.5
    assert heard.stale_s() == 6


def test_a_bookmark_may_name_its_log():
    assert least_bookmark("7", LOG) == least_bookmark(f"{LOG}-7", LOG) == 7
    for text in ("", "now", "-7", "7.", "1e3"):
        with pytest.raises(ClientError, match="min_bookmark="):
            least_bookmark(text, LOG)
    with pytest.raises(AnotherLog):
        least_bookmark("f" * 16 + "-7", LOG)


def test_no_request_waits_for_ever():
    assert [waited_s(one) for one in (None, 0.0, 7.0, 1e9)] == [WAIT_S, 0.0, 7.0, WAIT_S_MAX]
