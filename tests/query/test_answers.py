"""Answering in steps, several queries as of one moment, and in which order."""

from contextlib import closing

import pytest

from sow import indexes
from sow.core.cooperative import run_to_completion
from sow.core.paths import parse_path
from sow.errors import ClientError
from sow.indexes import sorting
from sow.query import ConsistentBatch, Query, answering, answers, index_build
from sow.query import query as access
from sow.query.answers import answer
from sow.query.index_build import IndexBuild, Unready
from tests.cases import all_cases
from tests.query.topic import Topic, naive, query


@pytest.fixture(autouse=True, params=["bodies", "columns"])
def _way(request, monkeypatch) -> None:
    """Few records are sorted by their bodies; here also by columns."""
    if request.param == "columns":
        monkeypatch.setattr(answers, "FEW_ROWS", 0)
        monkeypatch.setattr(answers, "SAMPLE_EVERY", 2)


def topic_of(*values: object) -> Topic:
    topic = Topic()
    topic.put(*({"id": number, "v": value} for number, value in enumerate(values)))
    return topic


def test_without_order_by_records_stand_as_first_published() -> None:
    topic = topic_of("b", "a", "c")
    topic.drop("0")
    topic.put({"id": 9}, {"id": 1}, {"id": 0})
    assert topic.found() == [1, 2, 9, 0]


def test_nulls_stand_first_and_numbers_before_texts() -> None:
    assert topic_of("b", 2, None, "10", 1.5, "", True).found(None, "/v") == [2, 5, 6, 4, 1, 3, 0]


def test_descending_is_the_reverse_except_for_ties() -> None:
    topic = topic_of(2, None, 1, 2, None)
    assert topic.found(None, "/v") == [1, 4, 2, 0, 3]
    assert topic.found(None, "/v DESC") == [0, 3, 2, 1, 4]


def test_texts_sort_by_their_characters() -> None:
    topic = topic_of("b", "ä", "a", None, "B", "a")
    assert topic.found(None, "/v") == [3, 4, 2, 5, 0, 1]
    assert topic.found(None, "/v DESC") == [1, 0, 2, 5, 4, 3]


def test_numbers_can_be_sorted_as_texts() -> None:
    assert topic_of(9, 10, 2).found(None, "/v TEXT") == [1, 2, 0]


def test_a_list_counts_by_its_first_element() -> None:
    assert topic_of([3, 0], 2, [1, 9]).found(None, "/v") == [2, 1, 0]


def test_large_integers_keep_their_order() -> None:
    assert topic_of(2**53 + 1, 2**53, 2**53 + 2).found(None, "/v") == [1, 0, 2]


def test_what_is_calculated_can_be_sorted_by() -> None:
    topic = Topic()
    topic.put(*({"id": at, "a": a, "b": b} for at, (a, b) in enumerate([(1, 9), (2, 3), (4, 2)])))
    assert topic.found(None, "/a * /b DESC") == [0, 2, 1]
    assert topic.found(None, "/a % 2, /b") == [2, 1, 0]
    assert topic.found(None, "/a > 1 DESC, /id DESC") == [2, 1, 0]
    assert topic.found("/b < 5", "/a * -1", top_n=1) == [2]


def test_what_comes_to_nothing_stands_first_then_what_is_no_number() -> None:
    topic = topic_of("x", 2.0, 0.0, None, 1.0)
    assert topic.found(None, "0 / (/v * 1.0)") == [0, 3, 2, 1, 4]
    assert topic.found(None, "0 / (/v * 1.0) DESC") == [1, 4, 2, 0, 3]


def test_numbers_and_texts_that_are_calculated_rank_like_any_others() -> None:
    topic = topic_of("b", 2, None, "10", 1.5, "", True)
    assert topic.found(None, "COALESCE(/v, /v)") == topic.found(None, "/v")
    assert topic.found(None, "IF(/v = 2, 'z', /v)") == [2, 5, 6, 4, 3, 0, 1]


