"""A question and its answer as plain data: what pages mean and how an answer explains itself.

Indexes find what they stand for; what is left is the same as a mask or a list.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import ClientError
from sow.expressions import compile_filter
from sow.query import PlanStep, Query, QueryAnswer, query
from sow.query.index_build import IndexBuild
from sow.query.query import (
    LISTED_SHARE_MAX,
    Candidates,
    hash_access_paths,
    interval_access_paths,
    pins_of,
    terms_of,
)
from sow.store.memory import Table
from tests.query.topic import Topic, paths


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


SLOTS = 64


@pytest.fixture
def table():
    return _table()


def _table(dropped=()):
    table = Table(None)
    names = [str(number) for number in range(SLOTS)]
    table.put(names, [b""] * SLOTS, range(1, SLOTS + 1), [0] * SLOTS)
    table.drop(map(str, dropped))
    return table


def mask(slots, size=SLOTS):
    return np.isin(np.arange(size), list(slots))


subsets = st.lists(st.frozensets(st.integers(0, SLOTS - 1)), max_size=4)


@given(st.frozensets(st.integers(0, SLOTS - 1), min_size=1), subsets)
def test_what_is_left_is_what_every_test_has_kept(there, tests):
    table = _table(set(range(SLOTS)) - there)
    candidates, left = Candidates(table), set(there)
    candidates.become(table.live())
    for kept in tests:
        listed = candidates.listed
        candidates.keep(mask(kept) if listed is None else np.isin(listed, list(kept)))
        left &= kept
        assert set(candidates.slots().tolist()) == left
        assert len(candidates) == len(left)


@given(subsets)
def test_masks_over_all_slots_narrow_down_too(tests):
    candidates, left = Candidates(_table()), set(range(SLOTS))
    for kept in tests:
        listed = candidates.listed
        one = mask(kept) if listed is None else np.isin(listed, list(kept))
        assert set(candidates.picked(one).tolist()) == left & kept
        candidates.keep(one)
        left &= kept
        assert set(candidates.slots().tolist()) == left


def test_at_first_all_are_in_question(table):
    candidates = Candidates(table)
    assert candidates.are_all
    assert len(candidates) == SLOTS
    candidates.keep(mask(range(SLOTS)))
    assert not candidates.are_all


def test_few_are_listed_and_many_are_not(table):
    few = int(SLOTS * LISTED_SHARE_MAX)
    for count, listed in ((few, True), (few + 1, False)):
        candidates = Candidates(table)
        candidates.keep(mask(range(count)))
        assert (candidates.listed is not None) == listed
        assert len(candidates) == count


def test_slots_that_were_freed_are_not_in_question():
    assert sorted(Candidates(_table({3, 4})).slots().tolist()) == sorted(set(range(SLOTS)) - {3, 4})


(PX,) = paths("/px")


@pytest.fixture(autouse=True)
def _small_topics(monkeypatch) -> None:
    monkeypatch.setattr(query, "SORTED_ROWS_MIN", 10)


def topic_of(count: int = 100) -> Topic:
    topic = Topic("/a")
    topic.put(*({"id": at, "a": at % 4, "px": at, "text": f"t{at}"} for at in range(count)))
    return topic


def terms(text: str) -> tuple:
    return terms_of(compile_filter(text))


def intervals(topic: Topic, text: str) -> list:
    return list(interval_access_paths(IndexBuild(topic.indexes), terms(text)))


def test_a_field_is_pinned_by_the_term_with_the_fewest_literals() -> None:
    pins = pins_of(terms("/a IN (1, 2) AND /a = 1 AND /b > 3"))
    assert [(str(path), list(pin.literals)) for path, pin in pins.items()] == [("/a", [1])]


def test_a_hash_index_leads_to_what_equals() -> None:
    topic = topic_of()
    (way,) = hash_access_paths(topic.indexes.hashes, pins_of(terms("/a = 3 AND /px > 2")))
    assert sorted(way.slots().tolist()) == [*range(3, 100, 4)]
    assert way.among(np.array([3, 4])).tolist() == [True, False]
    assert [str(path) for path in way.paths] == ["/a"]


def test_terms_of_one_field_are_one_interval() -> None:
    (way,) = intervals(topic_of(), "/px >= 7 AND 9 > /px AND /px BETWEEN 0 AND '50'")
    assert sorted(way.slots().tolist()) == [7, 8]
    assert np.flatnonzero(way.among(None)).tolist() == [7, 8]
    assert way.among(np.array([8, 3])).tolist() == [True, False]
    assert (len(way.terms), way.kind) == (3, "memo")


def test_an_interval_is_selective_if_it_holds_few() -> None:
    topic = topic_of(2000)
    topic.answer("/px > 5")
    for way in intervals(topic, "/px > 5"):
        way._order.refresh()
    assert [way.is_selective() for way in intervals(topic, "/px > 1990")] == [True]
    assert [way.is_selective() for way in intervals(topic, "/px > 1000")] == [False]


@pytest.mark.parametrize(
    "text", ["/px != 5", "/px LIKE '5'", "/px > /a", "/px > 'x'", "/px = NULL", "NOT /px > 5"]
)
def test_what_is_no_interval_of_numbers_has_no_way(text: str) -> None:
    assert intervals(topic_of(), text) == []


@pytest.mark.parametrize("value", ["text", [1, 2], 2**53 + 1])
def test_a_field_of_other_values_has_no_way(value: object) -> None:
    topic = topic_of()
    topic.put({"id": "odd", "px": value})
    assert intervals(topic, "/px > 5") == []


def test_a_small_topic_has_no_way() -> None:
    assert intervals(topic_of(9), "/px > 5") == []


def test_the_most_selective_way_goes_first() -> None:
    topic = topic_of(4000)
    assert topic.answer("/a = 1 AND /px > 10").matches == 997
    topic.indexes.refresh()
    assert topic.answer("/a = 1 AND /px > 10").index == "hash(/a), memo(/px)"
    answer = topic.answer("/a = 1 AND /px > 3980")
    assert (answer.index, answer.matches) == ("memo(/px), hash(/a)", 5)


def test_the_first_of_all_stand_at_one_end() -> None:
    topic = topic_of(1000)
    assert topic.found(None, "/px DESC", top_n=2) == [999, 998]
    assert topic.indexes.memo(PX).sorted is not None
    topic.put({"id": 5, "px": 5000}, {"id": 999, "px": None})
    assert topic.found(None, "/px DESC, /id", top_n=2) == [5, 998]
    assert topic.found(None, "/px", top_n=2) == [999, 0]
