"""A question and its answer as plain data: what pages mean and how an answer explains itself."""

import numpy as np
import pytest

from sow.errors import ClientError
from sow.query import PlanStep, Query, QueryAnswer


def answer(*indexes, read=(), slots=()):
    steps = tuple(PlanStep((f"/{n} = 1",), index, 5) for n, index in enumerate(indexes))
    return QueryAnswer(np.array(slots, np.int64), 9, steps, np.array(read, np.int64), "none")


@pytest.mark.parametrize("name", ["top_n", "skip_n"])
def test_a_negative_count_is_refused_by_name(name):
    with pytest.raises(ClientError, match=f"^{name} is -1; write 0"):
        Query(**{name: -1})


@pytest.mark.parametrize(
    ("top_n", "skip_n", "end"), [(None, 0, None), (None, 5, None), (0, 0, 0), (3, 5, 8)]
)
def test_the_end_of_a_page_counts_what_is_skipped(top_n, skip_n, end):
    assert Query(top_n=top_n, skip_n=skip_n).end == end


def test_an_answer_names_each_index_once_and_scans_only_where_none_served():
    assert answer("hash(/a)", "scan", "memo(/b)", "hash(/a)").index == "hash(/a), memo(/b)"
    assert answer("scan").index == "scan"
    assert answer().index == "scan"


def test_a_record_that_is_read_and_returned_is_touched_once():
    explained = answer("scan", read=[1, 2, 3], slots=[3, 4]).explain
    assert explained["rows_touched"] == 4
    assert explained["terms"] == [{"expression": "/0 = 1", "index": "scan", "rows": 5}]
    assert explained["advice"] == "none"


def test_the_plan_is_sent_in_sentences_too():
    found = answer("hash(/a)", "scan", read=[1, 2], slots=[2])
    assert found.explain["why"] == [
        "/0 = 1: served by hash(/a); 5 records left",
        "/1 = 1: what was left of the records was read; 5 records left",
        "read to decide or to answer: 2 records",
        "none",
    ]
    (scanned, *_) = answer("scan").explain["why"]
    assert scanned == "/0 = 1: no index served it: all records were read; 5 records left"
    everything = QueryAnswer(found.slots, 9, (PlanStep((), "scan", 9),), found.read, "")
    assert everything.explain["why"] == [
        "all records match: 9 records",
        "read to decide or to answer: 2 records",
    ]


def test_who_may_see_some_records_is_sent_nothing_of_others_in_sentences_either():
    explained = answer("hash(/a)", "scan", read=[1, 2]).explain_guarded
    assert explained["why"] == ["served by hash(/a); 9 records left of those that you may see"]
