"""The messages of a body, in pieces and as a whole; a bad one ends it early."""

import json
import re
import struct
import tracemalloc
from itertools import chain
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Topic
from sow.core.media_types import BYTES, FRAMES
from sow.errors import BadMessage, ClientError, TooLarge
from sow.server.http import request_bodies
from sow.server.http.negotiation import UnsupportedMediaType
from sow.server.http.request_bodies import (
    FRAMES_AT_ONCE,
    Reading,
    array_pieces,
    frame_pieces,
    line_pieces,
    take_messages,
)
from tests.server.stand_ins import ORDERS, World, request_of, run, stepped

NOTES = Topic("notes", "string")
BLOBS = Topic("blobs", "binary")


def messages(body, content_type="application/json", topic="orders"):
    """What a request with this body carries."""

    async def work():
        world = World(ORDERS, NOTES, BLOBS)
        request = request_of("POST", headers={"Content-Type": content_type})
        found = []
        records = world.engine.topic(topic).records
        count = run_to_completion(take_messages(records, request, body, found.extend, 10_000))
        await world.runtime.close()
        assert count == len(found)
        return found

    return run(work())


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b' [{"id":1}, {"id":2} ]'),
        ("application/json", b'{"id":1}\n{"id":2}'),
        ("application/x-ndjson", b'{"id":1}\r\n\n{"id":2}\n'),
        ("text/plain", b'{"id":1}\n{"id":2}'),
        (FRAMES, b'\0\0\0\x08{"id":1}\0\0\0\x08{"id":2}'),
    ],
)
def test_two_messages_are_two_however_they_are_written(content_type, body):
    assert messages(body, content_type) == [b'{"id":1}', b'{"id":2}']


def test_one_document_may_have_several_lines():
    (found,) = messages(b'{\n "id": 1\n}\n')
    assert json.loads(found) == {"id": 1}


def test_any_bytes_are_one_message():
    assert messages(b"a\n\xff", BYTES, "blobs") == [b"a\n\xff"]


def test_json_texts_stand_for_messages_of_other_types():
    assert messages(b'["a", "b\\n"]', topic="notes") == [b"a", b"b\n"]


@pytest.mark.parametrize("body", [b"", b"[]", b"\n \n"])
def test_a_request_without_a_message_is_a_mistake(body):
    with pytest.raises(BadMessage):
        messages(body)


def test_another_content_type_is_refused_with_what_to_send():
    with pytest.raises(UnsupportedMediaType, match="text/html is not understood; send ") as caught:
        messages(b"<a/>", "text/html")
    named = re.findall(r"\w+/[\w.+-]+", caught.value.detail.partition("send ")[2])
    assert len(named) == len(set(named)) > 4


def test_the_format_of_another_message_type_is_refused_with_that_of_the_topic():
    with pytest.raises(UnsupportedMediaType, match="are json, not application/xml; send appl"):
        messages(b"<a/>", "text/xml")


def test_the_index_of_a_bad_message_counts_those_of_earlier_pieces(monkeypatch):
    monkeypatch.setattr(
        request_bodies, "line_pieces", lambda _body: iter([[b"1", b"2"], [b"3", b"4"]])
    )

    def refuse(piece):
        if b"4" in piece:
            raise BadMessage("no", index=piece.index(b"4"))

    async def work():
        world = World()
        records = world.engine.topic("orders").records
        request = request_of("POST", headers={"Content-Type": "text/plain"})
        try:
            run_to_completion(take_messages(records, request, b"", refuse, 10_000))
        finally:
            await world.runtime.close()

    with pytest.raises(BadMessage) as caught:
        run(work())
    assert caught.value.index == 3


def test_too_many_messages_are_refused_before_they_are_all_read(monkeypatch):
    monkeypatch.setattr(request_bodies, "BODIES_MAX", 2)
    with pytest.raises(TooLarge, match="more than 2 messages; send several"):
        messages(b'[{"id":1},{"id":2},{"id":3}]')


