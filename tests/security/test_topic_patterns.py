"""Names that are patterns, and the names of copies read both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import ClientError, TooLarge
from sow.security.topic_patterns import (
    copied_from,
    copy_ends,
    copy_name,
    is_meant_as_pattern,
    is_pattern,
    topic_search,
)
from tests.cases import all_cases

names = st.text("ab.%n_", max_size=8)


@all_cases("name", ["^a", "a$", "a.b", "a*", "a+", "a?", "(a)", "[a]", "a|b", "a\\d"])
def test_a_name_with_a_metacharacter_may_be_a_pattern(name):
    assert is_pattern(name)


@pytest.mark.parametrize("name", ["orders", "/orders/eu", "a-b_c:d", "Aufträge", ""])
def test_every_other_name_is_only_a_name(name):
    assert not is_pattern(name)


def test_a_pattern_is_found_anywhere_in_a_name():
    matches = topic_search("ord.rs")
    assert matches("my-orders-eu")
    assert not matches("order")
    assert not topic_search("^ord")("my-orders")


def test_what_is_wrong_with_a_pattern_is_said_of_the_topic():
    with pytest.raises(ClientError, match=r"^topic ") as caught:
        topic_search("ord(")
    assert caught.value.reason == "bad regex topic"
    assert "LIKE" not in caught.value.detail


def test_a_pattern_that_would_need_too_much_is_refused():
    with pytest.raises(TooLarge, match=r"^topic "):
        topic_search("a{1000}" * 10)


@given(names, names, names.filter(bool))
def test_the_source_of_a_copy_is_found_from_its_name(before, after, source):
    topic_format = f"{before}%n{after}"
    assert copied_from(topic_format, copy_name(topic_format, source)) == source


@given(names, names)
def test_a_source_is_found_only_where_it_gives_that_copy(topic_format, copy):
    source = copied_from(topic_format, copy) if "%n" in topic_format else None
    assert source is None or copy_name(topic_format, source) == copy
    if source is not None:
        begins, ends = copy_ends(topic_format)
        assert copy.startswith(begins)
        assert copy.endswith(ends)


@pytest.mark.parametrize(
    ("topic_format", "copy", "source"),
    [
        ("%n-conflated", "orders-conflated", "orders"),
        ("%n-conflated", "-conflated", None),
        ("%n-conflated", "orders", None),
        ("%n/%n", "a/a", "a"),
        ("%n/%n", "a/b", None),
        ("%n/%n", "a/aa", None),
    ],
)
def test_names_of_copies(topic_format, copy, source):
    assert copied_from(topic_format, copy) == source


@pytest.mark.parametrize(
    ("name", "is_meant"),
    [("orders", False), ("md.spot", False), ("md.*", True), ("^/desk/", True), ("a|b", True)],
)
def test_a_name_with_nothing_but_dots_is_hardly_meant_as_a_pattern(name, is_meant):
    assert is_meant_as_pattern(name) is is_meant
