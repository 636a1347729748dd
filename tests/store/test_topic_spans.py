"""Spans of the log: what is passed over never has a wanted topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.store.journal import LmdbJournal
from sow.store.topic_spans import SPANS_MAX, TOPICS_MAX, TopicSpans
from tests.store.entries import publish, records

GROUPS = st.lists(
    st.tuples(st.sets(st.sampled_from("abc"), min_size=1), st.integers(1, 3), st.booleans()),
    max_size=30,
)


@given(GROUPS, st.integers(1, 200), st.sampled_from("abcd"), st.randoms())
def test_a_span_without_a_topic_has_no_group_of_it(groups, span_bytes, wanted, random):
    spans, places, seq = TopicSpans(span_bytes), [], 1
    for topics, count, is_known in groups:
        if is_known:
            places.append((seq, seq + count - 1, 50, topics))
        seq += count
    for place in random.sample(places, len(places)):
        spans.note(*place)
    by_seq = {n: topics for first, last, _, topics in places for n in range(first, last + 1)}
    for number in range(1, seq):
        end, may_have = spans.look(number, [wanted])
        assert end >= number
        if not may_have:
            assert all(wanted not in by_seq[n] for n in range(number, end + 1))
        assert spans.knows(number) == (number in by_seq)


def test_neighbours_become_one_span():
    spans = TopicSpans(100)
    for first in range(1, 11):
        spans.note(first, first, 50, ["a"])
    assert spans.look(1, ["b"]) == (3, False)
    assert spans.look(4, ["b"]) == (6, False)


def test_what_is_not_known_may_have_everything():
    spans = TopicSpans()
    spans.note(11, 20, 50, ["a"])
    assert spans.look(1, ["b"]) == (10, True)
    assert spans.look(11, ["b"]) == (20, False)
    assert spans.look(21, ["b"])[1]


def test_a_span_of_many_topics_may_have_any():
    spans = TopicSpans()
    spans.note(1, 100, 50, [f"t{number}" for number in range(TOPICS_MAX + 1)])
    assert spans.look(1, ["other"]) == (100, True)


def test_the_spans_of_a_large_log_are_bounded():
    spans = TopicSpans(span_bytes=0)
    for first in range(1, SPANS_MAX + 3):
        spans.note(first, first, 50, ["a"])
    assert spans.look(1, ["b"]) == (2, True)
    assert spans.look(3, ["b"]) == (3, False)


def test_removed_spans_are_forgotten():
    spans = TopicSpans(span_bytes=0)
    for first in range(1, 6):
        spans.note(first, first, 50, ["a"])
    spans.drop(3)
    assert not spans.knows(3)
    assert spans.knows(4)


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
