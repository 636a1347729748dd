"""How much of a WebSocket's messages is held, and how long is waited for the rest."""

import asyncio
import itertools
from contextlib import suppress
from types import SimpleNamespace

import pytest
from aiohttp import WSMsgType
from aiohttp._websocket.reader import WebSocketDataQueue
from aiohttp.http_websocket import WebSocketReader
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Limits
from sow.core.quota import Quota
from sow.server.http.body_reading import PAUSED_CHECK_S, ReadBackpressure
from sow.server.net.ws_memory_accounting import (
    CONTROLS_AT_ONCE,
    CONTROLS_PER_S,
    BadFrame,
    FrameScanner,
    MessageMemories,
    MessageMemory,
    close_answer,
)
from tests.server.stand_ins import Socket, run, stepped

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


def message(payload, first=0x82, mask=b"mask"):
    """A frame whose payload is masked."""
    head = frame(len(payload), first)[: -len(MASK) - len(payload)]
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


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
    parsed = frames.feed(data[:fed])
    with pytest.raises(BadFrame) as refused:
        frames.feed(data[fed:])
    assert parsed + refused.value.good == good
    assert frames.complete == len(sizes)


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1011, 1014, 3000, 3999, 4401, 4999])
def test_a_code_that_a_close_frame_may_have_is_answered_by_itself(code):
    assert close_answer(code) == code


