"""What a query needs is made in steps; which, and who hears of it meanwhile."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow import indexes
from sow.indexes import sorting
from sow.indexes.column_cache import TESTS_CACHED_MAX
from sow.query import answering, index_build
from sow.query.answers import DEAR_TESTS_MAX, TERMS_BY_COLUMNS_MAX
from sow.query.index_build import IncrementalSort, IndexBuild, Unready
from tests.effort import examples
from tests.query.topic import Topic, naive, paths, query

ROWS = 12
VALUES = st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch) -> None:
    monkeypatch.setattr(sorting, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(sorting, "ROWS_AT_ONCE_MIN", 1)
    monkeypatch.setattr(sorting, "PICKED_AT_ONCE", 3)
    monkeypatch.setattr(index_build, "RANKED_AT_ONCE", 5)


class Sheet:
    """Two columns that change; of the records those are found whose first value is not 0."""

    def __init__(self, first: list[int], second: list[int]) -> None:
        self.columns = [np.array(first, np.float64), np.array(second, np.float64)]

    def found(self) -> np.ndarray:
        return np.flatnonzero(self.columns[0])

    def rankings(self) -> list:
        first, second = self.columns
        return [lambda: lambda slots: first[slots], lambda: lambda slots: -second[slots]]

    def with_births(self) -> list:
        return [*self.rankings(), lambda: lambda slots: slots.astype(np.float64)]

    def expected(self) -> list[int]:
        first, second = self.columns
        return sorted(self.found().tolist(), key=lambda slot: (first[slot], -second[slot], slot))


@given(VALUES, VALUES, st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, 3))))
@examples(48)
def test_what_changes_while_it_is_sorted_stands_where_it_belongs(first, second, changes) -> None:
    sheet = Sheet(first, second)
    arranged = IncrementalSort(sheet.found(), sheet.rankings())
    for slot, value in changes:
        arranged.refresh(1)
        sheet.columns[value % 2][slot] = value
        arranged.touch([slot, slot])
    arranged.refresh()
    assert arranged.dirty_count == 0
    assert arranged.of(sheet.found(), sheet.with_births()).tolist() == sheet.expected()


def test_it_is_dirty_until_all_is_sorted() -> None:
    sheet = Sheet([1] * ROWS, [*range(ROWS)])
    arranged = IncrementalSort(sheet.found(), sheet.rankings())
    steps = 0
    while arranged.dirty_count:
        assert arranged.refresh(1) == 1
        steps += 1
    assert steps > ROWS / 2
    assert arranged.of(sheet.found(), sheet.with_births()).tolist() == [*range(ROWS)][::-1]


def test_nothing_can_be_arranged() -> None:
    sheet = Sheet([0] * ROWS, [0] * ROWS)
    arranged = IncrementalSort(sheet.found(), sheet.rankings())
    arranged.refresh()
    assert arranged.of(sheet.found(), sheet.with_births()).tolist() == []


def test_a_sort_that_misses_a_change_is_found_out(monkeypatch) -> None:
    monkeypatch.setattr(IncrementalSort, "touch", lambda *_: None)
    sheet = Sheet([1] * ROWS, [*range(ROWS)])
    arranged = IncrementalSort(sheet.found(), sheet.rankings())
    arranged.refresh()
    sheet.columns[1][0] = 99
    arranged.touch([0])
    assert arranged.of(sheet.found(), sheet.with_births()).tolist() != sheet.expected()


PX, QTY = paths("/px,/qty")


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch) -> None:
    monkeypatch.setattr(index_build, "NOTES_FEW", 1)
    monkeypatch.setattr(indexes, "STEP_NOTES_MAX", 4)
    monkeypatch.setattr("sow.query.answers.FEW_ROWS", 0)
    monkeypatch.setattr("sow.query.answers.FEW_ROWS", 0)


def topic_of(count: int, **more: str) -> Topic:
    topic = Topic(**more)
    topic.put(*({"id": at, "px": at, "qty": count - at} for at in range(count)))
    return topic


def finished(steps) -> tuple[int, list[int]]:
    """How many steps there were, and the slots of the answer."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value.slots.tolist()
        count += 1


@pytest.mark.parametrize(
    ("steps", "filter_", "order", "more"),
    [
        (3, "/px > 7", None, {}),  # 4 and 4 and 2 records
        (3, None, "/px DESC", {}),
        (6, "/px > /qty", None, {}),  # two columns, and all with the answer
        (3, "/id = 3", None, {}),
        (3, None, None, {"keys": ("no key",)}),
    ],
)
def test_what_is_needed_is_made_in_steps(steps, filter_, order, more) -> None:
    topic = topic_of(10)
    requested = query(filter_, order, **more)
    count, slots = finished(answering(topic.indexes, requested))
    assert count == steps
    assert slots == topic.answer(filter_, order, **more).slots.tolist()


