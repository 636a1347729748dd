import json

import pytest

from sow.core.definitions import MessageTypeOptions
from sow.errors import BadMessage, ClientError, NotAvailable
from sow.messages import MESSAGE_TYPES_REFUSED, line_bodies, message_type


@pytest.mark.parametrize("name", MESSAGE_TYPES_REFUSED)
def test_a_type_that_is_not_taken_is_refused_with_the_reason(name):
    with pytest.raises(NotAvailable, match=f"'{name}' is not available: its messages .*; publish"):
        message_type(name)


def test_a_misspelt_type_is_answered_with_the_nearest_one():
    with pytest.raises(ClientError, match=r"no message type 'jsn'; did you mean 'json'\?"):
        message_type("jsn")


def test_an_unknown_type_is_answered_with_all_known_ones():
    with pytest.raises(ClientError, match="known are json, nvfix, fix"):
        message_type("????")


def test_a_configured_name_stands_for_its_module():
    pipes = MessageTypeOptions("fix-pipe", "fix", field_separator=b"|")
    kind = message_type("fix-pipe", {"fix-pipe": pipes})
    assert kind.name == "fix-pipe"
    assert kind.parse(b"35=D|55=IBM|") == {"35": "D", "55": "IBM"}


def test_a_built_in_name_can_be_redefined():
    options = {"nvfix": MessageTypeOptions("nvfix", "nvfix", field_separator=b";")}
    assert message_type("nvfix", options).parse(b"a=1;") == {"a": "1"}


def test_a_configured_name_of_an_unknown_module_is_refused():
    with pytest.raises(ClientError, match=r"no message type 'fixx'; did you mean 'fix'\?"):
        message_type("mine", {"mine": MessageTypeOptions("mine", "fixx")})


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