@pytest.mark.parametrize("code", [1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
def test_a_code_that_no_close_frame_may_have_is_a_protocol_error(code):
    assert close_answer(code) == 1002


def test_a_close_frame_without_a_code_is_answered_as_a_normal_end():
    assert close_answer(0) == 1000


LIMITS = Limits(idle_timeout_us=60_000_000)
KB = 1024


class Watching:
    """One WebSocket of a server whose requests may hold so many bytes."""

    def __init__(self, limit=1 << 20, watches=None, client="somebody"):
        self.watches = watches or MessageMemories(
            ReadBackpressure(Quota(lambda: limit)), lambda: LIMITS
        )
        self.socket, self.reasons, self.following = Socket(), [], False
        self.ends = []
        self.watch = MessageMemory(
            self.watches,
            self.socket,
            client,
            lambda: self.following,
            self.reasons.append,
            lambda: self.ends.append(self.watch.is_idle),
        )

    @property
    def held(self):
        return self.watch.holder.held

    def carry_out(self, count):
        for _ in range(count):
            self.watch.on_read()
        self.watch.on_executed()


@stepped
async def test_what_has_come_of_a_message_is_held_until_it_is_carried_out():
    one = Watching()
    text = frame(10_000)
    one.watch.receive(text[:6_000])
    assert one.held == 6_000
    one.watch.receive(text[6_000:] + text[:100])
    assert one.held == len(text) + 100, "whole, but not carried out yet"
    one.carry_out(1)
    assert one.held == 100
    one.watch.close()
    assert one.watches.intake.budget.used == 0


@stepped
async def test_who_has_left_holds_nothing_though_its_messages_are_carried_out_after_that():
    one = Watching()
    one.watch.receive(frame(1_000) + frame(10_000)[:6_000])
    one.watch.close()
    one.carry_out(1)
    assert one.watches.intake.budget.used == 0
    assert not one.watches.intake.waiting


@stepped
async def test_half_a_message_is_waited_for_as_long_as_its_bytes_earn():
    one = Watching()
    one.watch.receive(frame(1 << 20)[: 16 * KB])
    assert one.watch.due_s() == 60.0, "never longer than an idle time from the last byte"
    await asyncio.sleep(30)
    one.watch.receive(b"x")
    assert 60.0 < one.watch.due_s() < 60.001
    one.watch.on_timeout()
    assert one.reasons == ["a message has not come to its end (Limits/IdleTimeout)"]


@stepped
async def test_who_pings_as_fast_as_it_can_is_given_up_and_read_no_more():
    one, ping = Watching(), frame(0, first=0x89)
    one.watch.receive(ping * CONTROLS_AT_ONCE)
    assert not one.reasons, "a pause may have held them up"
    await asyncio.sleep(1)
    one.watch.receive(frame(0, first=0x8A) * CONTROLS_PER_S)
    assert not one.reasons
    one.watch.receive(ping)
    assert "pings and pongs a second" in one.reasons[0]
    assert not one.socket.reading
    one.watch.receive(ping * CONTROLS_AT_ONCE)
    assert len(one.reasons) == 1, "it is said once"


@stepped
async def test_frames_are_sent_and_what_they_take_counts_until_it_is_carried_out():
    one, ping = Watching(), frame(0, first=0x89)
    assert one.watch.receive(ping * 3 + frame(5) * 2) == (ping * 3 + frame(5) * 2, 5)
    assert one.watch.holder.held > 0
    one.carry_out(2)
    assert one.watch.holder.held == 0


@stepped
async def test_the_end_of_what_a_client_sends_is_sent_and_when_all_was_carried_out():
    one = Watching()
    one.watch.receive(frame(5) * 2)
    one.watch.on_eof()
    one.carry_out(1)
    one.watch.on_eof()
    one.carry_out(1)
    one.watch.on_eof()
    assert (one.ends, one.watch.is_idle) == ([False, False, True], True)


@stepped
async def test_who_says_nothing_has_an_idle_time_from_the_last_it_said_unless_it_follows():
    one = Watching()
    assert one.watch.due_s() == 60.0
    await asyncio.sleep(40)
    one.watch.receive(frame(3))
    assert one.watch.due_s() is None, "it waits for us, not we for it"
    one.carry_out(1)
    assert one.watch.due_s() == 100.0
    await asyncio.sleep(10)
    one.watch.receive(frame(0, first=0x89))
    assert one.watch.due_s() == 110.0, "a ping is a word"
    one.following = True
    assert one.watch.due_s() is None
    await asyncio.sleep(100)
    assert one.watch.due_s() is None
    one.following = False
    await asyncio.sleep(5)
    assert one.watch.due_s() == 215.0, "from the look that finds that it follows no more"
    assert one.watch.due_s() == 215.0
    one.watch.on_timeout()
    assert "no request and no subscription for 60 s" in one.reasons[0]


# Short messages are handed over as they arrive.


def numbered(number, size, first):
    """A frame whose payload begins with its number, and that payload."""
    payload = str(number).encode().ljust(size, b".")[:size]
    return message(payload, first), payload


class Aiohttp:
    """What is left is parsed by aiohttp at once, and read later."""

    def __init__(self, watch):
        connection = SimpleNamespace(_reading_paused=False)
        self.queue = WebSocketDataQueue(connection, 1 << 24, loop=asyncio.get_running_loop())
        self.parser = WebSocketReader(self.queue, 0, False, False)
        self.watch = watch

    def read(self):
        """The messages that are there, without waiting for another."""
        found = []
        while True:
            reading = self.queue.read()
            try:
                reading.send(None)
            except StopIteration as over:
                if over.value.type in (WSMsgType.BINARY, WSMsgType.TEXT):
                    self.watch.on_read()
                    found.append(over.value.data)
                continue
            with suppress(asyncio.CancelledError):
                reading.throw(asyncio.CancelledError())
            return found


SENT = {
    "short": (20, 0x82),
    "empty": (0, 0x82),
    "of 300": (300, 0x82),
    "long": (65_536, 0x82),
    "ping": (3, 0x89),
    "text": (3, 0x81),
}


@given(
    st.lists(st.sampled_from([*SENT]), max_size=12),
    st.lists(st.integers(1, 400), min_size=1),
    st.lists(st.booleans(), min_size=1),
    st.lists(st.booleans(), min_size=1),
)
def test_messages_come_once_and_in_order_whoever_reads_them(sent, cuts, reads, takes):
    async def all_of_it():
        one, came, turn = Watching(), [], itertools.count()
        takes_now, reads_now, cut = map(itertools.cycle, (takes, reads, cuts))
        other = Aiohttp(one.watch)
        one.watch.hand_over(lambda: next(takes_now), came.extend)
        made = [numbered(number, *SENT[kind]) for number, kind in enumerate(sent)]
        left = b"".join(data for data, _ in made)
        while left:
            size = next(cut) * (1 if next(turn) < 200 else 1_000)
            rest, _ = one.watch.receive(left[:size])
            other.parser.feed_data(rest)
            left = left[size:]
            if next(reads_now):
                came += other.read()
                one.watch.on_executed()
        came += other.read()
        one.watch.on_executed()
        assert came == [text for (_, text), kind in zip(made, sent, strict=True) if kind != "ping"]
        assert (one.watch.is_idle, one.held) == (True, 0)
        one.watch.close()

    run(all_of_it())


@stepped
async def test_what_comes_while_others_wait_to_be_read_waits_behind_them():
    one, taken = Watching(), []
    one.watch.hand_over(lambda: True, taken.extend)
    long = frame(65_536)
    assert one.watch.receive(frame(1) + long + frame(2)) == (long + frame(2), 2)
    assert one.watch.receive(frame(3)) == (frame(3), 1)
    assert taken == [b"x"]
    one.watch.on_read()
    one.watch.on_read()
    one.watch.on_read()
    assert one.watch.receive(frame(4)) == (b"", 0)
    assert taken == [b"x", b"xxxx"]
    assert one.watch.receive(frame(5), False) == (frame(5), 1), "earlier bytes wait to be parsed"


@stepped
async def test_the_beginning_of_a_short_message_is_kept_and_given_back_where_none_is_taken():
    one, taken, allowed = Watching(), [], [True]
    one.watch.hand_over(lambda: allowed[0], taken.extend)
    assert one.watch.receive(frame(300)[:9]) == (b"", 0)
    assert (one.held, one.watch.due_s()) == (9, 60.0)
    assert one.watch.receive(frame(300)[9:] + b"\x82") == (b"", 0)
    assert taken == [b"x" * 300]
    allowed[0] = False
    assert one.watch.receive(frame(1)[1:]) == (frame(1), 1)
    assert one.held == len(frame(300)) + len(frame(1)), "none of it is carried out"


@stepped
async def test_nothing_is_taken_after_a_close_frame_and_nothing_that_is_too_long():
    one, taken = Watching(), []
    one.watch.hand_over(lambda: True, taken.extend)
    assert one.watch.receive(frame(2, 0x88)) == (frame(2, 0x88), 1)
    assert one.watch.receive(frame(1)) == (frame(1), 1)
    limits = Limits(frame_bytes_max=200)
    watches = MessageMemories(ReadBackpressure(Quota(lambda: 1 << 20)), lambda: limits)
    other = Watching(watches=watches)
    other.watch.hand_over(lambda: True, taken.extend)
    assert other.watch.receive(frame(201)) == (frame(201), 1)
    assert taken == []


@stepped
async def test_what_stands_before_a_frame_that_is_forbidden_is_taken():
    one, taken = Watching(), []
    one.watch.hand_over(lambda: True, taken.extend)
    with pytest.raises(BadFrame) as refused:
        one.watch.receive(frame(1) + frame(3, 0x89) + frame(1, masked=False))
    assert (taken, refused.value.good) == ([b"x"], frame(3, 0x89))


@stepped
async def test_where_there_is_no_room_it_is_not_read_and_read_on_when_there_is():
    first = Watching(limit=400 * KB)
    second = Watching(watches=first.watches, client="somebody else")
    first.watch.receive(frame(600 * KB)[: 90 * KB])
    second.watch.receive(frame(600 * KB)[: 150 * KB])
    assert (first.socket.reading, second.socket.reading) == (True, False)
    assert second.watch.due_s() is None, "who is not read cannot be too slow"
    first.watch.close()
    await asyncio.sleep(2 * PAUSED_CHECK_S)
    assert second.socket.reading
    first.watches.close()
