"""One run of a query is found, sorted and paged; several queries have answers of one moment."""

from contextlib import closing

import pytest

from sow import indexes
from sow.query import ConsistentBatch, index_build
from sow.query.answers import answer
from sow.query.index_build import IndexBuild, Unready
from tests.query.topic import Topic, query


@pytest.fixture
def short_steps(monkeypatch) -> None:
    monkeypatch.setattr(index_build, "NOTES_FEW", 1)
    monkeypatch.setattr(indexes, "STEP_NOTES_MAX", 4)
    monkeypatch.setattr("sow.query.search.FEW_ROWS", 0)


def topic_of(count: int) -> Topic:
    topic = Topic()
    topic.put(*({"id": at, "px": at, "qty": count - at} for at in range(count)))
    return topic


@pytest.mark.usefixtures("short_steps")
def test_answers_are_of_one_moment() -> None:
    one, other = topic_of(10), topic_of(12)
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
    topic = topic_of(10)
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
    topic = topic_of(10)
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
    monkeypatch.setattr("sow.query.search.FEW_ROWS", 0)
    ready = IndexBuild(topic.indexes)
    with pytest.raises(Unready):
        answer(ready, query("/qty > 5"))
    ready.close()
