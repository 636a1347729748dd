"""The frames of a WebSocket are told apart however the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.server.net.ws_frame_scanner import BadFrame, FrameScanner, close_answer
from tests.cases import all_cases

MASK = b"\0\0\0\0"


def frame(size, first=0x82, masked=True):
    mask = 0x80 if masked else 0
    if size < 126:
        head = bytes([first, mask | size])
    elif size < 65536:
        head = bytes([first, mask | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, mask | 127]) + size.to_bytes(8, "big")
    return head + (MASK if masked else b"") + b"x" * size


SIZES = st.sampled_from([0, 1, 125, 126, 127, 300, 65535, 65536])


@given(
    st.lists(st.tuples(SIZES, st.sampled_from([0x81, 0x82, 0x8A, 0x89]))),
    st.lists(st.integers(1, 400), min_size=1),
    st.integers(0, 200),
)
def test_messages_are_counted_and_the_rest_is_held(sent, cuts, part):
    last = frame(200)[:part]
    data = b"".join(frame(size % 126 if first > 0x88 else size, first)
                    for size, first in sent) + last  # fmt: skip
    frames, at, turn = FrameScanner(), 0, 0
    while at < len(data):
        cut = cuts[turn % len(cuts)] * (1 if turn < 200 else 100)
        frames.feed(data[at : at + cut])
        at, turn = at + cut, turn + 1
    assert frames.complete == sum(first < 0x88 for _, first in sent)
    assert frames.pings == sum(first == 0x89 for _, first in sent)
    assert frames.controls == sum(first > 0x88 for _, first in sent)
    assert frames.held == len(last)


def test_a_message_in_fragments_is_one_and_a_pong_among_them_is_none():
    frames = FrameScanner()
    frames.feed(frame(10, 0x02))
    assert (frames.complete, frames.held) == (0, 16)
    frames.feed(frame(0, 0x8A) + frame(5, 0x00))
    assert (frames.complete, frames.held) == (0, 33)
    frames.feed(frame(1, 0x80) + b"\x82")
    assert (frames.complete, frames.held) == (1, 1)


BAD_FRAMES = {
    "without a mask": (b"", frame(3, masked=False)),
    "a long one without a mask": (b"", frame(300, masked=False)),
    "a ping without a mask": (b"", frame(3, 0x89, masked=False)),
    "a message within another one": (frame(3, 0x01), frame(3, 0x81)),
    "a message within an empty one": (frame(0, 0x02), frame(0, 0x02)),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
@given(sizes=st.lists(SIZES, max_size=3), cut=st.integers(0, 400))
def test_a_frame_that_is_forbidden_is_refused_where_it_begins(name, sizes, cut):
    begun, bad = BAD_FRAMES[name]
    good = b"".join(frame(size) for size in sizes) + begun
    frames, data = FrameScanner(), good + bad + frame(1)
    fed = min(cut, len(good) + 1)  # its first byte forbids nothing
    frames.feed(data[:fed])
    with pytest.raises(BadFrame) as refused:
        frames.feed(data[fed:])
    assert refused.value.good == max(0, len(good) - fed)
    assert frames.complete == len(sizes)


@all_cases("code", [1000, 1001, 1003, 1007, 1011, 1014, 3000, 3999, 4401, 4999])
def test_a_code_that_a_close_frame_may_have_is_answered_by_itself(code):
    assert close_answer(code) == code


@all_cases("code", [1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
def test_a_code_that_no_close_frame_may_have_is_a_protocol_error(code):
    assert close_answer(code) == 1002


def test_a_close_frame_without_a_code_is_answered_as_a_normal_end():
    assert close_answer(0) == 1000
