"""Bodies that clients send as JSON texts: themselves, their documents, or as lines have them."""

import json

import pytest

from sow.errors import BadMessage
from sow.messages import message_type
from sow.messages.line_bodies import line_bodies


def test_texts_for_a_json_topic_are_the_bodies_byte_for_byte():
    texts = [b'{"id" : 1}', b"no JSON"]  # whether they are good is for the decoder to say
    assert line_bodies(message_type("json"), texts) == texts


def test_other_texts_are_read_as_their_type_says():
    assert line_bodies(message_type("string"), [b'"a"']) == [b"a"]
    with pytest.raises(BadMessage) as caught:
        line_bodies(message_type("string"), [b'"a"', b"1"])
    assert caught.value.index == 1


@pytest.mark.parametrize("name", ["nvfix", "xml", "msgpack", "bson", "bflat"])
def test_an_object_stands_for_the_message_whose_document_it_is(name):
    kind = message_type(name)
    document = {"r": {"id": "7"}} if name == "xml" else {"id": "7"}
    (body,) = line_bodies(kind, [b" " + json.dumps(document).encode()])
    assert kind.parse(body) == document
    assert line_bodies(kind, [kind.to_line(body)]) == [body]


def test_of_a_type_that_has_only_texts_a_number_keeps_its_digits():
    (body,) = line_bodies(message_type("nvfix"), [b'{"px":1.50}'])
    assert b"px=1.50" in body


def test_an_object_that_is_no_json_is_named_by_its_place():
    with pytest.raises(BadMessage) as caught:
        line_bodies(message_type("msgpack"), [b'{"a":1}', b'{"a":'])
    assert caught.value.index == 1
