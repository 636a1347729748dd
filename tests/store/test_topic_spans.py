"""Spans of the log: what is passed over never has a wanted topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.store.journal import LmdbJournal
from sow.store.topic_spans import SPANS_MAX, TOPICS_MAX, TopicSpans
from tests.store.entries import publish, records

COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 3), min_size=1)
GROUPS = st.lists(st.tuples(COUNTS, st.booleans()), max_size=30)


@given(GROUPS, st.integers(1, 200), st.sampled_from("abcd"), st.randoms())
def test_what_is_known_of_a_span_is_what_its_groups_hold(groups, span_bytes, wanted, random):
    spans, places, seq = TopicSpans(span_bytes), [], 1
    for rows, is_known in groups:
        last = seq + sum(rows.values()) - 1
        if is_known:
            places.append((seq, last, 50, rows))
        seq = last + 1
    for place in random.sample(places, len(places)):
        spans.note(*place)
    for number in range(1, seq):
        found = spans.look(number, [wanted])
        known = [place for place in places if place[0] <= number <= place[1]]
        assert found.first <= number <= found.last
        assert spans.knows(number) == bool(known) == (found.rows is not None)
        if found.rows is not None:
            inside = [p for p in places if found.first <= p[0] and p[1] <= found.last]
            assert inside[0][0] == found.first
            assert inside[-1][1] == found.last
            assert found.rows.get(wanted, 0) == sum(rows.get(wanted, 0) for *_, rows in inside)


def test_neighbours_become_one_span():
    spans = TopicSpans(100)
    for first in range(1, 11):
        spans.note(first, first, 50, {"a": 1})
    assert spans.look(2, ["a"]) == (1, 3, {"a": 3})
    assert spans.look(4, ["b"]) == (4, 6, {})


def test_what_is_not_known_has_to_be_read():
    spans = TopicSpans()
    spans.note(11, 20, 50, {"a": 10})
    assert spans.look(1, ["b"]) == (1, 10, None)
    assert spans.look(11, ["b"]) == (11, 20, {})
    assert spans.look(21, ["b"]).rows is None


def test_a_span_of_many_topics_may_have_any():
    spans = TopicSpans()
    spans.note(1, 100, 50, {f"t{number}": 1 for number in range(TOPICS_MAX + 1)})
    spans.note(101, 101, 50, {"a": 1})
    assert spans.look(1, ["other"]) == (1, 101, None)


def test_the_spans_of_a_large_log_are_bounded():
    spans = TopicSpans(span_bytes=0)
    for first in range(1, SPANS_MAX + 3):
        spans.note(first, first, 50, {"a": 1})
    assert spans.look(1, ["b"]) == (1, 2, None)
    assert spans.look(3, ["b"]) == (3, 3, {})


def test_removed_spans_are_forgotten():
    spans = TopicSpans(span_bytes=0)
    for first in range(1, 6):
        spans.note(first, first, 50, {"a": 1})
    spans.drop(3)
    assert not spans.knows(3)
    assert spans.knows(4)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_counted_is_not_read_again(tmp_path, restarts, monkeypatch):
    journal = LmdbJournal(tmp_path)
    for seq in range(1, 31):
        journal.append([publish(seq, b"x" * 500_000, topic="ab"[seq % 2])])
    if restarts:
        journal.close()
        journal = LmdbJournal(tmp_path)
    counts = []
    for _ in range(2):
        found = list(journal.stretches(0, ["a"]))
        assert [one.last_seq for one in found][-1] == 30
        counts.append(sum(len(list(one.heads())) for one in found))
        assert counts[-1] == 15
    monkeypatch.setattr(journal, "_fetch", None)
    assert sum(one.rows["a"] for one in journal.stretches(0, ["a"])) == 15
    journal.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_what_has_no_wanted_topic_is_not_read(tmp_path, restarts, monkeypatch):
    journal = LmdbJournal(tmp_path)
    for seq in range(1, 31):
        name = "quiet" if seq in (1, 30) else "busy"
        journal.append([publish(seq, b"x" * 500_000, topic=name)])
    if restarts:
        journal.close()
        journal = LmdbJournal(tmp_path)
        assert [e.seq for p in journal.pieces(0, ["quiet"]) for e in p.entries] == [1, 30]
    fetched = []
    fetch = journal._fetch
    monkeypatch.setattr(journal, "_fetch", lambda *at: fetched.append(at) or fetch(*at))
    pieces = [(p.last_seq, [e.seq for e in p.entries]) for p in journal.pieces(0, ["quiet"])]
    assert [seq for _, seqs in pieces for seq in seqs] == [1, 30]
    assert pieces[-1][0] == 30
    assert len(fetched) <= 4
    assert records(e for p in journal.pieces(0) for e in p.entries) == records(journal.read(0))
    journal.close()
