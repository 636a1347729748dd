"""Which messages a request carries, by its content type, and where the first bad one stands."""

import json

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Topic
from sow.core.media_types import BYTES, FRAMES
from sow.errors import BadMessage, ClientError, TooLarge
from sow.server.http import request_bodies
from sow.server.http.negotiation import UnsupportedMediaType
from sow.server.http.request_bodies import Reading, take_messages
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
        await world.driver.close()
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
    with pytest.raises(UnsupportedMediaType, match="text/html is not understood; send appl"):
        messages(b"<a/>", "text/html")


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
            await world.driver.close()

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
    await world.driver.close()


@stepped
async def test_a_key_is_for_one_message_however_they_come():
    world = World(ORDERS, NOTES)
    reading = Reading(world.engine, world.engine.topic("notes"), "k", world.clock.now_us)
    reading.take([b"a"])
    with pytest.raises(ClientError, match="takes one message with each k"):
        reading.take([b"b"])
    await world.driver.close()
