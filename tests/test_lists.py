"""Lists as they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.lists import comma_list, read_list, split_list


@pytest.mark.parametrize(
    ("text", "members"),
    [("", []), (" , ,", []), ("a", ["a"]), (" a , b,", ["a", "b"]), (["a ", "", "b"], ["a", "b"])],
)
def test_members_stand_between_commas(text, members):
    assert comma_list(text) == members


@pytest.mark.parametrize(
    ("text", "words"),
    [("a,b=[/x,/y],c", ["a", "b=[/x,/y]", "c"]), ("[[a,b],c],d", ["[[a,b],c]", "d"]), ("", [])],
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
    for member in read_list(text):
        assert text[member.position :].startswith(member)
