"""A conflated copy: what it takes over, when it changes, and what it says of what leaves."""

import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Merge
from sow.expressions import compile_filter
from sow.topic import conflated_topic
from sow.topic.conflated_topic import ConflatedCopy
from tests.topic.making import held, put, records

SECOND = 1_000_000
COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)


class Both:
    """A topic and its copy, under a clock moved by hand."""

    def __init__(self, definition=COPY, condition=None):
        self.source = records()
        self.target = records(definition, keys=("/id",))
        compiled = compile_filter(condition) if condition else None
        self.copy = ConflatedCopy(self.target, self.source, definition, compiled)
        self.seq = 0

    def put(self, now_us, *documents):
        self.copy.on_batch(put(self.source, *documents, seq=self.seq + 1, ts_us=now_us), now_us)
        self.seq += len(documents)

    def drop(self, now_us, *ids):
        names = self.source.identities_of([json.dumps({"id": id_}).encode() for id_ in ids])
        batch = self.source.drop(names, "deleted", lambda n: (range(99, 99 + n), [now_us] * n))
        if batch is not None:
            self.copy.on_batch(batch, now_us)

    def release(self, now_us):
        """What the copy says: (documents that came, reason for those that left)."""
        said = []
        while (due_us := self.copy.due_us()) is not None and due_us <= now_us:
            said += [
                batch.changes.reason or [json.loads(new) for new in batch.changes.news]
                for batch in self.copy.advance(now_us)
            ]
        return said


def test_what_comes_says_where_it_stood_before_and_what_is_new_where_it_stands():
    both = Both()
    both.put(0, {"id": 1}, {"id": 2})
    both.release(SECOND)
    both.drop(SECOND, 1)
    both.put(SECOND, {"id": 1, "v": 2}, {"id": 2, "v": 2}, {"id": 3})
    (batch,) = both.copy.advance(2 * SECOND)
    assert list(batch.changes.identities) == ["1", "2", "3"]
    assert batch.changes.stood == [1, 2, 5]
    assert [document["id"] for document in held(both.target)] == [2, 1, 3]


def test_nothing_is_said_before_the_interval_is_over_and_then_the_last():
    both = Both()
    both.put(0, {"id": 1, "v": 1})
    both.put(400_000, {"id": 1, "v": 2})
    assert both.release(SECOND - 1) == []
    assert both.copy.due_us() == SECOND
    assert both.release(SECOND) == [[{"id": 1, "v": 2}]]
    assert held(both.target) == [{"id": 1, "v": 2}]
    assert both.copy.due_us() is None


def test_what_changes_in_one_moment_has_windows_of_that_moment():
    both = Both()
    both.source.set_changing(True)
    both.source.changes_us = 100_000
    both.put(100_000, {"id": 1})
    both.put(900_000, {"id": 2})
    assert both.copy.due_us() is None
    both.source.set_changing(False)
    both.put(900_000, {"id": 3})
    assert both.copy.due_us() == SECOND + 100_000
    assert both.release(SECOND + 100_000) == [[{"id": 1}, {"id": 2}]]
    assert both.copy.due_us() == SECOND + 900_000


def test_a_late_release_joins_no_windows():
    both = Both()
    both.put(0, {"id": 1, "v": 1})
    both.put(SECOND, {"id": 1, "v": 2})
    assert both.release(9 * SECOND) == [[{"id": 1, "v": 1}], [{"id": 1, "v": 2}]]


def test_a_record_that_came_and_went_within_a_window_was_never_there():
    both = Both()
    both.put(0, {"id": 1})
    both.drop(1, 1)
    assert both.release(SECOND) == []
    assert held(both.target) == []


def test_what_no_longer_passes_leaves_with_the_state_that_made_it():
    both = Both(condition="/v > 1")
    both.put(0, {"id": 1, "v": 2})
    both.release(SECOND)
    both.put(SECOND, {"id": 1, "v": 0})
    (batch,) = both.copy.advance(2 * SECOND)
    assert batch.changes.reason == "match"
    assert json.loads(batch.parting(0)) == {"id": 1, "v": 0}
    assert held(both.target) == []


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 5), st.integers(1, SECOND)),
    max_size=12,
)


