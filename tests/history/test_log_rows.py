"""The log as rows: a part is cut once, and gives the same rows however often it is read."""

from hypothesis import given
from hypothesis import strategies as st

from sow.core.keys import sow_key
from sow.expressions import compile_filter
from sow.history import log_rows as module
from sow.history.log_rows import SowKeys
from sow.store.protocols import LogEntry
from tests.history.reading import extent, log_rows
from tests.store.in_memory import MemoryJournal
from tests.topic.making import body, records

entries = st.lists(st.tuples(st.sampled_from(["orders", "other"]), st.integers(1, 4)), max_size=6)


def journal_of(log):
    """A journal with entries of so many records each; a record's id is its number in the log."""
    journal, seq = MemoryJournal(), 1
    for topic, count in log:
        bodies = [body(id=number) for number in range(seq, seq + count)]
        journal.append([LogEntry("publish", topic, seq, seq * 10, None, bodies)])
        seq += count
    return journal


def numbers(journal, part, topics, condition=None):
    """The sequence numbers of a part's rows."""
    return [seq for rows in log_rows(journal, part, topics, condition) for seq in rows.seqs]


@given(entries, st.integers(0, 12), st.integers(1, 6), st.none() | st.integers(0, 20))
def test_parts_follow_each_other_without_gap_or_repeat(log, start, limit, until):
    journal, topics = journal_of(log), {"orders": records()}
    start = min(start, journal.last_seq)
    seq, wanted = 0, []
    for topic, count in log:
        wanted += [n for n in range(seq + 1, seq + 1 + count) if topic == "orders"]
        seq += count
    last = seq if until is None else min(seq, until)
    found, after = [], start
    while True:
        part = extent(journal, after, until, limit, topics)
        rows = numbers(journal, part, topics)
        assert len(rows) == part.rows <= limit
        assert rows == numbers(journal, part, topics)
        found += rows
        if part.until == after:
            break
        after = part.until
    assert found == [number for number in wanted if start < number <= last]
    assert after == max(start, last)


def test_a_part_goes_as_far_as_it_can_without_another_row():
    journal = journal_of([("orders", 1), ("other", 2), ("orders", 1)])
    part = extent(journal, 0, None, 1, {"orders": records()})
    assert (part.until, part.rows) == (3, 1)


def test_rows_have_the_keys_that_clients_see():
    journal, topic = journal_of([("orders", 2)]), records()
    (rows,) = log_rows(journal, extent(journal, 0, None, 9, {"orders": topic}), {"orders": topic})
    assert rows.keys == [topic.sow_key_of(name) for name in topic.identities_of(rows.bodies)]
    assert (rows.op, rows.ts_us) == ("publish", 10)


def test_a_filter_leaves_out_publishes_and_no_deletes():
    journal, topic = journal_of([("orders", 3)]), records()
    name = topic.identities_of([body(id=1)])[0]
    journal.append([LogEntry("delete", "orders", 4, 0, [name], [])])
    topics = {"orders": topic}
    part = extent(journal, 0, None, 9, topics)
    assert numbers(journal, part, topics, compile_filter("/id = 2")) == [2, 4]
    assert numbers(journal, part, topics, compile_filter("/id = 9")) == [4]


def test_what_was_said_before_a_topic_began_is_not_its_own():
    journal, topic = journal_of([("orders", 2), ("orders", 1)]), records()
    topic.begin_after(2)
    topics = {"orders": topic}
    part = extent(journal, 0, None, 9, topics)
    assert (part.rows, numbers(journal, part, topics)) == (1, [3])


def test_an_empty_part_has_no_rows():
    journal, topics = journal_of([("orders", 1)]), {"orders": records()}
    assert numbers(journal, extent(journal, 1, None, 9, topics), topics) == []


def test_keys_are_worked_out_once_and_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(module, "SOW_KEYS_MAX", 2)
    keys = SowKeys("orders")
    for name in ("a", "b", "a"):
        assert keys[name] == str(sow_key("orders", name))
    assert set(keys) == {"a", "b"}
    assert keys["c"] == str(sow_key("orders", "c"))
    assert set(keys) == {"c"}
