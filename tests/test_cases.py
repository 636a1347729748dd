"""A test of many cases fails with each that fails, and takes fixtures as any test does."""

import pytest

from tests.cases import CASE_CHARS_MAX, all_cases


@all_cases(("number", "text"), [(1, "1"), (2, "2")])
def test_cases_share_fixtures(tmp_path, number, text):
    assert tmp_path.is_dir()
    assert str(number) == text


def test_one_case_that_fails_is_named():
    @all_cases("number", [1, 2, 3])
    def small(number):
        assert number < 3

    with pytest.raises(AssertionError) as caught:
        small()
    assert caught.value.__notes__ == ["case: {'number': 3}"]


def test_a_long_case_is_cut():
    @all_cases("text", ["x" * 5_000])
    def short(text):
        assert len(text) < 3

    with pytest.raises(AssertionError) as caught:
        short()
    (note,) = caught.value.__notes__
    assert len(note) < CASE_CHARS_MAX + 10


def test_every_case_that_fails_is_named():
    @all_cases("one", "ab")
    @all_cases("other", "ab")
    def alike(one, other):
        assert one == other

    with pytest.raises(ExceptionGroup, match="2 of 2 cases fail") as caught:
        alike()
    notes = [error.__notes__ for error in caught.value.exceptions]
    assert notes == [
        ["case: {'other': 'b'}", "case: {'one': 'a'}"],
        ["case: {'other': 'a'}", "case: {'one': 'b'}"],
    ]


def test_a_test_of_no_case_is_none():
    with pytest.raises(AssertionError, match="cannot fail"):
        all_cases("one", [])
