"""A body in pieces holds the messages that it holds as a whole, and a bad one ends it early."""

import json
import struct
import tracemalloc
from itertools import chain
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sow.errors import BadMessage
from sow.server.http import body_stream
from sow.server.http.body_stream import FRAMES_AT_ONCE, array_pieces, frame_pieces, line_pieces

values = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a"\\,{}[] \n'), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=20,
)
arrays = st.tuples(st.lists(values, max_size=30), st.sampled_from([None, 1])).map(
    lambda drawn: json.dumps(drawn[0], indent=drawn[1]).encode()
)


def small(function, body):
    with patch.object(body_stream, "BODY_PIECE_BYTES", 16):
        return list(function(body))


def whole(text):
    try:
        return [bytes(value) for value in msgspec.json.decode(text, type=list[msgspec.Raw])]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


@given(arrays)
@example(b'[{"a":"},{"},{"a":[{"b":1},{"b":2},{"b":"\\\\"},{"c":"\\""}]},{"a":3},{"a":4}]')
def test_an_array_in_pieces_has_its_elements(text):
    assert list(chain(*small(array_pieces, text))) == whole(text)


@given(arrays, st.data())
def test_what_is_no_array_is_refused_whatever_was_taken_from_it(text, data):
    at = data.draw(st.integers(1, len(text)))
    put = data.draw(st.sampled_from([b"", b",", b"]", b"[", b"{", b"}", b'"', b"\\", b"],["]))
    text = text[: at - data.draw(st.integers(0, 1))] + put + text[at:]
    if not text.startswith(b"[") or text.strip() != text:
        return
    wanted = whole(text)
    try:
        found = list(chain(*small(array_pieces, text)))
    except BadMessage:
        found = None
    assert found == wanted


def test_an_array_is_cut_where_its_elements_end_and_not_within_them():
    record = b'{"legs":[' + b",".join([b'{"px":1},{"px":2}'] * 50) + b"]}"
    text = b"[" + b",".join([record] * 40) + b"]"
    found = small(array_pieces, text)
    assert len(found) == 40
    assert all(piece == [record] for piece in found)


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"1," * 4_000_000 + b"1]",
        b"[" + b"{}," * 3_000_000 + b"{}]",
        b'["' + b'","' * 3_000_000 + b'"]',
    ],
    ids=["numbers", "objects", "texts"],
)
def test_the_first_piece_of_a_long_array_costs_no_more_than_itself(text):
    tracemalloc.start()
    first = next(array_pieces(text))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 < sum(map(len, first)) < 2 * body_stream.BODY_PIECE_BYTES
    assert peak < 32 * 1024**2


@pytest.mark.parametrize(
    "text", [b"[" * 1_000_000, b"[" * 500_000 + b"]" * 500_000, b"[", b"[1", b"[,]", b"[1,]"]
)
def test_what_nests_without_end_or_has_none_is_refused(text):
    with pytest.raises(BadMessage, match="not a JSON array"):
        list(array_pieces(text))


@given(st.lists(st.sampled_from([b"", b" ", b"a", b"b" * 20, b"\r", b"c\r"]), max_size=60))
def test_lines_in_pieces_are_those_that_are_not_blank(lines):
    body = b"\n".join(lines)
    wanted = [line for line in body.replace(b"\r\n", b"\n").split(b"\n") if line.strip()]
    assert list(chain(*small(line_pieces, body))) == wanted


def test_blank_lines_are_nothing():
    assert list(chain(*line_pieces(b"\n" * 30_000_000))) == []


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_frames_in_pieces_are_the_messages(messages):
    body = b"".join(struct.pack(">I", len(message)) + message for message in messages)
    assert list(chain(*small(frame_pieces, body))) == messages
    with pytest.raises(BadMessage) as refusal:
        small(frame_pieces, body + b"\0\0\0\1")
    assert refusal.value.index == len(messages)


def test_of_frames_that_hold_nothing_no_step_cuts_many():
    found = list(frame_pieces(b"\0\0\0\0" * (2 * FRAMES_AT_ONCE + 7)))
    assert [len(piece) for piece in found] == [FRAMES_AT_ONCE, FRAMES_AT_ONCE, 7]
