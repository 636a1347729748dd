"""What was sent and may not have arrived: sent again to the line, or honestly not held."""

from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import SessionSettings
from sow.streaming.outbox.outbox import Pulled
from sow.streaming.recovery_buffer import AGE_US_MAX, RecoveryBuffer

frames = st.lists(st.integers(1, 4), min_size=1, max_size=8)


def recovery(messages=10_000, size=16 * 1024**2):
    return RecoveryBuffer(SessionSettings(recovery_messages_max=messages, queue_bytes_max=size))


def lines(first, count):
    return b"\n".join(b"%d" % number for number in range(first, first + count))


def without(frame, count):
    return b"\n".join(frame.split(b"\n")[count:])


def sent(counts, **bounds):
    """A buffer to which frames of so many lines each were added; lines are their numbers."""
    found = recovery(**bounds)
    for count in counts:
        found.add(Pulled(lines(found.sent + 1, count), count, 0), 0)
    return found


@given(frames, st.data())
def test_exactly_the_lines_that_were_not_seen_come_again(counts, data):
    total = sum(counts)
    seen = data.draw(st.integers(0, total))
    buffer = sent(counts)
    again = buffer.after(seen, without)
    found = [int(line) for one in again for line in one.frame.split(b"\n")]
    assert found == list(range(seen + 1, total + 1))
    assert sum(one.message_count for one in again) == total - seen
    assert buffer.sent == seen


@given(frames, st.integers(1, 10))
def test_as_many_messages_as_wanted_are_held_and_hardly_more(counts, most):
    buffer, total = sent(counts, messages=most), sum(counts)
    oldest = next(
        seen
        for seen in range(total + 1)
        if sent(counts, messages=most).after(seen, without) is not None
    )
    assert total - oldest >= min(most, total)
    assert total - oldest < most + max(counts)
    assert buffer.after(oldest, without) is not None


def test_bytes_are_bounded_but_for_the_last_frame():
    buffer = sent([1, 1, 1], size=2)
    assert buffer.after(0, without) is None
    assert sent([1, 1, 1], size=2).after(1, without) is not None
    big = recovery(size=2)
    big.add(Pulled(b"much too long", 1, 0), 0)
    assert [one.frame for one in big.after(0, without)] == [b"much too long"]


def test_what_a_socket_took_long_ago_has_arrived():
    buffer = recovery()
    buffer.add(Pulled(b"1", 1, 0), 0)
    buffer.add(Pulled(b"2", 1, 0), AGE_US_MAX)
    assert buffer.after(0, without) is not None
    buffer = recovery()
    buffer.add(Pulled(b"1", 1, 0), 0)
    buffer.add(Pulled(b"2", 1, 0), AGE_US_MAX + 1)
    assert buffer.after(0, without) is None


def test_what_was_taken_back_is_not_held_twice():
    buffer = sent([2, 2])
    buffer.after(1, without)
    assert buffer.after(1, without) == []
    assert buffer.after(0, without) is None


def test_counting_begins_when_the_session_is_named():
    buffer = sent([3])
    buffer.restart()
    assert (buffer.sent, buffer.after(0, without)) == (0, [])


def test_what_was_withdrawn_is_not_sent_again_and_what_follows_is():
    found = sent([2, 3])
    found.withdraw()
    assert found.withdrawn == 5
    found.add(Pulled(lines(6, 2), 2, 0), 0)
    found.check()
    assert found.after(4, without) is None
    assert found.after(5, without) == [Pulled(lines(6, 2), 2, 0)]
    found.restart()
    assert found.withdrawn == 0
