"""The frames of a WebSocket are told apart however the bytes are cut."""

from hypothesis import given
from hypothesis import strategies as st

from sow.server.websocket_frames import WebSocketFrames

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
    st.lists(st.tuples(SIZES, st.sampled_from([0x81, 0x82, 0x8A, 0x89]), st.booleans())),
    st.lists(st.integers(1, 400), min_size=1),
    st.integers(0, 200),
)
def test_messages_are_counted_and_the_rest_is_held(sent, cuts, part):
    last = frame(200)[:part]
    data = b"".join(frame(size % 126 if first > 0x88 else size, first, masked)
                    for size, first, masked in sent) + last  # fmt: skip
    frames, at, turn = WebSocketFrames(), 0, 0
    while at < len(data):
        cut = cuts[turn % len(cuts)] * (1 if turn < 200 else 100)
        frames.feed(data[at : at + cut])
        at, turn = at + cut, turn + 1
    assert frames.complete == sum(first < 0x88 for _, first, _ in sent)
    assert frames.pings == sum(first == 0x89 for _, first, _ in sent)
    assert frames.controls == sum(first > 0x88 for _, first, _ in sent)
    assert frames.held == len(last)


def test_a_message_in_fragments_is_one_and_a_pong_among_them_is_none():
    frames = WebSocketFrames()
    frames.feed(frame(10, 0x02))
    assert (frames.complete, frames.held) == (0, 16)
    frames.feed(frame(0, 0x8A) + frame(5, 0x00))
    assert (frames.complete, frames.held) == (0, 33)
    frames.feed(frame(1, 0x80) + b"\x82")
    assert (frames.complete, frames.held) == (1, 1)