@given(steps, st.sampled_from(["per-key", "tick"]), st.sampled_from([None, "/v > 2"]))
def test_one_quiet_interval_later_a_copy_is_what_passes_of_the_original(log, schedule, condition):
    both, now = Both(replace(COPY, schedule=schedule), condition), 0
    for id_, value, pause in log:
        now += pause
        if value is None:
            both.drop(now, id_)
        else:
            both.put(now, {"id": id_, "v": value})
        both.release(now)
    both.release(now + 2 * SECOND)
    wanted = [one for one in held(both.source) if condition is None or one["v"] > 2]
    assert held(both.target) == wanted, "in the order of the original, however they came"
    both.target.table.check()


def test_a_copy_is_filled_at_once_with_what_there_is():
    both = Both(condition="/v > 1")
    put(both.source, {"id": 1, "v": 1}, {"id": 2, "v": 2})
    run_to_completion(both.copy.fill(lambda: 2, both.target))
    assert held(both.target) == [{"id": 2, "v": 2}]
    assert both.copy.filled_seq == 2
    assert both.copy.due_us() is None


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_that_is_filled_in_steps_is_what_there_is_in_the_last(seed, monkeypatch):
    monkeypatch.setattr(conflated_topic, "STEP_ROWS", 2)
    random, both = Random(seed), Both(condition="/v > 1")
    put(both.source, *[{"id": at, "v": random.randrange(4)} for at in range(10)])
    both.seq = 10
    for _ in both.copy.fill(lambda: 99, both.target):
        if random.random() < 0.7:
            both.put(0, {"id": random.randrange(14), "v": random.randrange(4)})
        else:
            both.drop(0, random.randrange(14))
    assert both.copy.due_us() is None, "no window was opened"
    assert held(both.target) == [one for one in held(both.source) if one["v"] > 1]
    both.target.check()


def test_a_record_that_is_there_anew_says_where_it_stood():
    """Live windows and views over the copy go by the order of its records."""
    both = Both()
    both.put(0, {"id": 1}, {"id": 2})
    both.release(SECOND)
    both.drop(SECOND, 1)
    both.put(SECOND, {"id": 1})
    (batch,) = both.copy.advance(2 * SECOND)
    assert held(both.target) == [{"id": 2}, {"id": 1}]
    assert batch.changes.stood == [1]
    both.put(2 * SECOND, {"id": 1})
    (batch,) = both.copy.advance(3 * SECOND)
    assert batch.changes.stood is None, "it has stayed"


@pytest.mark.parametrize("seed", range(20))
def test_another_filter_holds_a_window_later_whatever_changes_between_its_steps(seed, monkeypatch):
    monkeypatch.setattr(conflated_topic, "STEP_ROWS", 2)
    random, both = Random(seed), Both(condition="/v > 1")
    for at in range(10):
        both.put(0, {"id": at, "v": random.randrange(4)})
    both.release(random.choice([0, 5 * SECOND]))
    both.copy.refocus(compile_filter("/v < 3"))
    for _ in both.copy.judge_all(lambda: 5 * SECOND):
        if random.random() < 0.7:
            both.put(5 * SECOND, {"id": random.randrange(14), "v": random.randrange(4)})
        else:
            both.drop(5 * SECOND, random.randrange(14))
    both.release(9 * SECOND)
    wanted = [one for one in held(both.source) if one["v"] < 3]
    assert sorted(held(both.target), key=str) == sorted(wanted, key=str)


def test_of_many_that_are_due_some_are_released_at_a_time(monkeypatch):
    monkeypatch.setattr(conflated_topic, "RELEASED_AT_ONCE", 2)
    both = Both()
    both.put(0, *({"id": at} for at in range(5)))
    released = []
    while both.copy.due_us() is not None and both.copy.due_us() <= SECOND:
        (batch,) = both.copy.advance(SECOND)
        released.append([json.loads(new)["id"] for new in batch.changes.news])
    assert released == [[0, 1], [2, 3], [4]]
    assert len(held(both.target)) == 5


def test_updates_of_a_window_are_merged():
    both = Both(replace(COPY, merges=(Merge("/n", "count"), Merge("/v", "sum"))))
    for value in (1, 2, 4):
        both.put(0, {"id": 1, "v": value})
    assert both.release(SECOND) == [[{"id": 1, "v": 7, "n": 3}]]


def test_fields_are_computed_for_what_enters():
    both = Both(replace(COPY, enrichment=("/v * 2 AS /twice",)))
    both.put(0, {"id": 1, "v": 3})
    assert both.release(SECOND) == [[{"id": 1, "v": 3, "twice": 6}]]


