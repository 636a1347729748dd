import pytest

from sow.core.paths import parse_path
from sow.errors import BadMessage
from sow.messages import message_type
from tests.cases import all_cases


def read(name, body):
    return message_type(name).decoder(()).read([body])[0][0]


@pytest.mark.parametrize("body", [b"0", b"-1", b"9223372036854775807", b"-9223372036854775808"])
def test_an_int64_is_decimal_digits(body):
    assert read("int64", body) == body


@pytest.mark.parametrize(
    "body", [b"", b"+1", b" 1", b"1\n", b"1.0", b"1e3", b"0x1", b"9223372036854775808", b"\xd9\xa1"]
)
def test_an_int64_is_nothing_else(body):
    with pytest.raises(BadMessage, match="is not an int64"):
        read("int64", body)


@pytest.mark.parametrize("body", [b"0", b"-1.5", b"6.02e23", b"1E-400", b"1e+16"])
def test_a_double_is_written_as_in_json(body):
    assert read("double", body) == body


@pytest.mark.parametrize("body", [b"", b"NaN", b"inf", b"1.", b".5", b"1e400", b"1_0", b"1\n"])
def test_a_double_is_nothing_else(body):
    with pytest.raises(BadMessage, match="is not a double"):
        read("double", body)


def test_a_long_bad_number_is_shown_in_part():
    with pytest.raises(BadMessage) as caught:
        read("int64", b"x" * 1000)
    assert len(caught.value.detail) < 200


@pytest.mark.parametrize("name", ["int64", "double"])
@pytest.mark.parametrize("line", [b"42", b'"42"'])
def test_a_number_comes_as_json_number_or_string_and_leaves_as_string(name, line):
    kind = message_type(name)
    assert kind.from_line(line) == b"42"
    assert kind.to_line(b"42") == b'"42"'


def test_text_travels_as_a_json_string():
    assert message_type("string").to_line("é\n".encode()) == '"é\\n"'.encode()


def test_a_line_that_is_no_string_is_refused():
    with pytest.raises(BadMessage, match="must be a JSON string"):
        message_type("string").from_line(b"[1]")


def test_bytes_travel_in_base64():
    assert message_type("binary").to_line(b"\x00\xff") == b'"AP8="'


@pytest.mark.parametrize("line", [b'"AP8"', b'"A P8="', b'"\xc3\xa9"', b"1"])
def test_what_is_not_base64_is_refused(line):
    with pytest.raises(BadMessage):
        message_type("binary").from_line(line)


@all_cases(
    ("name", "value"),
    [
        ("int64", True),
        ("int64", 2**63),
        ("int64", 1.0),
        ("double", True),
        ("double", "1"),
        ("double", float("inf")),
        ("double", 10**400),
        ("string", b"x"),
        ("string", 1),
        ("string", None),
    ],
)
def test_a_value_of_another_kind_is_not_written(name, value):
    with pytest.raises(BadMessage, match=f"messages of type {name} are "):
        message_type(name).encode({"value": value})


@all_cases("document", [{}, {"value": 1, "more": 2}, {"more": 1}, 1, "x", []])
@all_cases("name", ["string", "int64", "double"])
def test_a_document_of_other_fields_is_not_written(name, document):
    with pytest.raises(BadMessage, match="with no other field"):
        message_type(name).encode(document)


@pytest.mark.parametrize(
    ("name", "body", "value"),
    [("string", b"", ""), ("int64", b"-7", -7), ("double", b"1e3", 1000.0)],
)
def test_the_message_is_the_field_value(name, body, value):
    kind = message_type(name)
    assert kind.parse(body) == {"value": value}
    assert kind.decoder((parse_path("/value"), parse_path("/v"))).read([body])[1] == [
        [value],
        [None],
    ]


def test_a_double_may_be_written_as_an_integer():
    assert message_type("double").encode({"value": 4}) == b"4"
