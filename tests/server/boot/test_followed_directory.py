"""The directory of a follower: what it holds, the end of the log in it, and the configuration that
is made of the log's and the machine's own."""

from contextlib import closing, contextmanager
from dataclasses import replace

import orjson
import pytest

from sow.core.definitions import (
    CONFIGURATIONS,
    Configuration,
    ConflatedTopic,
    FollowerSettings,
    JournalSettings,
    Limits,
    QueueSettings,
    Topic,
    with_system_topics,
)
from sow.core.security_definitions import Authentication, Role, Security
from sow.engine.configurations import text_of
from sow.server.boot.followed_directory import (
    FOLLOWING,
    LogTail,
    followed,
    held_in,
    with_journal,
)
from sow.store.backup import (
    Beat,
    FrameReader,
    account_frame,
    beat_frame,
    block_frame,
    windows_frame,
)
from sow.store.directory import DataDirectory
from sow.store.protocols import LogEntry, OpenWindows

ORDERS = Topic("orders", "json", keys=("/id",))
COPY = ConflatedTopic("orders-C", "json", "orders", interval_us=1_000_000, engine="spark")
LOG_HAS = Configuration(
    "desk",
    (ORDERS, COPY),
    port=1,
    limits=Limits(connections_max=1),
    security=Security(
        authentication=Authentication(tokens_file="tokens"), roles=(Role("all", ("*",), ()),)
    ),
)
OWN = Configuration(
    "own", port=2, data_directory="here", follower=FollowerSettings(lag_us_max=1_000_000)
)


def test_definitions_and_roles_are_of_the_log_and_the_machine_is_its_own():
    found = followed(with_system_topics(LOG_HAS), OWN)
    assert found.topics == (ORDERS, replace(COPY, engine="embedded"))
    assert (found.name, found.port, found.limits, found.follower) == (
        "desk",
        2,
        OWN.limits,
        OWN.follower,
    )
    assert found.data_directory == f"here/{FOLLOWING}"
    assert found.security == LOG_HAS.security
    files = Authentication(users_file="users")
    own = replace(OWN, security=Security(authentication=files))
    assert followed(LOG_HAS, own).security == replace(LOG_HAS.security, authentication=files)


def test_what_decides_which_records_there_are_is_of_the_log():
    log_has = replace(LOG_HAS, limits=Limits(pattern_topics_max=7))
    assert followed(log_has, OWN).limits == replace(OWN.limits, pattern_topics_max=7)
    found = with_journal(LOG_HAS, "elsewhere")
    assert replace(found, journal=LOG_HAS.journal) == LOG_HAS
    assert found.journal.directory == "elsewhere"


def test_a_directory_without_data_holds_nothing(tmp_path):
    assert held_in(tmp_path / "absent") is None
    (tmp_path / "empty").mkdir()
    assert held_in(tmp_path / "empty") is None


def published(seq, count, ts_us):
    """Records that were published at one time, the first of them `seq`."""
    return LogEntry("publish", "orders", seq, ts_us, None, [b'{"id":1}'] * count, 0)


def reloaded(seq, body=b'{"start":false,"text":"another"}'):
    """The account of a reload behind a record, or of what else `body` says."""
    name = CONFIGURATIONS.name
    return LogEntry("publish", name, seq, seq + 1, [f"reload-{seq}"], [body], account=True)


@contextmanager
def journal_at(path, **settings):
    with (
        closing(DataDirectory(path)) as directory,
        closing(directory.journal(JournalSettings(**settings))) as journal,
    ):
        yield journal


@pytest.fixture
def primary_log(tmp_path):
    """What a primary sends of a change in several blocks between two others, and of a reload behind
    the first one."""
    with journal_at(tmp_path / "primary") as journal:
        journal.append([published(1, 2, 10)])
        for seq in (3, 5, 7):
            journal.append([published(seq, 2, 20)])
        journal.append([published(9, 1, 30)])
        first, *rest = map(block_frame, journal.blocks(0, 9))
    return [windows_frame(OpenWindows(9, 40, [])), account_frame(reloaded(2)), first, *rest]


def taken(tail, frames):
    """Give these frames to a tail."""
    some = []
    FrameReader(lambda *one: some.append(one)).feed(b"".join(frames))
    for kind, content in some:
        tail.take(kind, content)


