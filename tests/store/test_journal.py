"""What every journal promises, on disk or in memory."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sow.errors import DiskFull, StoreError
from sow.store.journal import LmdbJournal
from sow.store.protocols import TOPICS_LIFETIME, LogEntry
from tests.store.entries import group, publish, records
from tests.store.in_memory import MemoryJournal


@pytest.fixture(params=["disk", "memory"])
def make(request, tmp_path):
    made = []

    def build(**options):
        disk = request.param == "disk"
        journal = LmdbJournal(tmp_path / "j", **options) if disk else MemoryJournal(**options)
        made.append(journal)
        return journal

    yield build
    for journal in made:
        journal.close()


@pytest.fixture
def journal(make):
    return make()


def fill(journal, groups, count=10, size=100):
    for _ in range(groups):
        journal.append(group(journal.last_seq + 1, count, size, ts_us=journal.last_seq))


def seqs(journal, after_seq):
    return [seq for _, _, seq, *_ in records(journal.read(after_seq))]


def test_a_new_journal_is_empty(journal):
    assert (journal.first_seq, journal.last_seq, list(journal.read(0))) == (1, 0, [])


def test_what_was_appended_is_read_back(journal):
    entries = [publish(1, b"a", b"b"), publish(3, b"c", topic="quotes")]
    journal.append(entries)
    assert records(journal.read(0)) == records(entries)


def test_reading_starts_within_a_group(journal):
    fill(journal, 3)
    assert [e.seq for e in journal.read(10)] == [11, 21]
    assert [e.seq for e in journal.read(14)] == [11, 21]
    assert [e.seq for e in journal.read(30)] == []


def test_pieces_have_the_entries_of_some_topics(journal):
    topics = ["orders", "quotes", "trades"]
    for number in range(12):
        first = journal.last_seq + 1
        names = [topics[number % 3], topics[number // 4]]
        journal.append([publish(first, b"a", topic=names[0]), publish(first + 1, topic=names[1])])
        journal.append([publish(first + 1, b"b", b"c", topic=names[1])])
    for after in range(journal.last_seq + 1):
        for wanted in ([], ["quotes"], ["orders", "trades"], None):
            pieces = [(one.last_seq, list(one.entries)) for one in journal.pieces(after, wanted)]
            expected = [e for e in journal.read(after) if wanted is None or e.topic in wanted]
            assert records(e for _, entries in pieces for e in entries) == records(expected)
            ends = [last for last, _ in pieces]
            assert ends == sorted(ends)
            assert not ends or ends[-1] == journal.last_seq
            if wanted is None:
                continue
            stretches = list(journal.stretches(after, wanted))
            heads = [head for one in stretches for head in one.heads()]
            whole = [e for e in expected if e.seq > after]
            told = [(h.topic, h.seq, h.records, h.ts_us) for h in heads if h.seq > after]
            assert told == [(e.topic, e.seq, len(e), e.ts_us) for e in whole]
            for one in stretches:
                rows = {head.topic: 0 for head in one.heads()}
                for head in one.heads():
                    rows[head.topic] += head.records
                assert one.rows is None or (one.rows == rows and one.first_seq > after)


def test_a_gap_in_the_sequence_is_refused(journal):
    fill(journal, 1)
    with pytest.raises(AssertionError, match="12 does not follow 10"):
        journal.append([publish(12, b"x")])
    assert journal.last_seq == 10


def test_trimming_keeps_what_no_checkpoint_covers(make):
    journal = make(retention_bytes=0)
    fill(journal, 10)
    while journal.trim(0, 51):
        pass
    assert (journal.first_seq, seqs(journal, 50)) == (51, list(range(51, 101)))


def test_trimming_stops_at_the_bytes_to_keep(make):
    journal = make(retention_bytes=200_000)
    fill(journal, 50, size=1000)
    while journal.trim(0, 501):
        pass
    assert 150_000 < journal.size_bytes <= 200_000
    assert seqs(journal, journal.first_seq - 1) == list(range(journal.first_seq, 501))


def test_trimming_may_go_beyond_retention(make):
    journal = make()
    fill(journal, 20)
    while journal.trim(0, 101, beyond=True):
        pass
    assert journal.first_seq == 101
    assert journal.room_bytes > 0


def test_trimming_goes_by_age(make):
    journal = make(retention_age_us=50)
    fill(journal, 10)
    journal.trim(85, 101)
    assert journal.first_seq == 41


def test_a_journal_trimmed_to_nothing_goes_on_counting(make):
    journal = make(retention_bytes=0)
    fill(journal, 2)
    journal.trim(0, 21)
    assert (journal.first_seq, journal.last_seq) == (21, 20)
    fill(journal, 1)
    assert seqs(journal, 20) == list(range(21, 31))


def test_reading_what_was_trimmed_is_refused_with_the_oldest_kept(make):
    journal = make(retention_bytes=0)
    fill(journal, 2)
    journal.trim(0, 11)
    with pytest.raises(StoreError, match="the oldest is 11"):
        list(journal.read(5))


def test_an_open_reader_never_meets_a_gap(make):
    journal = make(retention_bytes=0)
    fill(journal, 3)
    reader = journal.read(0)
    seen = records([next(reader)])
    journal.trim(0, 31)
    assert [r[2] for r in seen + records(reader)] == list(range(1, 31))


def account(seq, *names, body=b"x", op="publish"):
    bodies = [body] * len(names) if op == "publish" else []
    return LogEntry(op, "/sow/own", seq, 1_000 + seq, list(names), bodies, 7, account=True)


def kept(journal):
    accounts = journal.accounts()
    return accounts and {e.identities[0]: (e.bodies[0], e.seq, e.expires_us) for e in accounts}


def test_accounts_take_no_numbers_and_only_their_last_state_is_kept(make):
    journal = make()
    assert journal.accounts() is None
    journal.append([account(0, "first", "é" * 1000)])
    assert kept(journal) == dict.fromkeys(("first", "é" * 1000), (b"x", 0, 7)), "before any change"
    assert (journal.last_seq, journal.first_seq) == (0, 1)
    fill(journal, 1)
    journal.append([account(10, "first", body=b"new"), *group(11, 10), account(20, "last")])
    fill(journal, 1)
    journal.append([account(30, "é" * 1000, op="delete")])
    assert seqs(journal, 0) == list(range(1, 31))
    assert kept(journal) == {"first": (b"new", 10, 7), "last": (b"x", 20, 7)}
    journal.append([account(30, "first", "last", op="expire")])
    assert journal.accounts() == []


def test_accounts_outlive_the_process_and_the_log(tmp_path):
    for number in range(3):
        journal = LmdbJournal(tmp_path / "j", retention_bytes=0)
        assert kept(journal) == ({"a": (b"%d" % (number - 1), 10 * number, 7)} if number else None)
        assert journal.last_seq == 10 * number
        fill(journal, 1)
        journal.append([account(10 * number + 10, "a", body=b"%d" % number)])
        while journal.trim(0, 10 * number + 11):
            pass
        assert journal.first_seq == 10 * number + 11
        journal.close()


def test_a_refused_commit_keeps_no_account_either():
    journal = MemoryJournal()
    refuse(journal)
    with pytest.raises(DiskFull):
        journal.append([account(0, "a")])
    assert journal.accounts() is None


def test_a_full_disk_is_seen_before_a_message_is_taken_and_passes(make):
    journal = make()
    refuse(journal)
    assert not journal.has_room()
    allow(journal)
    assert journal.has_room()


def test_what_has_been_taken_may_use_the_reserve(tmp_path):
    journal = LmdbJournal(tmp_path / "journal")
    refuse(journal)
    fill(journal, 1)
    assert seqs(journal, 0) == list(range(1, 11))
    journal.close()


def test_the_reserve_of_a_full_disk_takes_so_much_and_no_more(tmp_path):
    disk = SimpleNamespace(f_blocks=10**6, f_frsize=4096, f_bavail=1000)
    journal = LmdbJournal(tmp_path / "journal", statvfs=lambda _path: disk)
    assert not journal.has_room()
    assert journal.takes(10**6)
    assert not journal.takes(2 * 10**6)
    disk.f_bavail = 10
    assert not journal.takes(1)
    journal.close()


def test_a_refused_append_keeps_nothing():
    journal = MemoryJournal()
    fill(journal, 1)
    refuse(journal)
    with pytest.raises(DiskFull, match="nothing of the request is acknowledged"):
        fill(journal, 1)
    allow(journal)
    fill(journal, 1)
    assert seqs(journal, 0) == list(range(1, 21))


def refuse(journal):
    if isinstance(journal, MemoryJournal):
        journal.full = True
    else:
        journal._env._statvfs = lambda path: NO_ROOM


def allow(journal):
    if isinstance(journal, MemoryJournal):
        journal.full = False
    else:
        journal._env._statvfs = lambda path: ROOM


class Disk:
    """A file system of 100 MB, so that the reserve is 2 MB."""

    f_frsize = 1000
    f_blocks = 100_000

    def __init__(self, available_bytes):
        self.f_bavail = available_bytes // self.f_frsize


NO_ROOM, ROOM = Disk(2_000_000), Disk(2_001_000)


def test_a_hook_may_refuse_a_group():
    def fail(entries):
        raise DiskFull("by order")

    journal = MemoryJournal(before_append=fail)
    with pytest.raises(DiskFull, match="by order"):
        fill(journal, 1)
    assert journal.last_seq == 0


def prepare(journal, load, *parts, **more):
    """Write parts of so many records each ahead of the log; what is there of the load."""
    seq = journal.loads.load(load).records + 1
    for count in parts:
        journal.loads.put(load, [replace(one, **more) for one in group(seq, count, ts_us=0)])
        seq += count
    return journal.loads.load(load)


def link(journal, load, **more):
    """Make a load part of the log."""
    seq = journal.last_seq + 1
    entry = LogEntry("publish", "orders", seq, 5, None, (), load=load, **more)
    journal.append([entry, account(journal.last_seq + load.records, "w")])


def test_what_was_written_ahead_is_in_the_log_once_an_entry_says_so(make):
    journal, plain = make(), MemoryJournal()
    fill(journal, 2)
    load = prepare(journal, "l", 3, 4, expires_us=TOPICS_LIFETIME)
    load = prepare(journal, "l", 2, expires_us=9)
    assert (load.parts, load.records) == (3, 9)
    assert seqs(journal, 0) == list(range(1, 21)), "nobody reads it"
    assert journal.accounts() is None
    fill(journal, 1)
    link(journal, load, expires_us=77)
    fill(journal, 1)
    fill(plain, 3)
    for at, count in ((1, 3), (4, 4), (8, 2)):
        (entry,) = group(at, count, ts_us=5)
        plain.append([replace(entry, seq=30 + at, expires_us=9 if at == 8 else 77)])
    plain.append([account(39, "w")])
    fill(plain, 1)
    for after in range(50):
        expected = [one for one in records(plain.read(after)) if one[2] > after]
        assert [one for one in records(journal.read(after)) if one[2] > after] == expected
        for wanted in (["orders"], ["quotes"]):
            pieces = list(journal.pieces(after, wanted))
            found = records(e for one in pieces for e in one.entries)
            assert [r for r in found if r[2] > after] == (expected if "orders" in wanted else [])
    heads = [h for one in journal.stretches(0, ["orders"]) for h in one.heads()]
    assert sum(head.records for head in heads) == 49
    assert kept(journal) == kept(plain)
    assert [entry.seq for entry in journal.loads.entries(load)] == [1, 4, 8]


def test_loads_of_several_batches_do_not_mix(make):
    journal = make()
    first = prepare(journal, "a", 2)
    second = prepare(journal, "b", 1)
    first = prepare(journal, "a", 1)
    link(journal, second)
    link(journal, first)
    sizes = [len(e) for e in journal.read(0)]
    assert sizes == [1, 2, 1]
    assert seqs(journal, 0) == [1, 2, 3, 4]


def test_a_load_that_is_given_up_is_never_read(make):
    journal = make()
    load = prepare(journal, "l", 3)
    journal.loads.discard("l")
    journal.loads.discard("other")
    fill(journal, 1)
    while journal.trim(0, 1):
        pass
    assert seqs(journal, 0) == list(range(1, 11))
    assert journal.loads.load("l") == load._replace(parts=0, records=0, size_bytes=0, checksum=0)
