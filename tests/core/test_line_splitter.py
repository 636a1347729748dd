"""The lines of a frame are those of a split, and a long frame is never cut all at once."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from sow.core.line_splitter import FRAME_PIECE_BYTES, LineSplitter

PAD = b"x" * 1000
texts = st.lists(
    st.sampled_from([b"", b" ", b"{}", PAD, PAD * 70, b"\n" * 100, b"\n" * FRAME_PIECE_BYTES]),
    max_size=200,
).map(b"\n".join)


def lines_of(frame):
    lines = LineSplitter(frame)
    return list(iter(lines.next, None))


@given(texts)
def test_the_lines_are_those_of_a_split_but_for_blanks(frame):
    assert [line for line in lines_of(frame) if line.strip()] == [
        line for line in frame.split(b"\n") if line.strip()
    ]


@given(texts, st.lists(st.integers(0, 300), max_size=20))
def test_lines_that_are_peeked_at_and_skipped_are_the_next_ones(frame, counts):
    lines, rest = LineSplitter(frame), frame.split(b"\n")
    for count in counts:
        assert lines.peek(count) == rest[:count]
        assert lines.has(count) == (len(rest) >= count)
        if not lines.has(count):
            break
        lines.skip(count)
        rest = rest[count:]
    assert lines.leave() == any(line.strip() for line in rest)
    assert lines.next() is None


@given(texts, st.integers(0, 300))
def test_lines_are_cut_towards_a_number_a_piece_at_a_time(frame, count):
    lines = LineSplitter(frame)
    steps = 0
    while lines.cut_towards(count):
        steps += 1
        assert lines.cut_bytes >= steps * FRAME_PIECE_BYTES or lines.is_cut
    assert lines.peek(count) == frame.split(b"\n")[:count]
    assert lines.is_cut or lines.has(count)


def test_a_long_frame_is_cut_as_its_lines_are_wanted():
    frame = b"{}\n" * 1_000_000
    lines = LineSplitter(frame)
    tracemalloc.start()
    for _ in range(100):
        lines.next()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines.cut_bytes < 2 * FRAME_PIECE_BYTES
    assert peak < 4 * 1024**2


def test_a_long_frame_of_blanks_is_no_line_beyond_its_first_piece():
    assert len(lines_of(b"\n" * (50 * FRAME_PIECE_BYTES))) <= FRAME_PIECE_BYTES + 1
    assert lines_of(b" \n" * (50 * FRAME_PIECE_BYTES) + b"{}")[-1] == b"{}"
