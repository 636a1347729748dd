"""How lines look when they leave."""

import json

import pytest

from sow.protocol import replies
from sow.protocol.replies import (
    LINES,
    EventEncoding,
    SentPlace,
    publish_acks,
    quoted,
    record_line,
    record_lines,
    skip_lines,
    timestamp,
)

EVENTS = EventEncoding("00000000000000aa")


def payload(frame):
    size = frame[1]
    return frame[2 if size < 126 else 4 if size == 126 else 10 :]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_says_how_long_it_is(size):
    frame = LINES.frame([b"x" * size])
    assert frame[0] == 0x82
    assert payload(frame) == b"x" * size
    length = frame[1] if frame[1] < 126 else int.from_bytes(frame[2 : 4 if frame[1] == 126 else 10])
    assert length == size


@pytest.mark.parametrize("length", [3, 200, 70_000])
def test_a_frame_is_cut_at_a_line(length):
    lines = [b"%d" % number + b"x" * length for number in range(4)]
    assert skip_lines(LINES.frame(lines), 0) == LINES.frame(lines)
    assert skip_lines(LINES.frame(lines), 3) == LINES.frame(lines[3:])


def test_lines_are_joined_and_events_stand_by_themselves():
    assert payload(LINES.frame([b"a", b"b"])) == b"a\nb"
    assert EVENTS.frame([b"a", b"b"]) == b"2\r\nab\r\n"
    assert EVENTS.frame([b"x" * 17]) == b"11\r\n" + b"x" * 17 + b"\r\n"


def test_acks_of_publishes_are_the_lines_that_replies_say():
    acks = [("processed", "1", 7), ("persisted", 'q"é', 12), ("completed", None, 0)]
    assert publish_acks(acks) == [
        LINES.reply(replies.ack(cid, kind, bm=str(bookmark))) for kind, cid, bookmark in acks
    ]


def test_a_reply_is_an_event_of_its_kind():
    assert EVENTS.reply({"c": "group_end", "s": "f1", "bm": "7"}) == (
        b'event: group_end\nid: 00000000000000aa-7\ndata: {"c":"group_end","s":"f1","bm":"7"}\n\n'
    )
    assert EVENTS.reply({"c": "ack", "status": "failure"}).startswith(b"event: error\ndata: ")


def test_only_live_records_move_the_last_event_id():
    assert EVENTS.records("sow", [b"{}"], [7]) == [b"event: sow\ndata: {}\n\n"]
    assert EVENTS.records("p", [b"{}"], [7]) == [b"event: p\nid: 00000000000000aa-7\ndata: {}\n\n"]
    assert LINES.records("p", [b"{}"], [7]) == [b"{}"]


def test_a_record_line_carries_the_columns_it_is_given():
    (whole,) = record_lines(b'{"c":"p"', quoted(["1"]), [b'{"a":1}'], [7], [0], delta=True)
    assert json.loads(whole) == {
        "c": "p",
        "k": "1",
        "d": {"a": 1},
        "ts": "1970-01-01T00:00:00.000000Z",
        "delta": True,
        "bm": "7",
    }
    (bare,) = record_lines(b'{"c":"sow"', None, [b"1"], None, None)
    assert bare == b'{"c":"sow","d":1}'


@pytest.mark.parametrize(
    ("ts_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_700_000_000_000_001, "2023-11-14T22:13:20.000001Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_a_time_is_sent_in_utc_to_the_microsecond(ts_us, text):
    assert timestamp(ts_us) == text


@pytest.mark.parametrize("key", [None, b'"1"'])
@pytest.mark.parametrize("seq", [None, 7, SentPlace(7, 5)])
@pytest.mark.parametrize("ts_us", [None, 1_700_000_000_000_001])
@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("places", [(), (3,)])
def test_the_line_of_one_record_is_that_of_columns(key, seq, ts_us, delta, places):
    one = record_line(b'{"c":"p"', key, b"{}", seq, ts_us, delta, places)
    columns = ([value] if value is not None else None for value in (key, seq, ts_us))
    keys, seqs, times = columns
    assert [one] == record_lines(b'{"c":"p"', keys, [b"{}"], seqs, times, delta, places)