@stepped
async def test_what_was_read_in_pieces_is_published_as_one():
    world = World(ORDERS, NOTES)
    reading = Reading(world.engine, world.engine.topic("orders"), None, world.clock.now_us)
    for body in (b'{"id":1}', b'{"id":2}'):
        reading.take([body])
    now_us = world.clock.now_us()
    assert (
        run_to_completion(world.engine.publications.carry_out("orders", reading.messages, now_us))
        == 2
    )
    assert len(world.engine.topic("orders").records.table) == 2
    await world.runtime.close()


@stepped
async def test_a_key_is_for_one_message_however_they_come():
    world = World(ORDERS, NOTES)
    reading = Reading(world.engine, world.engine.topic("notes"), "k", world.clock.now_us)
    reading.take([b"a"])
    with pytest.raises(ClientError, match="takes one message with each k"):
        reading.take([b"b"])
    await world.runtime.close()


SHORT = Topic("short", "json", keys=("/id",), expires=True, expiration_us=1_000_000)


def rows_read(topic, *texts, expires_s=None):
    """What rows are read as: bodies, identities, expiries."""

    async def work():
        world = World(ORDERS, NOTES, SHORT)
        running = world.engine.topic(topic)
        reading = Reading(
            world.engine, running, None, lambda: 10, in_rows=True, expires_s=expires_s
        )
        try:
            reading.take(texts)
        finally:
            await world.runtime.close()
        (messages,) = reading.messages
        return messages.bodies, messages.identities, messages.expires_us

    return run(work())


def test_rows_are_messages_with_when_they_expire():
    timed = b'{"k":"7","bm":"5","d":{"id":1},"expires":"1970-01-01T00:00:02Z"}'
    found = rows_read("short", timed, b'{"d":{"id":2}}', b'{"expires":null,"d":{"id":3}}')
    assert found == (
        [b'{"id":1}', b'{"id":2}', b'{"id":3}'], ["1", "2", "3"], [2_000_000, 1_000_010, 0],
    )  # fmt: skip
    assert rows_read("short", b'{"d":{"id":2}}', timed, expires_s=0)[2] == [0, 2_000_000]
    assert rows_read("orders", b'{"d":{"id":2}}')[2] is None


def test_a_row_has_the_key_of_a_record_whose_topic_has_none():
    assert rows_read("notes", b'{"k":"a","d":"x"}', b'{"k":"b","d":"y"}')[:2] == (
        [b"x", b"y"], ["a", "b"],
    )  # fmt: skip
    with pytest.raises(ClientError):
        rows_read("notes", b'{"d":"x"}')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"id":1}', "is not a row as a query with meta=true shows it"),
        (b"[1]", "is not a row"),
        (b'{"d":{"id":1},"expires":5}', "is not a row"),
        (b'{"d":{"id":1},"expires":"soon"}', "expires is 'soon'; it must be a time"),
        (b'{"d":{"id":1},"expires":"2999-01-01T00:00:00Z"}', "at most 1e9 seconds from now"),
    ],
)
def test_a_row_that_is_none_is_named(text, said):
    with pytest.raises(BadMessage, match=said) as caught:
        rows_read("short", b'{"d":{"id":7}}', text)
    assert caught.value.index == 1


@pytest.mark.parametrize("kind", ["text/csv", "text/plain", FRAMES, BYTES])
def test_rows_are_json(kind):
    async def work():
        world = World()
        request = request_of("POST", headers={"Content-Type": kind})
        records = world.engine.topic("orders").records
        try:
            run_to_completion(take_messages(records, request, b"x", list, 10_000, True))
        finally:
            await world.runtime.close()

    with pytest.raises(UnsupportedMediaType, match="meta=true takes rows"):
        run(work())


values = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a"\\,{}[] \n'), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=20,
)
arrays = st.tuples(st.lists(values, max_size=30), st.sampled_from([None, 1])).map(
    lambda drawn: json.dumps(drawn[0], indent=drawn[1]).encode()
)


def small(function, body):
    with patch.object(request_bodies, "BODY_PIECE_BYTES", 16):
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
    assert 0 < sum(map(len, first)) < 2 * request_bodies.BODY_PIECE_BYTES
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
