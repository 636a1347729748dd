"""The plain decoder: columns of whole documents, and the first bad one named by its place."""

import json

import pytest

from sow.core.paths import parse_path
from sow.errors import BadMessage
from sow.messages.documents import VALUES_MAX, DocumentDecoder, check_values


def parse(body):
    try:
        return json.loads(body)
    except ValueError:
        raise BadMessage("not JSON") from None


def decoder(*texts, **more):
    return DocumentDecoder(tuple(map(parse_path, texts)), parse, **more)


def test_columns_stand_in_the_order_of_the_paths():
    found = decoder("/b", "/a/c").columns([b'{"a":{"c":1},"b":2}', b'{"b":[3,4]}'])
    assert found == [[2, [3, 4]], [1, None]]


def test_what_is_kept_may_be_another_body_than_came():
    bodies, columns = decoder("/a", stored=bytes.strip).read([b' {"a":1} ', b'{"a":2}'])
    assert bodies == [b'{"a":1}', b'{"a":2}']
    assert columns == [[1, 2]]


def test_the_first_bad_message_is_named_by_its_place():
    with pytest.raises(BadMessage, match=r"^message 1: not JSON$") as caught:
        decoder("/a").read([b"{}", b"{", b"["])
    assert caught.value.index == 1


def test_no_path_is_required():
    assert decoder().read([b"{}"]) == ([b"{}"], [])


@pytest.mark.parametrize(
    "document",
    [
        {"a": [[]] * VALUES_MAX},
        {"a": [{"b": [[]] * 1000}] * 101},
        {"a": {str(at): at for at in range(VALUES_MAX)}},
        {"a": [b""] * VALUES_MAX},
    ],
)
def test_values_that_are_looked_at_one_by_one_are_bounded(document):
    with pytest.raises(BadMessage, match="more than 100,000 values"):
        check_values(document, 1_000_000)


def test_plain_lists_count_only_where_each_value_is_looked_at():
    document = {"a": [1, "b", None] * VALUES_MAX}
    check_values(document, 1_000_000)
    with pytest.raises(BadMessage, match="more than 100,000 values"):
        check_values(document, 1_000_000, every=True)
