"""The state at a bookmark that has passed: what the log says it was, or an honest refusal."""

import json
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Topic
from sow.errors import ClientError, TooLarge
from sow.expressions import compile_filter
from sow.history import snapshot_as_of as module
from sow.history.snapshot_as_of import Base, Present, as_of, bodies_as_of, narrowed
from sow.store.protocols import EVENT_ROWS, LogEntry, Slice, numbers
from tests.store.in_memory import MemoryJournal
from tests.topic.making import body, held, put, records

steps = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), st.none() | st.integers(0, 5)), min_size=1, max_size=10
)


class History:
    """A topic with its log, and its state at each bookmark."""

    def __init__(self, log, retention_bytes=10**9, topic=None):
        self.topic = topic or records()
        self.journal = MemoryJournal(retention_bytes=retention_bytes)
        self.states = [{}]
        self.born = {}
        for id_, value in log:
            self._step(id_, value, len(self.states))

    def _step(self, id_, value, seq):
        document = {"id": id_, "v": value}
        (name,) = self.topic.identities_of([body(id=id_)])
        if value is None:
            self.topic.drop([name], "deleted", lambda n: ([seq] * n, [0] * n))
            self.journal.append([LogEntry("delete", "orders", seq, 0, [name], [])])
        else:
            put(self.topic, document, seq=seq)
            self.journal.append([LogEntry("publish", "orders", seq, 0, None, [body(**document)])])
        state = dict(self.states[-1])
        state.pop(id_, None) if value is None else state.__setitem__(id_, document)
        self.states.append(state)

    def at(self, bookmark, **more):
        now = Present.take(self.topic, self.journal.last_seq)
        return run_to_completion(as_of(now, bookmark, self.journal, **more))


@given(steps, st.data())
def test_a_state_that_has_passed_is_what_it_was(log, data):
    history = History(log)
    bookmark = data.draw(st.integers(0, len(log)))
    then = history.at(bookmark)
    rows = then.part(0, len(then))
    # A dictionary keeps where a key first stood, as the order of first publication does.
    assert [*map(json.loads, rows.bodies)] == [*history.states[bookmark].values()]
    names = history.topic.identities_of(rows.bodies)
    assert rows.sow_keys == [history.topic.sow_key_of(name) for name in names]
    assert all(seq <= bookmark for seq in rows.seqs)


@given(steps, st.data())
def test_a_checkpoint_before_it_is_as_good_as_the_whole_log(log, data):
    """Whatever was copied while others came: each record as of some moment between two."""
    history = History(log)
    first = data.draw(st.integers(0, len(log)))
    exact = data.draw(st.integers(first, len(log)))
    bookmark = data.draw(st.integers(exact, len(log)))
    parts = []
    for id_ in (1, 2, 3):
        seen = data.draw(st.integers(first, exact))
        changes = [at for at in range(1, seen + 1) if log[at - 1][0] == id_]
        if id_ in history.states[seen]:
            alive = [at for at in changes if at >= 1]
            born = alive[-1]
            for at in reversed(alive):
                if log[at - 1][1] is None:
                    break
                born = at
            document = history.states[seen][id_]
            (name,) = history.topic.identities_of([body(id=id_)])
            numbers_of = [numbers([one]) for one in (changes[-1], 0, born, 0)]
            parts.append(Slice([name], [body(**document)], *numbers_of))
    history.journal.trim(0, first + 1, beyond=True)
    events = replace(parts[0], bodies=[b"x"], expires_us=numbers([EVENT_ROWS])) if parts else None
    parts += [] if events is None else [events]  # no state of a record
    then = history.at(bookmark, base=Base(first, iter(parts)))
    rows = then.part(0, len(then))
    assert [*map(json.loads, rows.bodies)] == [*history.states[bookmark].values()]
    now = Present.take(history.topic, history.journal.last_seq)
    with patch.object(module, "SOUGHT_AT_ONCE", data.draw(st.integers(1, 3))):
        steps = bodies_as_of(now, bookmark, history.journal, base=Base(first, iter(parts)))
        found = map(json.loads, run_to_completion(steps).values())
    assert {one["id"]: one for one in found} == history.states[bookmark]


def test_a_topic_that_retains_nothing_held_nothing_then():
    passing = Topic("orders", "json", keys=("/id",), retain=False)
    history = History([(1, 1), (2, 1)], topic=records(passing))
    assert [len(history.at(bookmark)) for bookmark in (0, 1, 2)] == [0, 0, 0]


def test_now_is_what_there_is():
    history = History([(1, 1), (2, 2)])
    then = history.at(2)
    assert [json.loads(one) for one in then.part(0, 2).bodies] == held(history.topic)


def test_what_the_log_does_not_reach_is_refused_and_what_it_does_is_not():
    history = History([(1, 1), (2, 1), (1, 2), (3, 1)], retention_bytes=0)
    history.journal.trim(now_us=0, keep_from_seq=3)
    assert history.journal.first_seq == 3
    with pytest.raises(ClientError, match="has changed since bookmark 2") as caught:
        history.at(2)
    assert caught.value.reason == "invalid bookmark"
    # Record 3 was not there yet, which is known although the log does not reach back.
    assert len(history.at(3)) == 2


def test_how_much_is_taken_from_the_log_is_bounded():
    history = History([(1, 1), (2, 1), (1, 2), (2, 2)])
    size = 2 * len(body(id=1, v=1))
    assert len(history.at(2, bytes_max=size)) == 2
    with pytest.raises(TooLarge, match="choose a later bookmark"):
        history.at(2, bytes_max=size - 1)


def test_a_state_is_narrowed_by_a_filter_and_by_keys(monkeypatch):
    monkeypatch.setattr(module, "RECORDS_AT_ONCE", 2)
    history = History([(1, 1), (2, 2), (3, 2), (1, 2), (3, 1)])
    then, condition = history.at(4), compile_filter("/v = 2")
    passing = run_to_completion(narrowed(then, condition, None))
    assert [json.loads(one)["id"] for one in passing.part(0, 9).bodies] == [1, 2, 3]
    key = passing.part(0, 1).sow_keys[0]
    (one,) = run_to_completion(narrowed(then, condition, (key, "7"))).part(0, 9).bodies
    assert json.loads(one)["id"] == 1
    assert len(run_to_completion(narrowed(then, None, ()))) == 0
