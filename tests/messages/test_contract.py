"""What every message type promises; runs for each entry of the table."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import BadMessage
from sow.messages import MESSAGE_TYPES, MessageType, message_type
from sow.paths import parse_path, value_at

PATHS = tuple(map(parse_path, ("/a", "/b", "/a/b", "/a[1]", "/a/b/c", "/ä")))

numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
tags = st.sampled_from(["a", "b", "c", "ä", "long name"])
field_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01"), max_size=8
)
values = st.none() | st.booleans() | numbers | texts
fix_values = field_text | st.lists(field_text, min_size=2, max_size=3)
bflat_scalars = st.none() | numbers | texts
bflat_values = bflat_scalars | st.lists(bflat_scalars, max_size=3)
json_values = st.recursive(
    values, lambda v: st.lists(v, max_size=3) | st.dictionaries(tags, v, max_size=3), max_leaves=8
)


@dataclass
class Example:
    """One good body, one bad body (None where there is none), and documents in general."""

    good: bytes
    bad: bytes | None
    documents: st.SearchStrategy[Any]


EXAMPLES = {
    "json": Example(b'{"a":{"b":1},"b":[1,2]}', b'{"a":}', st.dictionaries(tags, json_values)),
    "nvfix": Example(
        b"a=1\x01b=x=y\x01a=2\x01", b"a=1\x01b\x01", st.dictionaries(tags, fix_values)
    ),
    "fix": Example(
        b"8=FIX.4.2\x0155=IBM\x01", b"8=FIX.4.2\x01=\x01", st.dictionaries(tags, fix_values)
    ),
    "bflat": Example(
        b"\x09a\x03abc\x19b\x05", b"\x09a\x09abc", st.dictionaries(tags, bflat_values)
    ),
    "binary": Example(b"\x00\xff\n", None, st.binary(max_size=20)),
    "string": Example(b"one\ntwo", b"\xff", texts),
    "int64": Example(b"-42", b"4.2", st.integers(-(2**63), 2**63 - 1)),
    "double": Example(b"4.25", b"NaN", st.floats(allow_nan=False, allow_infinity=False)),
}


@pytest.fixture(params=MESSAGE_TYPES, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def kind(name: str) -> MessageType:
    return message_type(name)


def test_has_an_example_here(name):
    assert name in EXAMPLES


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


def test_parse_undoes_encode(kind, name):
    @given(EXAMPLES[name].documents)
    def law(document):
        assert kind.parse(kind.encode(document)) == document

    law()


def test_refuses_to_encode_what_it_cannot_hold(kind, name):
    with pytest.raises(BadMessage):
        kind.encode({"a": object()})


def test_columns_are_what_value_at_finds_in_the_parsed_messages(kind, name):
    @given(st.lists(EXAMPLES[name].documents, max_size=4))
    def law(documents):
        bodies, columns = kind.decoder(PATHS).read([kind.encode(d) for d in documents])
        parsed = [kind.parse(body) for body in bodies]
        assert columns == [[value_at(document, path) for document in parsed] for path in PATHS]
        assert kind.decoder(PATHS).columns(bodies) == columns

    law()


def test_random_bytes_are_refused_as_bad_message_or_read_again_alike(kind, name):
    @given(st.lists(st.binary(max_size=30), max_size=3))
    def law(bodies):
        with suppress(BadMessage):
            stored, columns = kind.decoder(PATHS).read(bodies)
            assert repr(kind.decoder(PATHS).read(stored)) == repr((stored, columns))

    law()


def test_a_mutilated_body_raises_bad_message_or_nothing(kind, name):
    good = EXAMPLES[name].good

    @given(st.integers(0, len(good)), st.integers(0, len(good)), st.binary(max_size=4))
    def law(start, end, insertion):
        body = good[:start] + insertion + good[end:]
        try:
            kind.decoder(PATHS).read([body])
        except BadMessage:
            with pytest.raises(BadMessage):
                kind.parse(body)
        else:
            kind.parse(body)

    law()


def test_a_line_holds_a_body_without_line_breaks(kind, name):
    @given(EXAMPLES[name].documents)
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
    def law(d):
        with suppress(BadMessage):
            kind.decoder(PATHS).read([kind.from_line(d)])

    law()


def test_a_body_that_is_not_text_travels_as_base64(kind, name):
    assert kind.enc == ("base64" if name in ("binary", "bflat") else None)


def test_only_types_with_fields_have_values_at_paths(kind, name):
    columns = kind.decoder((parse_path("/a"),)).read([EXAMPLES[name].good])[1]
    assert kind.structured or columns == [[None]]