def test_what_another_engine_releases_is_taken_only_if_it_is_newer():
    both = Both(replace(COPY, engine="spark"))
    both.put(0, {"id": 1})
    assert both.copy.due_us() is None
    both.copy.filled_seq = 3
    accepted = both.copy.accept([("a", (b'{"id":"a"}', 3, 0)), ("b", (b'{"id":"b"}', 4, 0))], [])
    assert [batch.changes.identities for batch in accepted] == [("b",)] or [
        list(batch.changes.identities) for batch in accepted
    ] == [["b"]]
    assert both.copy.accept([("b", (b'{"id":"b","old":1}', 4, 0))], []) == []


def test_a_copy_that_stops_wants_no_fields_any_more():
    both = Both(condition="/v > 1")
    path = compile_filter("/v > 1").paths[0]
    assert path in both.source.read([b'{"id":1}']).columns
    both.copy.stop()
    assert path not in both.source.read([b'{"id":1}']).columns


@pytest.mark.parametrize(("interval_us", "due_us"), [(2 * SECOND, 2_500_000), (100_000, 600_000)])
def test_what_waits_goes_on_in_a_window_of_the_new_interval(interval_us, due_us):
    both = Both()
    both.put(0, {"id": 1})
    both.copy.retime(replace(COPY, interval_us=interval_us), 500_000)
    assert both.copy.due_us() == due_us


def twins(condition=None):
    """Two topics that are alike, as one copy under two names."""
    both = Both(condition=condition)
    other = records(replace(COPY, name="other"), keys=("/id",))
    compiled = compile_filter(condition) if condition else None
    alike = ConflatedCopy(other, both.source, other.definition, compiled)
    assert both.copy.is_like(alike)
    both.copy.add_name(other)
    alike.stop()
    return both, other


def test_what_is_released_is_put_under_each_name():
    both, other = twins()
    both.put(0, {"id": 1}, {"id": 2})
    batches = both.copy.advance(SECOND)
    assert [batch.changes.topic for batch in batches] == ["copy", "other"]
    both.drop(SECOND, 1)
    batches = both.copy.advance(2 * SECOND)
    said = [(batch.changes.topic, batch.changes.reason) for batch in batches]
    assert said == [("copy", "deleted"), ("other", "deleted")]
    assert held(other) == held(both.target) == [{"id": 2}]


@pytest.mark.parametrize(
    "other",
    [
        {"interval_us": 2 * SECOND},
        {"schedule": "tick"},
        {"filter": "/v > 1"},
        {"engine": "spark"},
        {"enrichment": ("1 AS /one",)},
        {"merges": (Merge("/v", "sum"),)},
    ],
)
def test_copies_that_would_say_something_else_are_not_alike(other):
    both, definition = Both(), replace(COPY, name="other", **other)
    condition = compile_filter(definition.filter) if definition.filter else None
    target = records(definition, keys=("/id",))
    alike = ConflatedCopy(target, both.source, definition, condition)
    assert not both.copy.is_like(alike)


def test_a_copy_that_has_heard_of_something_is_like_none():
    both = Both()
    new = ConflatedCopy(records(COPY, keys=("/id",)), both.source, COPY, None)
    assert both.copy.is_like(new)
    both.put(0, {"id": 1})
    assert not both.copy.is_like(new)
    run_to_completion(new.fill(lambda: 1, new.copy))
    assert not new.is_like(both.copy)


def test_one_of_several_names_goes_on_with_the_windows_that_were_open():
    both, other = twins("/v > 1")
    both.put(0, {"id": 1, "v": 2}, {"id": 2, "v": 2})
    both.release(SECOND)
    both.put(SECOND, {"id": 1, "v": 0}, {"id": 3, "v": 3})
    own = both.copy.parted(both.target)
    assert [one.name for one in both.copy.copies] == ["other"]
    own.retime(replace(COPY, interval_us=3 * SECOND), SECOND)
    said = [(batch.changes.topic, batch.changes.reason) for batch in both.copy.advance(2 * SECOND)]
    assert said == [("other", None), ("other", "match")]
    assert own.advance(4 * SECOND - 1) == []
    said = [(batch.changes.topic, batch.changes.reason) for batch in own.advance(4 * SECOND)]
    assert said == [("copy", None), ("copy", "match")]
    assert held(other) == held(both.target) == [{"id": 2, "v": 2}, {"id": 3, "v": 3}]


def test_a_name_that_has_gone_is_not_written_to():
    both, _ = twins()
    both.copy.take_name(both.target)
    both.put(0, {"id": 1})
    both.copy.advance(SECOND)
    both.drop(SECOND, 1)
    assert [batch.changes.topic for batch in both.copy.advance(2 * SECOND)] == ["other"]
    assert held(both.target) == []
