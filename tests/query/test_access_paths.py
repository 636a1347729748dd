import numpy as np
import pytest

from sow.expressions import compile_filter
from sow.query import access_paths
from sow.query.access_paths import hash_access_paths, interval_access_paths, pins_of
from sow.query.index_build import IndexBuild
from tests.query.topic import Topic, paths

(PX,) = paths("/px")


@pytest.fixture(autouse=True)
def _small_topics(monkeypatch) -> None:
    monkeypatch.setattr(access_paths, "SORTED_ROWS_MIN", 10)


def topic_of(count: int = 100) -> Topic:
    topic = Topic("/a")
    topic.put(*({"id": at, "a": at % 4, "px": at, "text": f"t{at}"} for at in range(count)))
    return topic


def terms(text: str) -> tuple:
    return compile_filter(text).conjuncts


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
