"""The copies of a topic get what concerns them, whether their filter is indexed or evaluated."""

from dataclasses import replace
from random import Random

import pytest

from sow.core.definitions import ConflatedTopic
from sow.expressions import compile_filter
from sow.streaming import filtered_copies
from sow.streaming.filtered_copies import FilteredCopies
from sow.topic.conflated_topic import ConflatedCopy
from tests.cases import all_cases
from tests.topic.making import held, put, records

SECOND = 1_000_000
COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)
TEXTS = (
    None, "/px > 2", "/px BETWEEN 1 AND 3", "/symbol = 'A'", "/symbol LIKE '^A'", "NOT /px = 1",
    "/symbol = 'A' AND /px > 1", "/symbol = 'B' OR /px = 4", "/px IS NULL",
)  # fmt: skip


class Following:
    """A topic, and copies of it by their filters."""

    def __init__(self, *texts):
        self.source = records()
        self.focuses = FilteredCopies()
        self.copies = [self.made(text) for text in texts]
        for copy in self.copies:
            self.focuses.add(copy)
        self.seq = 0

    def made(self, text):
        condition = compile_filter(text) if text else None
        kept = records(replace(COPY, name=f"copy {text}", filter=text), keys=("/id",))
        return ConflatedCopy(kept, self.source, COPY, condition)

    def put(self, now_us, *documents):
        batch = put(self.source, *documents, seq=self.seq + 1, ts_us=now_us)
        self.seq += len(documents)
        return self.focuses.on_batch(batch, now_us)

    def drop(self, now_us, *ids):
        names = [str(id_) for id_ in ids]
        batch = self.source.drop(names, "deleted", lambda n: (range(99, 99 + n), [now_us] * n))
        if batch is not None:
            self.focuses.on_batch(batch, now_us)

    def filed(self):
        return list(self.focuses._filed or ())


@pytest.fixture(params=[1, 2, 100])
def crowd(request, monkeypatch):
    """Filters are indexed, all or from the second on; or evaluated."""
    monkeypatch.setattr(filtered_copies, "CROWD_MIN", request.param)
    return request.param


def random_documents(random):
    for _ in range(random.choice((1, 1, 3, 20))):
        document = {"id": random.randrange(6), "symbol": random.choice("ABC")}
        if random.random() < 0.9:
            document["px"] = random.randrange(6)
        yield document


@all_cases("seed", range(20))
def test_a_copy_is_its_topic_through_its_filter_one_interval_later(crowd, seed):
    random, following, now_us = Random(seed), Following(*TEXTS), 0
    for _ in range(30):
        if random.random() < 0.2:
            following.drop(now_us, random.randrange(6), random.randrange(6))
        else:
            following.put(now_us, *random_documents(random))
        now_us += random.choice((0, SECOND // 3, SECOND))
        if random.random() < 0.5:
            for copy in following.copies:
                copy.advance(now_us)
        following.focuses.check()
    for copy in following.copies:
        copy.advance(now_us + 2 * SECOND)
        copy.conflation.check()
        expected = [
            document
            for document in held(following.source)
            if copy.condition is None
            or copy.condition.holds([document.get(str(path)[1:]) for path in copy.condition.paths])
        ]
        assert by_id(held(copy.copy)) == by_id(expected), copy.copy.name


def by_id(documents):
    return sorted(documents, key=lambda document: document["id"])


def test_those_that_have_something_to_release_now_are_sent_of_once(crowd):
    following = Following("/px > 2", "/symbol = 'A'")
    high, a = following.copies
    assert following.put(0, {"id": 1, "px": 9, "symbol": "B"}) == [high]
    assert following.put(1, {"id": 2, "px": 9, "symbol": "A"}) == [a]
    assert following.put(2, {"id": 2, "px": 9, "symbol": "A"}) == []


def test_a_record_that_comes_twice_in_a_batch_is_heard_of_twice(crowd):
    following = Following("/px > 2", "/px = 7")
    high, _ = following.copies
    following.put(0, {"id": 1, "px": 9}, {"id": 1, "px": 1}, {"id": 2, "px": 3})
    high.advance(2 * SECOND)
    assert held(high.copy) == [{"id": 2, "px": 3}]


def test_copies_with_one_filter_are_one_focus():
    following = Following("/px > 2", "/px > 2", None, None, "/px > 3")
    assert [len(focus.copies) for focus in following.focuses] == [2, 2, 1]
    assert list(following.focuses.copies()) == following.copies


def test_who_was_removed_hears_no_more(crowd):
    following = Following(*TEXTS)
    for copy in following.copies:
        following.focuses.remove(copy)
        following.focuses.check()
    assert following.put(0, {"id": 1, "px": 1, "symbol": "A"}) == []
    assert list(following.focuses) == []
    assert all(copy.due_us() is None for copy in following.copies)


def test_of_many_filters_only_those_are_requested_that_nothing_finds(monkeypatch):
    monkeypatch.setattr(filtered_copies, "CROWD_MIN", 3)
    following = Following("/px = 1", "NOT /px = 2")
    assert following.filed() == []
    for text in ("/px = 3", "/px = 4"):
        following.focuses.add(following.made(text))
    assert [focus.condition.text for focus in following.filed()] == [
        "/px = 1",
        "/px = 3",
        "/px = 4",
    ]
