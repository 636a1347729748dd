"""Answers that are no answers of SOW, or of another version of it."""

import pytest

from sow.client import Unreachable
from sow.client.responses import AnsweredFields, decoded, understood

URL = "http://127.0.0.1:1"


def test_an_answer_is_what_its_json_says():
    found = decoded(URL, b'{"a":{"b":[{"c":1}]},"d":null}', dict)
    assert found == {"a": {"b": [{"c": 1}]}, "d": None}
    assert isinstance(found["a"]["b"][0], AnsweredFields)
    assert decoded(URL, b"[1,2]", list) == [1, 2]
    assert decoded(URL, b"3") == 3


@pytest.mark.parametrize(
    ("content", "kind", "shown"),
    [
        (b"<html>\n  hello</html>", dict, "it answered '<html> hello</html>'"),
        (b"", dict, "it answered nothing"),
        (b"\xff\x1b[2J", None, "it answered '\ufffd\\x1b[2J'"),
        (b"x" * 100_000, None, "it answered '" + "x" * 40 + "\u2026'"),
        (b"[]", dict, "it answered '[]'"),
        (b"null", list, "it answered 'null'"),
    ],
)
def test_what_is_no_answer_is_an_error_that_names_the_address(content, kind, shown):
    with pytest.raises(Unreachable) as refused:
        decoded(URL, content, kind)
    assert str(refused.value) == f"{URL} does not speak SOW: {shown}"


def test_a_field_that_is_not_there_is_said_to_be_missing_wherever_it_is_looked_for():
    found = decoded(URL, b'[{"why":{}}]', list)
    with pytest.raises(Unreachable, match=r"http://127.0.0.1:1 has no 'client': it is of another"):
        found[0]["client"]
    with pytest.raises(Unreachable, match="has no 'rows'"):
        found[0]["why"]["rows"]
    assert found[0].get("client") is None
    assert "client" not in found[0]


@pytest.mark.parametrize("value", ['"x"', "[]", "{}", "null"])
def test_a_value_of_a_wrong_type_is_said_to_be_none_of_ours(value):
    found = decoded(URL, b'{"records":%s}' % value.encode(), dict)
    shown = "the answer of http://127.0.0.1:1 has a value of a wrong type: it is of another version"
    with pytest.raises(Unreachable, match=shown), understood(URL):
        f"{found['records']:,}"
    with pytest.raises(Unreachable, match="has no 'rows'"), understood(URL):
        found["rows"]
