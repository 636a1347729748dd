"""Lists as they are written."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.comma_lists import (
    comma_list,
    expressions_end,
    read_expressions,
    read_list,
    split_list,
)
from sow.errors import ClientError
from tests.cases import all_cases


@pytest.mark.parametrize(
    ("text", "members"),
    [("", []), (" ", []), ("a", ["a"]), (" a , b", ["a", "b"]), (["a ", "", "b"], ["a", "b"])],
)
def test_members_stand_between_commas(text, members):
    assert comma_list(text) == members


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b=[/x,/y],c", ["a", "b=[/x,/y]", "c"]),
        ("[[a,b],c],d", ["[[a,b],c]", "d"]),
        ("", []),
        (r"""$['a]\'],b'],c,$["]"],d""", [r"$['a]\'],b']", "c", '$["]"]', "d"]),
    ],
)
def test_a_comma_in_brackets_belongs_to_its_word(text, words):
    assert split_list(text) == words


@pytest.mark.parametrize("text", ["a]],b", "[[a,b", "]a,b["])
def test_brackets_that_do_not_match_lose_nothing(text):
    assert ",".join(split_list(text)) == text


@pytest.mark.parametrize("text", ["/a,-/b", "[/a,-/b]", "  [ /a , -/b ] "])
def test_members_of_a_list_know_where_they_stand(text):
    members = read_list(text)
    assert members == ("/a", "-/b")
    assert all(text[member.position :].startswith(member) for member in members)


@given(st.text(alphabet="a/[], \t"))
def test_every_member_stands_where_it_says(text):
    with suppress(ClientError):
        for member in read_list(text):
            assert text[member.position :].startswith(member)


@all_cases("read", [comma_list, read_list, read_expressions, split_list])
@all_cases("text", [",", "/a,", ",/a", "/a,,/b", "/a, ,/b"])
def test_an_empty_item_is_refused(read, text):
    with pytest.raises(ClientError, match="has an empty item"):
        read(text)
    if read in (read_list, read_expressions):
        with pytest.raises(ClientError, match="has an empty item"):
            read(f"[{text}]")


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("", ()),
        ("/desk, SUM(/qty) AS /qty", ("/desk", "SUM(/qty) AS /qty")),
        ("[/desk,IF(/a > 1, 1, 0) AS /b]", ("/desk", "IF(/a > 1, 1, 0) AS /b")),
        ("GROUP_CONCAT(/a, ',') AS /b,/c", ("GROUP_CONCAT(/a, ',') AS /b", "/c")),
        ("'a,b]' AS /a,\"c,\" AS /b", ("'a,b]' AS /a", '"c," AS /b')),
        ("[/odd name],[orders]./a", ("[/odd name]", "[orders]./a")),
        ("[[/odd name]]", ("[/odd name]",)),
        ("'no end, /a", ("'no end, /a",)),
    ],
)
def test_expressions_hold_commas_in_parentheses_and_quotes(text, members):
    found = read_expressions(text)
    assert found == members
    assert all(text[one.position :].startswith(one) for one in found)


def test_a_list_of_expressions_is_read_in_one_pass():
    for text in ("'" * 60_001, "'\\" * 30_000, "[/" * 30_000, "(" * 60_000, "r'" * 30_000):
        assert len(read_expressions(text)) <= 1
        assert expressions_end(text, 0) == -1
