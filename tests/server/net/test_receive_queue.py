"""Commands leave the inbox in order and a few at a time, however long the frames are."""

import json
import tracemalloc
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core import line_splitter
from sow.core.line_splitter import FRAME_PIECE_BYTES
from sow.server.net import receive_queue as inbox_module
from sow.server.net.receive_queue import READ_BYTES_MIN, TAKEN_BYTES_MAX, ReceiveQueue


def frame_of(cids, pad=""):
    lines = [json.dumps({"c": "heartbeat", "cid": cid, "client": pad}) for cid in cids]
    return "\n".join(lines).encode()


def takes(inbox):
    while taken := inbox.take():
        yield [command.cid for command in taken]


@contextmanager
def short_pieces():
    """A few lines are a long frame, so that examples need not be long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_splitter, "FRAME_PIECE_BYTES", 1000)
        patch.setattr(inbox_module, "FRAME_PIECE_BYTES", 1000)
        patch.setattr(inbox_module, "TAKEN_BYTES_MAX", 2000)
        yield


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 100)), min_size=1, max_size=6))
def test_every_command_leaves_once_and_in_order(sizes):
    inbox, wanted = ReceiveQueue(), []
    for count, pad in sizes:
        cids = [str(len(wanted) + at) for at in range(count)]
        wanted += cids
        inbox.add(frame_of(cids, "x" * pad))
    with short_pieces():
        assert [cid for cids in takes(inbox) for cid in cids] == wanted
    assert inbox.bytes == 0


def test_the_bodies_of_a_long_frame_are_cut_a_piece_at_a_time():
    inbox, bodies = ReceiveQueue(), [b'{"id":%d}' % number for number in range(1_000)]
    head = b'{"c":"publish","t":"a","n":1000}'
    inbox.add(b"\n".join([head, *bodies, b'{"c":"heartbeat"}']))
    with short_pieces():
        taken = [inbox.take() for _ in range(4)]
        assert taken == [[]] * 4
        assert inbox.bytes
        while not (commands := inbox.take()):
            assert inbox.bytes
        assert list(commands[0].bodies) == bodies
        assert [command.name for command in [*commands[1:], *inbox.take()]] == ["heartbeat"]
    assert inbox.bytes == 0


def test_frames_of_one_command_are_taken_together():
    inbox = ReceiveQueue()
    for cid in range(500):
        inbox.add(frame_of([str(cid)]))
    assert len(inbox.take()) == 500
    assert inbox.take() == []


def test_one_long_line_is_read_at_once():
    inbox, body = ReceiveQueue(), b'{"id":"%b"}' % (b"x" * FRAME_PIECE_BYTES)
    inbox.add(b'{"c":"publish","t":"orders","d":%b}' % body)
    (taken,) = inbox.take()
    assert (taken.bodies, inbox.bytes) == ([body], 0)


def test_a_long_frame_is_read_a_little_at_a_time():
    inbox, frame = ReceiveQueue(), b'{"c":"heartbeat"}\n' * 300_000
    inbox.add(frame)
    tracemalloc.start()
    taken = inbox.take()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 < len(taken) * len(frame) / 300_000 <= TAKEN_BYTES_MAX + FRAME_PIECE_BYTES
    assert inbox.bytes == len(frame)
    assert peak < 16 * 1024**2


def test_a_frame_after_a_long_one_waits_for_its_turn():
    inbox = ReceiveQueue()
    inbox.add(b'{"c":"heartbeat"}\n' * 20_000)
    inbox.add(frame_of(["last"]))
    cids = [cid for cids in takes(inbox) for cid in cids]
    assert (len(cids), cids[-1], cids.index("last")) == (20_001, "last", 20_000)


def test_however_short_commands_are_so_many_are_taken_at_once():
    """A read of a socket may bring a hundred thousand of two characters."""
    most = TAKEN_BYTES_MAX // READ_BYTES_MIN + 1
    short, long = ReceiveQueue(), ReceiveQueue()
    for _ in range(3 * most):
        short.add(b'{"c":"flush"}')
    long.add(b'{"c":"flush"}\n' * 10 * most)
    for inbox, count in ((short, 3 * most), (long, 10 * most)):
        sizes = [len(taken) for taken in iter(inbox.take, [])]
        assert sum(sizes) == count
        assert max(sizes) <= most
        assert inbox.bytes == 0


def test_what_is_cleared_is_gone():
    inbox = ReceiveQueue()
    inbox.add(b'{"c":"heartbeat"}\n' * 20_000)
    inbox.take()
    inbox.clear()
    inbox.add(frame_of(["next"]))
    assert list(takes(inbox)) == [["next"]]