def test_what_goes_slowly_takes_more_steps_and_no_longer_ones() -> None:
    """Of three fields a step reads a record, where it asks four by what their columns hold."""
    topic = Topic(memos="/id,/px,/qty")
    topic.put(*({"id": at, "px": [at], "qty": 200 - at} for at in range(200)))
    topic.indexes.refresh()
    count, slots = finished(answering(topic.indexes, query("/px > /qty OR /id > /px")))
    assert count == 200 + 50
    assert slots == [*range(101, 200)]


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"/px + {at} = 5" for at in range(DEAR_TESTS_MAX + 1)),
        " OR ".join("/px > /qty" for _ in range(DEAR_TESTS_MAX + 1)),
    ],
)
def test_a_condition_of_very_many_tests_is_requested_of_few_records_in_a_step(text) -> None:
    """By their bodies: for so few records numpy would take longer."""
    topic = topic_of(40)
    requested = query(text)
    assert requested.filter is not None
    count, slots = finished(answering(topic.indexes, requested))
    assert count >= 40 - 2  # a record in each
    assert slots == naive(topic.table, requested)[0]


def test_of_very_many_conditions_the_first_ones_are_requested_of_columns() -> None:
    topic = topic_of(40)
    text = " AND ".join(f"/px != {at}" for at in range(TERMS_BY_COLUMNS_MAX + 2))
    answered = topic.answer(text)
    assert answered.slots.tolist() == naive(topic.table, query(text))[0]
    requested = [step for step in answered.steps if step.index == "memo(/px)"]
    assert len(requested) == TERMS_BY_COLUMNS_MAX
    assert len(answered.read) == 40 - TERMS_BY_COLUMNS_MAX


def test_texts_are_requested_in_steps_whether_they_are_like_a_pattern() -> None:
    topic = Topic()
    topic.put(*({"id": at, "text": f"{at:03}x"} for at in range(200)))
    read, _ = finished(answering(topic.indexes, query("/text = '077x'")))
    assert read == 50
    count, slots = finished(answering(topic.indexes, query("/text LIKE '^.77'")))
    assert (count, slots) == (50, [77, 177])
    assert finished(answering(topic.indexes, query("/text LIKE '^.77'"))) == (0, [77, 177])


def test_more_tests_of_texts_than_a_column_remembers_come_to_an_end() -> None:
    topic = Topic()
    topic.put(*({"id": at, "text": f"{at}x"} for at in range(30)))
    tests = " OR ".join(f"/text LIKE '^{at}x'" for at in range(TESTS_CACHED_MAX + 4))
    _, slots = finished(answering(topic.indexes, query(tests)))
    assert slots == [*range(TESTS_CACHED_MAX + 4)]


def test_what_is_there_needs_no_steps() -> None:
    topic = topic_of(10)
    topic.answer("/px > 7")
    assert finished(answering(topic.indexes, query("/px > 7"))) == (0, [8, 9])


def test_a_record_that_changes_between_two_steps_is_seen_as_it_is_at_the_end() -> None:
    topic = topic_of(10)
    steps = answering(topic.indexes, query("/px > 7"))
    next(steps)
    topic.put({"id": 0, "px": 100}, {"id": 9, "px": 0}, {"id": 77, "px": 8})
    topic.drop("8")
    assert finished(steps)[1] == [0, 10]


def test_two_queries_make_one_column_together() -> None:
    topic = topic_of(10)
    one, other = (answering(topic.indexes, query("/px > 7")) for _ in range(2))
    next(one), next(other)
    assert finished(one) == (1, [8, 9])
    assert finished(other) == (0, [8, 9])


def test_a_query_that_is_given_up_leaves_nothing_behind_but_its_columns() -> None:
    topic = topic_of(10)
    steps = answering(topic.indexes, query("/px > 7 AND /px > /qty"))
    for _ in range(4):
        next(steps)
    assert len(topic.indexes._held) == 2
    steps.close()
    assert not topic.indexes._held
    assert topic.indexes.memos == (PX, QTY)


def test_a_column_that_a_query_waits_for_makes_no_room_for_another(monkeypatch) -> None:
    monkeypatch.setattr(indexes, "MEMO_COLUMNS_MAX", 1)
    topic = topic_of(10)
    steps = answering(topic.indexes, query("/px > 7"))
    next(steps)
    topic.answer("/qty > 0")
    assert topic.indexes.has_memo(PX)
    topic.put({"id": 0, "px": 100})
    assert finished(steps)[1] == [0, 8, 9]
    topic.answer("/id > 0")
    assert topic.indexes.memos == topic.indexes.key.paths


def test_what_is_requested_for_under_ever_more_changes_is_answered_all_the_same() -> None:
    topic = topic_of(40)
    steps = answering(topic.indexes, query("/px >= 0"))
    for count, _ in enumerate(steps):
        topic.put(*({"id": at, "px": at, "qty": 1} for at in range(20)))
        assert count < 1000


def test_who_needs_too_much_for_one_step_is_sent_of_what() -> None:
    topic = topic_of(10)
    ready = IndexBuild(topic.indexes)
    with pytest.raises(Unready, match="1 indexes have much to read yet") as raised:
        ready.columns([PX])
    (lacking,) = raised.value.lacking
    assert lacking.dirty_count == 10
    assert len(list(ready.steps([lacking]))) == 3
    assert ready.columns([PX])[PX].numbers[:3].tolist() == [0, 1, 2]
    ready.close()


def test_large_records_are_read_in_smaller_steps(monkeypatch) -> None:
    monkeypatch.setattr(indexes, "STEP_BYTES_MAX", 100)
    topic = Topic()
    topic.put(*({"id": at, "text": "x" * 40} for at in range(4)))
    assert topic.indexes.step_notes == 1