@all_cases("direction", ["", " DESC"])
@all_cases("end", range(0, 32, 5))
def test_the_first_few_of_what_is_calculated(direction: str, end: int) -> None:
    topic = topic_of(*[None if at % 5 == 0 else at * 7 % 11 for at in range(30)])
    everything = topic.found(None, f"/v * 2{direction}, /v")
    assert everything == topic.found(None, f"/v{direction}")
    found = topic.found("/v IS NOT NULL", f"/v * 2{direction}", top_n=end)
    assert found == topic.found("/v IS NOT NULL", f"/v{direction}", top_n=end)


def test_it_is_sent_what_has_served_a_term(monkeypatch) -> None:
    monkeypatch.setattr(answers, "FEW_ROWS", 0)
    (step,) = topic_of(1, 2).answer(None, "/v, /v * 2 DESC").steps[1:]
    assert (step.expression, step.index) == ("ORDER BY /v, (/v * 2) DESC", "memo(/v), scan")


def test_an_order_of_calculated_terms_leaves_no_column_behind() -> None:
    topic = topic_of(*range(300))
    topic.found(None, "/v * 2 DESC")
    assert topic.indexes.memos == ()
    assert not topic.indexes._held


def test_of_few_found_among_many_only_these_are_calculated(monkeypatch) -> None:
    monkeypatch.setattr(index_build, "NOTES_FEW", 0)
    monkeypatch.setattr("sow.indexes.STEP_NOTES_MAX", 1)
    topic = topic_of(*range(400))
    topic.found("/v < 20")
    topic.indexes.refresh()
    assert topic.found("/v < 20", "/v * -1") == list(range(19, -1, -1))
    assert len(list(answering(topic.indexes, query("/v < 20", "/v * -1")))) < 100


def test_a_second_field_decides_between_equals() -> None:
    topic = Topic()
    topic.put(
        *({"id": at, "a": a, "b": b} for at, (a, b) in enumerate([(1, "x"), (0, "y"), (1, "z")]))
    )
    assert topic.found(None, "/a DESC, /b DESC") == [2, 0, 1]
    assert topic.found(None, "/a DESC, /b DESC", top_n=1) == [2]


@all_cases("direction", ["", " DESC"])
@all_cases("end", range(0, 32, 3))
def test_the_first_few_are_the_start_of_all(direction: str, end: int) -> None:
    topic = topic_of(*[None if at % 5 == 0 else at * 7 % 11 for at in range(30)])
    everything = topic.found(None, f"/v{direction}")
    assert topic.found(None, f"/v{direction}", top_n=end) == everything[:end]
    assert topic.found(None, f"/v{direction}", top_n=2, skip_n=end) == everything[end : end + 2]


def test_ties_stand_as_first_published_even_in_slots_used_again() -> None:
    topic = topic_of(1, 1, 1, 1)
    topic.drop("0", "1")
    topic.put({"id": 8, "v": 1}, {"id": 9, "v": 1})
    assert topic.found(None, "/v", top_n=3) == [2, 3, 8]


def test_who_becomes_one_of_the_first_while_they_are_sorted_is_one_of_them(monkeypatch) -> None:
    for module, bound in (
        (answers, "RANKS_AT_ONCE"),
        (answers, "FEW_ROWS"),
        (index_build, "NOTES_FEW"),
        (access, "SORTED_ROWS_MIN"),
        (sorting, "MOVED_SPARE"),
    ):
        monkeypatch.setattr(module, bound, 0)
    topic, requested = topic_of(*range(40)), query(None, "/v", top_n=20)
    topic.found(None, "/v", top_n=20)
    topic.indexes.refresh()
    steps = answering(topic.indexes, requested)
    next(steps)
    topic.drop("3")
    assert run_to_completion(steps).slots.tolist() == naive(topic.table, requested)[0]


def test_texts_that_come_while_others_are_sorted_stand_where_they_belong(monkeypatch) -> None:
    monkeypatch.setattr(answers, "RANKS_AT_ONCE", 0)
    monkeypatch.setattr(answers, "FEW_ROWS", 0)
    monkeypatch.setattr(index_build, "NOTES_FEW", 0)
    monkeypatch.setattr("sow.query.index_build.RANKED_AT_ONCE", 2)
    topic = topic_of(*(f"m{at:03}" for at in range(300)))
    steps, found, at = answering(topic.indexes, query(None, "/v")), None, 0
    while found is None:
        try:
            next(steps)
        except StopIteration as over:
            found = over.value
        else:
            at += 1
            topic.put({"id": at * 7 % 310, "v": f"{'nlk'[at % 3]}{at}"})
            column = topic.indexes.memo(parse_path("/v"))
            column.refresh()
    assert at > 10
    assert found.slots.tolist() == naive(topic.table, query(None, "/v"))[0]


