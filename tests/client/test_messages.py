import msgspec

from sow.client.messages import Message, read_lines
from sow.messages.json_texts import json_text


def test_a_record_line_is_typed():
    (line,) = read_lines(b'{"c":"p","s":"f1","t":"orders","k":"7","d":{"px":1.10},"bm":"9"}')
    assert (line.c, line.s, line.t, line.k, line.bm) == ("p", "f1", "orders", "7", "9")
    assert line.body == b'{"px":1.10}'
    assert line.document() == {"px": 1.1}


def test_a_binary_body_is_bytes():
    (line,) = read_lines(b'{"c":"p","d":"AAEC","enc":"base64"}')
    assert line.body == line.document() == b"\x00\x01\x02"


def test_a_text_body_is_text():
    (line,) = read_lines(b'{"c":"p","d":"a\\"b"}')
    assert (line.body, line.document()) == (b'a"b', 'a"b')


def test_a_field_of_a_later_version_is_passed_over():
    assert read_lines(b'{"c":"heartbeat","new":[1]}')[0].c == "heartbeat"


def test_an_ack_names_the_options_that_were_ignored():
    named, plain = read_lines(b'{"c":"ack","ignored":["max_backlog"]}\n{"c":"ack"}')
    assert (named.ignored, plain.ignored) == (("max_backlog",), ())


def test_a_failure_ack_is_an_error():
    (line,) = read_lines(
        b'{"c":"ack","cid":"1","status":"failure","reason":"bad filter","detail":"x","position":4}'
    )
    assert line.failed
    assert line.error().position == 4


def test_a_number_that_no_double_holds_is_a_float_that_knows_its_text():
    line = b'{"px":12345678901234567890.1234567890,"n":9007199254740993,"near":0.1,"m":1.10}'
    found = Message("p", d=msgspec.Raw(line)).exact_document()
    assert found == msgspec.json.decode(line)
    assert (found["px"].text, type(found["near"]), type(found["m"])) == (
        "12345678901234567890.1234567890",
        float,
        float,
    )
    assert json_text(found).startswith(b'{"px":12345678901234567890.1234567890,')
    assert Message("p", d=msgspec.Raw(b'"AAE="'), enc="base64").exact_document() == b"\x00\x01"
