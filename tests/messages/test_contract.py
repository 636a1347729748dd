"""What every message type promises; runs for each of `tests.messages.examples`."""

from base64 import b64decode
from contextlib import suppress

import msgspec
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sow.core.keys import key_text
from sow.core.paths import parse_path, value_at
from sow.errors import BadMessage, LargeMessage
from sow.messages import MESSAGE_TYPES, MessageType, message_type
from sow.messages.json import json_text
from tests.effort import examples
from tests.messages.examples import EXAMPLES, OPTIONS

PATHS = tuple(map(parse_path, ("/a", "/b", "/a/b", "/a[1]", "/a/b/c", "/ä")))
FEW = examples(15)
"""Fourteen types are tried, which have laws of their own besides."""


@pytest.fixture(params=EXAMPLES, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def kind(name: str) -> MessageType:
    return message_type(name, OPTIONS)


def test_every_type_has_an_example():
    missing = MESSAGE_TYPES.keys() - EXAMPLES - {options.module for options in OPTIONS.values()}
    assert not missing, f"tests/messages/examples.py: {sorted(missing)} need entries in EXAMPLES"


def test_says_what_it_is_over_http(kind):
    assert "/" in kind.media_type


def test_knows_its_name(kind, name):
    assert kind.name == name


def test_stores_a_good_body_as_it_came(kind, name):
    good = EXAMPLES[name].good
    assert kind.decoder(()).read([good, good]) == ([good, good], [])


def test_takes_an_empty_batch(kind):
    assert kind.decoder(PATHS).read([]) == ([], [[]] * len(PATHS))
    assert kind.decoder(PATHS).columns([]) == [[]] * len(PATHS)


def test_names_the_first_bad_message_of_a_batch(kind, name):
    example = EXAMPLES[name]
    if example.bad is None:
        return
    with pytest.raises(BadMessage) as caught:
        kind.decoder(PATHS).read([example.good, example.good, example.bad, example.bad])
    assert caught.value.index == 2
    assert "message 2" in caught.value.detail


def test_hostile_bodies_are_refused_in_a_sentence(kind, name):
    for body in EXAMPLES[name].hostile:
        with pytest.raises(BadMessage) as caught:
            kind.decoder(PATHS).read([EXAMPLES[name].good, body])
        assert caught.value.index == 1
        assert len(caught.value.detail) < 600


def test_a_body_that_breaks_off_is_refused_or_another_body(kind, name):
    good = EXAMPLES[name].good
    for end in range(len(good)):
        with suppress(BadMessage):
            stored, _ = kind.decoder(PATHS).read([good[:end]])
            kind.parse(stored[0])


def test_parse_undoes_encode(kind, name):
    @given(EXAMPLES[name].documents)
    @FEW
    def law(document):
        assert kind.parse(kind.encode(document)) == document

    law()


def test_refuses_to_encode_what_it_cannot_hold(kind, name):
    with pytest.raises(BadMessage):
        kind.encode({"a": object()})


def test_a_type_that_reads_a_number_as_its_text_says_so(kind, name):
    try:
        body = kind.encode({"b": 1})
    except BadMessage:
        return
    _, (column,) = kind.decoder((parse_path("/b"),)).read([body])
    assert kind.has_only_texts is isinstance(column[0], str), (
        f"{name}: the class needs `has_only_texts = True` just if it makes a text of a number"
    )


def test_columns_are_what_value_at_finds_in_the_parsed_messages(kind, name):
    @given(st.lists(EXAMPLES[name].documents, max_size=4))
    @FEW
    def law(documents):
        bodies, columns = kind.decoder(PATHS).read([kind.encode(d) for d in documents])
        parsed = [kind.parse(body) for body in bodies]
        assert columns == [[value_at(document, path) for document in parsed] for path in PATHS]
        assert kind.decoder(PATHS).columns(bodies) == columns

    law()


def test_random_bytes_are_refused_as_bad_message_or_read_again_alike(kind, name):
    @given(st.lists(st.binary(max_size=30), max_size=3))
    @FEW
    def law(bodies):
        with suppress(BadMessage):
            stored, columns = kind.decoder(PATHS).read(bodies)
            assert repr(kind.decoder(PATHS).read(stored)) == repr((stored, columns))

    law()


def test_a_mutilated_body_raises_bad_message_or_nothing(kind, name):
    good = EXAMPLES[name].good

    @given(st.integers(0, len(good)), st.integers(0, len(good)), st.binary(max_size=4))
    @example(len(good), len(good), b"\x01")
    @FEW
    def law(start, end, insertion):
        body = good[:start] + insertion + good[end:]
        try:
            stored = kind.decoder(PATHS).read([body])[0]
        except BadMessage:
            with pytest.raises(BadMessage):
                kind.parse(body)
        else:
            # As it is kept: a final U+0001 is no part of a record.
            kind.parse(stored[0])

    law()


def test_a_line_holds_a_body_without_line_breaks(kind, name):
    @given(EXAMPLES[name].documents)
    @FEW
    def law(document):
        line = kind.to_line(kind.encode(document))
        assert b"\n" not in line
        assert b"\r" not in line
        orjson.loads(line)
        assert kind.from_line(line) == kind.encode(document)

    law()


def test_a_strange_line_raises_bad_message_or_nothing(kind):
    @given(
        st.binary(max_size=20) | st.sampled_from([b"null", b'"x', b'"\\ud800"', b"[1]", b"1e999"])
    )
    @FEW
    def law(d):
        with suppress(BadMessage):
            kind.decoder(PATHS).read([kind.from_line(d)])

    law()


def test_a_body_that_is_not_text_travels_as_base64(kind, name):
    line = orjson.loads(kind.to_line(EXAMPLES[name].good))
    if kind.enc == "base64":
        assert b64decode(line, validate=True) == EXAMPLES[name].good
    else:
        assert kind.enc is None
        assert name == "json" or line.encode() == EXAMPLES[name].good


def test_what_is_in_part_has_fields(kind):
    assert kind.structured or not kind.partial


def test_a_document_is_json(kind, name):
    if not kind.structured:
        return

    @given(EXAMPLES[name].documents)
    @FEW
    def law(document):
        text = json_text(kind.parse(kind.encode(document)))
        assert same_json(msgspec.json.decode(text), document)

    law()


def same_json(read, document):
    """JSON has one kind of number."""
    if isinstance(document, dict):
        return read.keys() == document.keys() and all(
            same_json(read[name], document[name]) for name in document
        )
    if isinstance(document, list):
        return len(read) == len(document) and all(map(same_json, read, document))
    return read == document


def test_the_key_of_a_record_is_read(kind, name):
    example = EXAMPLES[name]
    if not example.key:
        return
    bodies = [kind.encode(example.record(number, 10)) for number in (1, 2)]
    _, (column,) = kind.decoder((parse_path(example.key),)).read(bodies)
    assert list(map(key_text, column)) == ["1", "2"]


def test_only_types_with_fields_have_values_at_paths(kind, name):
    columns = kind.decoder((parse_path("/a"),)).read([EXAMPLES[name].good])[1]
    assert kind.structured or columns == [[None]]


@pytest.mark.parametrize(
    ("kind", "nested"),
    [
        ("json", lambda levels: b'{"id":1,"a":' + b"[" * levels + b"]" * levels + b"}"),
        ("xml", lambda levels: b"<a>" * levels + b"</a>" * levels),
        ("msgpack", lambda levels: b"\x81\xa1a" + b"\x91" * levels + b"\xc0"),
        ("bson", lambda levels: bson_of(levels)),
    ],
)
@pytest.mark.parametrize("levels", [300, 5_000])
def test_what_nests_too_deeply_is_too_large_and_not_broken(kind, nested, levels):
    decoder = message_type(kind).decoder(PATHS)
    good = nested(3)
    with pytest.raises(LargeMessage, match=r"message 1.* nested more than") as refused:
        decoder.read([good, nested(levels)])
    error = refused.value.moved(4)
    assert (error.status, error.reason, error.index) == (413, "too large", 5)
    assert error.detail.startswith("message 5")


def bson_of(levels):
    """Documents in documents."""
    body = b"\x05\x00\x00\x00\x00"
    for _ in range(levels):
        body = (8 + len(body)).to_bytes(4, "little") + b"\x03a\x00" + body + b"\x00"
    return body
