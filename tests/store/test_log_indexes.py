"""Open windows in files beside the log: an index that may be missing, and never wrong."""

import errno
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.errors import StoreError
from sow.store import log_indexes, rewrite
from sow.store.journal import LmdbJournal
from sow.store.log_indexes import SPANS_MAX, TOPICS_MAX, TopicSpans, WindowFiles, seal_windows
from sow.store.protocols import LogEntry, OpenWindows, WindowsPlace
from tests.store.entries import publish, records

STATE = [["orders", "orders-C", [0, 3, 7, [[b"\xff", "ä", None]]]]]


def found(seq, time_us=1_000):
    return OpenWindows(seq, time_us, STATE)


def put(files, windows):
    files.put(WindowsPlace(windows.seq, windows.time_us), seal_windows(windows))


def places(files):
    return [one.seq for one in files.places]


def test_what_is_kept_is_read_by_another_process(tmp_path):
    files = WindowFiles(tmp_path / "windows", 0)
    assert places(files) == []
    for seq in (9, 10, 200):
        put(files, found(seq))
    again = WindowFiles(tmp_path / "windows", 200)
    assert places(again) == places(files) == [9, 10, 200]
    assert run_to_completion(again.load(WindowsPlace(10, 1_000))) == found(10)
    assert (tmp_path / "windows").stat().st_mode & 0o777 == 0o700


@given(
    st.recursive(
        st.none() | st.integers(-(2**60), 2**60) | st.text(max_size=9) | st.binary(max_size=40),
        lambda one: st.lists(one, max_size=20),
        max_leaves=60,
    )
)
def test_what_is_read_in_steps_is_what_was_written(state):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_indexes, "READ_BYTES", 8)
        content = log_indexes.encode_windows(OpenWindows(1, 2, [state]))
        windows = run_to_completion(log_indexes.decode_windows(content))
    assert windows == OpenWindows(1, 2, [state])


def test_a_step_reads_a_part_of_many_windows():
    many = [[f"key-{number}", [b"x" * 250, number]] for number in range(10_000)]
    content = log_indexes.encode_windows(OpenWindows(1, 2, [many]))
    steps = sum(1 for _ in log_indexes.decode_windows(content))
    assert steps > len(content) / log_indexes.READ_BYTES


def test_more_than_is_read_in_a_step_is_not_kept(tmp_path, monkeypatch):
    files = WindowFiles(tmp_path, 0)
    monkeypatch.setattr(log_indexes, "FILE_BYTES_MAX", len(seal_windows(found(9))))
    put(files, found(9))
    put(files, OpenWindows(10, 1_000, [*STATE, *STATE]))
    assert places(files) == [9]


def test_what_is_behind_the_end_of_the_log_goes(tmp_path):
    files = WindowFiles(tmp_path, 0)
    for seq in (9, 10):
        put(files, found(seq))
    assert places(WindowFiles(tmp_path, 9)) == [9]
    assert places(WindowFiles(tmp_path, 99)) == [9], "for good"


def test_what_the_log_has_no_more_goes(tmp_path):
    files = WindowFiles(tmp_path, 0)
    for seq in (9, 10, 11):
        put(files, found(seq))
    files.forget(10)
    assert places(files) == places(WindowFiles(tmp_path, 99)) == [10, 11]
    assert run_to_completion(files.load(WindowsPlace(9, 1_000))) is None


@pytest.mark.parametrize(
    "spoil", [lambda block: block[:-1], lambda block: block[:-1] + b"\0", lambda _: b""]
)
def test_what_is_not_as_it_was_written_is_left_out(tmp_path, caplog, spoil):
    files = WindowFiles(tmp_path, 0)
    put(files, found(9))
    (path,) = tmp_path.iterdir()
    path.write_bytes(spoil(path.read_bytes()))
    again = WindowFiles(tmp_path, 9)
    with caplog.at_level(logging.WARNING):
        assert run_to_completion(again.load(WindowsPlace(9, 1_000))) is None
    assert "is left out" in caplog.text
    assert places(again) == []


def test_other_files_are_none_of_them(tmp_path):
    for name in ("x.windows", "9-.windows", "-9-1.windows", "9-1.unfinished", "9-1"):
        (tmp_path / name).write_bytes(b"")
    assert places(WindowFiles(tmp_path, 99)) == []


def test_a_disk_that_refuses_says_so(tmp_path):
    (tmp_path / "windows").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be written"):
        put(WindowFiles(tmp_path / "windows", 0), found(9))


def test_nothing_is_left_of_what_a_full_disk_refuses(tmp_path, monkeypatch):
    files = WindowFiles(tmp_path, 0)
    put(files, found(9))

    class Full:
        def __init__(self, path):
            self._file = rewrite(path)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self._file.close()

        def write(self, block):
            self._file.write(block[:9])
            self._file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log_indexes, "rewrite", Full)
    with pytest.raises(StoreError, match="No space left on device"):
        put(files, found(10))
    assert places(files) == [9]
    assert [one.name for one in tmp_path.iterdir()] == ["9-1000.windows"]


def test_nothing_is_left_of_what_a_process_died_in(tmp_path):
    put(WindowFiles(tmp_path, 0), found(9))
    (tmp_path / "10-1000.unfinished").write_bytes(b"half")
    assert places(WindowFiles(tmp_path, 10)) == [9]
    assert [one.name for one in tmp_path.iterdir()] == ["9-1000.windows"]


def test_they_go_with_the_log(tmp_path):
    journal = LmdbJournal(tmp_path, retention_bytes=0)
    for seq in (1, 2, 3):
        journal.append([LogEntry("publish", "orders", seq, seq, ["a"], [b"{}"])])
        put(journal.windows, found(seq, seq))
    journal.trim(10, 3)
    assert places(journal.windows) == [2, 3], "the first is behind what is gone"
    journal.close()


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
