"""A batch is known again by its rows, however they come, and no other is taken for it."""

from itertools import permutations

import pytest

from sow.sessions.batch_content import BatchContent, content_of
from sow.sessions.staged_rows import StagedRows

ROWS = [("publish", None, b"{}"), ("publish", "k", b"{}"), ("delete", "k", None)]


def content(*rows):
    operations, keys, bodies = zip(*rows, strict=True) if rows else ((), (), ())
    return content_of(StagedRows(operations, keys, bodies))


def test_order_and_chunks_make_no_difference():
    whole = content(*ROWS)
    for some in permutations(ROWS):
        assert content(*some) == whole
        assert content(*some[:1]).plus(content(*some[1:])) == whole
    assert whole.may_be(str(whole))


@pytest.mark.parametrize(
    "other",
    [
        ROWS[:2],
        [*ROWS, ROWS[0]],
        [*ROWS[:2], ("delete", "l", None)],
        [*ROWS[:2], ("expire", "k", None)],
        [("publish", "k", b"{}"), ("publish", "k", b"{}"), ("delete", "k", None)],
        [("publish", None, b"1:k{}"), ("publish", None, b"{}"), ("delete", "k", None)],
        [],
    ],
)
def test_one_row_more_less_or_other_is_another_content(other):
    assert not content(*other).may_be(str(content(*ROWS)))


def test_of_rows_that_are_gone_the_number_is_compared():
    text = str(content(*ROWS))
    assert BatchContent(3, None).may_be(text)
    assert not BatchContent(30, None).may_be(text)
    assert content(ROWS[0]).plus(BatchContent(2, None)) == BatchContent(3, None)
