"""What is read of a client's frame, and what one that is full of mistakes costs."""

import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import TooLarge
from sow.protocol.wire import (
    BODIES_MAX,
    FRAME_PIECE_BYTES,
    LENGTHS,
    REFUSED_MAX,
    LineSplitter,
    Refused,
    read_frame,
    read_lines,
)
from tests.cases import all_cases

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


HEARTBEAT = b'{"c":"heartbeat"}'


@pytest.mark.parametrize("frame", [b"", b" ", b"\n", b"\n \r\n\n"])
def test_a_frame_of_blanks_holds_nothing(frame):
    assert list(read_frame(frame)) == []


@pytest.mark.parametrize("line", [b"{}", b"x", b'{"c":"nope"}', b'{"c":"sow","n":1}', b"\xff"])
def test_of_a_frame_of_mistakes_only_the_first_are_sent(line):
    reads = list(read_frame(b"\n".join([line] * 200_000)))
    assert len(reads) <= REFUSED_MAX
    assert all(isinstance(one, Refused) for one in reads)
    assert reads[-1].error.detail.endswith("was not read")
    assert not any("not read" in one.error.detail for one in reads[:-1])


def test_mistakes_among_commands_are_sent_one_by_one():
    frame = b"\n".join([HEARTBEAT, b"{}"] * (REFUSED_MAX - 1)) + b"\n" + HEARTBEAT
    read = list(read_frame(frame))
    assert sum(isinstance(one, Refused) for one in read) == REFUSED_MAX - 1
    assert len(read) == 2 * REFUSED_MAX - 1


def test_the_last_of_many_mistakes_leaves_nothing_unread():
    last = list(read_frame(b"\n".join([b"{}"] * REFUSED_MAX)))[-1]
    assert "not read" not in last.error.detail


def test_a_refused_line_does_not_keep_what_was_read():
    (refused,) = read_frame(b'{"c":"nope","cid":"1"}')
    assert refused.error.__traceback__ is None


def test_commands_of_a_long_frame_are_read_when_they_are_requested_for():
    lines = LineSplitter(b"\n".join([HEARTBEAT] * 200_000))
    commands = read_lines(lines)
    tracemalloc.start()
    for _ in range(1000):
        next(commands)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines.cut_bytes < 200_000
    assert peak < 4 * 1024**2


@pytest.mark.parametrize(
    ("head", "waits"),
    [
        (b'{"c":"publish","t":"a","n":30000}', True),
        (b'{"c":"nonsense","t":"a","n":30000}', True),
        (b'{"c":"publish","t":"a","n":1}', False),
        (b'{"c":"publish","t":"a","n":2000000}', False),
        (b'{"c":"publish","t":"a","n":"x"}', False),
        (HEARTBEAT, False),
    ],
)
def test_nothing_is_read_while_many_bodies_are_cut(head, waits):
    frame = b"\n".join([head, *[b'{"id":1}'] * 30_000])
    read = list(itertools.takewhile(lambda one: one is None, read_lines(LineSplitter(frame))))
    assert (len(read) > 2) is waits
    assert None not in list(read_frame(frame))


def test_more_bodies_than_a_command_may_have_are_refused_unread():
    lines = LineSplitter(b'{"c":"publish","t":"a","n":%d}\n' % (BODIES_MAX + 1) + b"{}\n" * 100_000)
    (refused,) = read_lines(lines)
    assert isinstance(refused.error, TooLarge)
    assert "the rest of the frame was not read" in refused.error.detail
    assert lines.next() is None


@all_cases("name", LENGTHS)
def test_a_field_of_a_line_that_is_too_long_is_refused(name):
    for length, fits in ((LENGTHS[name], True), (LENGTHS[name] + 1, False)):
        (read,) = read_frame(json.dumps({"c": "sow", "t": "orders", name: "x" * length}).encode())
        too_large = isinstance(read, Refused) and isinstance(read.error, TooLarge)
        assert too_large is not fits


def test_a_list_is_as_long_as_its_members():
    keys = ["1" * 20] * 20_000
    (read,) = read_frame(json.dumps({"c": "sow", "t": "orders", "keys": keys}).encode())
    assert read.error.reason == "too large"


@pytest.mark.parametrize("cid", ["x" * 101, "x" * 5000, {"a": 1}, None])
def test_a_cid_that_cannot_be_one_is_not_repeated(cid):
    (read,) = read_frame(json.dumps({"c": "nope", "cid": cid}).encode())
    assert read.cid is None


def test_a_long_body_makes_no_field_long():
    (read,) = read_frame(b'{"c":"publish","t":"a","cid":"1","d":"%b"}' % (b"x" * 500_000))
    assert read.cid == "1"


@all_cases(
    "line",
    [
        b'{"%b":1}',
        b'{"c":"%b"}',
        b'{"c":"sow","opts":"%b"}',
        b'{"c":"sow","opts":"top_n=%b"}',
        b'{"c":"sow","opts":"conflation=%b"}',
        b'{"c":"sow","opts":"conflation=%bs"}',
        b'{"c":"sow","opts":"bookmark_not_found=%b"}',
        b'{"c":"sow","a":"%b"}',
        b'{"c":"publish","d":1,"enc":"%b"}',
        b'{"c":"sow","t":["%b"]}',
    ],
)
@all_cases("word", [b"z", b"0"])
def test_a_refusal_repeats_little_of_the_line(line, word):
    (read,) = read_frame(line % (word * 20_000))
    assert (word * 101).decode() not in read.error.detail


def test_a_conflation_key_has_few_fields():
    keys = ",".join(f"/k{n}" for n in range(33))
    line = {"c": "subscribe", "t": "orders", "opts": f"conflation=1s,conflation_key=[{keys}]"}
    (read,) = read_frame(json.dumps(line).encode())
    assert read.error.reason == "too large"


def test_a_line_that_nests_too_deeply_is_too_large():
    line = b'{"c":"publish","t":"orders","d":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    (read,) = read_frame(line)
    assert (read.error.status, read.error.reason) == (413, "too large")
