"""What clients have requested and not read is counted, and bounded for each and for all."""

import pytest

from sow.errors import Busy
from sow.history import unread_quota as module
from sow.history.unread_quota import UnreadQuota


def frames(count):
    return iter([(b"x", 1)] * count)


def test_rows_count_until_they_are_read():
    unread = UnreadQuota(10)
    held = unread.hold("s", 5, frames(2))
    assert unread.rows == 5
    assert len(list(held)) == 2
    assert unread.rows == 0
    assert next(held, None) is None
    assert unread.rows == 0


def test_rows_that_are_let_go_count_no_more():
    unread = UnreadQuota(10)
    held = unread.hold("s", 5, frames(2))
    next(held)
    del held
    assert unread.rows == 0


def test_one_session_may_leave_half_unread_but_for_its_first_answer():
    unread = UnreadQuota(10)
    unread.check("s", 1000)
    held = unread.hold("s", 3, frames(1))
    unread.check("s", 2)
    with pytest.raises(Busy, match="wait for this client"):
        unread.check("s", 3)
    list(held)
    unread.check("s", 1000)


def test_all_sessions_together_are_bounded():
    unread = UnreadQuota(10)
    held = [unread.hold(name, 4, frames(1)) for name in ("a", "b")]
    unread.check("c", 2)
    with pytest.raises(Busy, match="as many as may"):
        unread.check("c", 3)
    assert unread.rows == sum(4 for _ in held)


def test_an_answer_counts_from_when_it_is_admitted_until_it_is_over(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_CHUNK_ROWS", 1)
    unread = UnreadQuota(10)
    with unread.answer("c") as answer, unread.answer("c") as second, unread.answer("c") as short:
        answer.admit(4)
        assert unread.rows == 4
        with pytest.raises(Busy):
            second.admit(2)
        short.admit(1)
        assert unread.rows == 4
    assert unread.rows == 0