def test_paging_does_not_change_the_number_of_matches() -> None:
    answer = topic_of(*range(10)).answer("/v > 3", "/v", top_n=2, skip_n=5)
    assert (answer.matches, len(answer.slots)) == (6, 1)


def test_none_may_be_requested_for() -> None:
    topic = topic_of(1, 2)
    assert topic.found(top_n=0) == topic.found(None, "/v", top_n=0) == topic.found(skip_n=7) == []


def test_an_empty_topic_can_be_sorted() -> None:
    assert Topic().found("/v = 1", "/v DESC") == Topic().found(None, "/v", top_n=3) == []


@pytest.mark.parametrize("name", ["top_n", "skip_n"])
def test_negative_counts_are_refused_by_name(name: str) -> None:
    with pytest.raises(ClientError, match=rf"{name} is -1; write 0 or a positive number"):
        Query(**{name: -1})


@pytest.fixture
def short_steps(monkeypatch) -> None:
    monkeypatch.setattr(index_build, "NOTES_FEW", 1)
    monkeypatch.setattr(indexes, "STEP_NOTES_MAX", 4)
    monkeypatch.setattr("sow.query.answers.FEW_ROWS", 0)


def counted_topic(count: int) -> Topic:
    topic = Topic()
    topic.put(*({"id": at, "px": at, "qty": count - at} for at in range(count)))
    return topic


@pytest.mark.usefixtures("short_steps")
def test_answers_are_of_one_moment() -> None:
    one, other = counted_topic(10), counted_topic(12)
    high, low = query("/px > 7"), query("/qty < 3")
    questions = [(one.indexes, high), (other.indexes, low), (one.indexes, high)]
    with closing(ConsistentBatch()) as together:
        steps = 0
        while (found := together.answers(questions)) is None:
            for _ in together.make_ready(questions):
                # Both hear of what changes while the other one is made ready.
                one.put({"id": 1, "px": 9, "qty": 0})
                other.put({"id": 1, "px": 0, "qty": 1})
                steps += 1
        assert steps > 3
        assert [found[question].slots.tolist() for question in questions] == [
            [1, 8, 9],
            [1, 10, 11],
            [1, 8, 9],
        ]


@pytest.mark.usefixtures("short_steps")
def test_what_has_changed_too_much_has_to_be_made_ready_again() -> None:
    topic = counted_topic(10)
    questions = [(topic.indexes, query("/px > 7"))]
    with closing(ConsistentBatch()) as together:
        for _ in together.make_ready(questions):
            pass
        topic.put(*({"id": at, "px": 8} for at in range(5)))
        assert together.answers(questions) is None
        for _ in together.make_ready(questions):
            pass
        assert together.answers(questions)[questions[0]].matches == 7


@pytest.mark.usefixtures("short_steps")
def test_indexes_are_released() -> None:
    topic = counted_topic(10)
    together = ConsistentBatch()
    for _ in together.make_ready([(topic.indexes, query("/px > 7"))]):
        pass
    together.close()
    topic.indexes.check()


def test_an_answer_is_found_sorted_and_paged(monkeypatch) -> None:
    topic = Topic()
    topic.put(*({"id": at, "px": 10 - at} for at in range(6)))
    ready = IndexBuild(topic.indexes)
    requested = query("/px > 5", "/px", top_n=2, skip_n=1)
    found = answer(ready, requested)
    assert (found.slots.tolist(), found.matches) == ([3, 2], 5)
    ready.close()
    monkeypatch.setattr(index_build, "NOTES_FEW", 1)
    monkeypatch.setattr("sow.query.answers.FEW_ROWS", 0)
    ready = IndexBuild(topic.indexes)
    with pytest.raises(Unready):
        answer(ready, query("/qty > 5"))
    ready.close()
