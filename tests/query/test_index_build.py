"""What a query needs is made in steps; which, and who hears of it meanwhile."""

import pytest

from sow import indexes
from sow.indexes.column_cache import TESTS_CACHED_MAX
from sow.query import answering, index_build
from sow.query.index_build import IndexBuild, Unready
from sow.query.search import DEAR_TESTS_MAX, TERMS_BY_COLUMNS_MAX
from tests.query.topic import Topic, naive, paths, query

PX, QTY = paths("/px,/qty")


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch) -> None:
    monkeypatch.setattr(index_build, "NOTES_FEW", 1)
    monkeypatch.setattr(indexes, "STEP_NOTES_MAX", 4)
    monkeypatch.setattr("sow.query.search.FEW_ROWS", 0)
    monkeypatch.setattr("sow.query.order.FEW_ROWS", 0)


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