def test_a_log_that_breaks_off_is_held_up_to_a_whole_change_with_what_was_in_force(
    tmp_path, primary_log
):
    held = []
    for count in range(len(primary_log) + 1):
        with journal_at(tmp_path / str(count)) as journal:
            tail = LogTail(journal)
            taken(tail, primary_log[:count])
            assert not tail.is_over
            held.append((journal.last_seq, [one.seq for one in journal.accounts() or ()]))
    nothing, first, whole = (0, []), (2, [2]), (8, [2])
    assert held == [nothing] * 3 + [nothing] + [first] * 3 + [whole]


def test_a_beat_ends_the_last_change_of_a_log(tmp_path, primary_log):
    with journal_at(tmp_path / "held") as journal:
        tail = LogTail(journal)
        taken(tail, [*primary_log[:4], beat_frame(Beat(4, 0))])
        assert (journal.last_seq, tail.is_over) == (4, False)
        taken(tail, [*primary_log[4:], beat_frame(Beat(9, 0))])
        assert (journal.last_seq, tail.is_over) == (9, True)
        assert [one.seq for one in journal.accounts() or ()] == [2]


START = b'{"start":true,"goes_on":false}'
CHANGED = b'{"start":true,"text":"another"}'
GOES_ON = b'{"start":true,"goes_on":true}'


@pytest.mark.parametrize(
    ("bodies", "starts_here", "until", "accounts", "has_windows"),
    [
        ([], False, 9, [], True),
        ([], True, 0, [], False),
        ([(2, START)], False, 2, [2], False),
        ([(2, START), (8, START)], False, 8, [2, 8], False),
        ([(2, START), (8, START)], True, 8, [2, 8], False),
        # What others than the last one have to do is done at their places.
        ([(2, START), (8, CHANGED)], False, 2, [2], False),
        ([(2, START), (2, b'{"start":false,"text":"another"}')], False, 2, [2], False),
        ([(2, CHANGED), (8, START)], False, 0, [], False),
        ([(2, GOES_ON), (8, START)], False, 8, [2, 8], False),
        ([(2, START), (8, GOES_ON)], False, 8, [2, 8], False),
    ],
)
def test_starts_that_change_nothing_are_passed_over_but_for_the_last(
    bodies, starts_here, until, accounts, has_windows, tmp_path, primary_log
):
    noted = [account_frame(reloaded(seq, body)) for seq, body in bodies]
    with journal_at(tmp_path / "held") as journal:
        tail = LogTail(journal, starts_here)
        beat = beat_frame(Beat(9, 0))
        taken(tail, [primary_log[0], *noted, *primary_log[2:], beat])
        assert (journal.last_seq, tail.is_over) == (until, True)
        assert [one.seq for one in journal.accounts() or ()] == accounts
        assert (tail.open is not None) == has_windows


def test_a_reload_that_adds_a_queue_is_made_at_its_place(tmp_path, primary_log):
    jobs = Topic("jobs", "json", queue=QueueSettings("orders"))
    text = text_of(replace(LOG_HAS, topics=(*LOG_HAS.topics, jobs)))
    account = account_frame(reloaded(2, orjson.dumps({"start": False, "text": text})))
    for queues, until in ((frozenset(), 0), (frozenset({"jobs"}), 9)):
        with journal_at(tmp_path / str(until)) as journal:
            tail = LogTail(journal, queues=queues)
            beat = beat_frame(Beat(9, 0))
            taken(tail, [primary_log[0], account, *primary_log[2:], beat])
            assert (journal.last_seq, tail.is_over) == (until, True)


def test_what_was_in_force_is_held_when_its_place_is_there(tmp_path, primary_log):
    account = account_frame(reloaded(8))
    with journal_at(tmp_path / "held") as journal:
        taken(LogTail(journal), [primary_log[0], account, *primary_log[2:-1]])
        assert (journal.last_seq, journal.accounts() or []) == (2, [])
        taken(tail := LogTail(journal), [primary_log[0], account, *primary_log[3:]])
        assert (journal.last_seq, [one.seq for one in journal.accounts() or ()]) == (8, [8])
        assert not tail.is_over
