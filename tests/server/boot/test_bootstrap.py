"""Opening a data directory: what fits is restored, what has no place is refused or given up.

Every way in which a directory and a configuration may differ is in tests/edge (test_opening.py,
test_passing_names.py, test_wrong_files.py), over whole lives; here are the rules on the way.
"""

import logging
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, JournalSettings, Topic, with_system_topics
from sow.engine.engine import Engine
from sow.errors import StoreError
from sow.history.bookmarks import parse_bookmark
from sow.server.boot.bootstrap import (
    LOG_ID_BYTES,
    NAMED_MAX,
    ServerBootstrap,
    as_now,
    definitions_now,
    first_manifest,
    handful,
    successor,
)
from sow.server.boot.quarantine import REMOVED
from sow.store import manifest
from sow.store.directory import DataDirectory
from sow.store.manifest import Era, Manifest, ManifestFile, kept_of, names_of
from sow.store.protocols import Slice, numbers

ORDERS = Topic("orders", "json", keys=("/id",))
FILLS = replace(ORDERS, name="fills")
NOW_US = 1_700_000_000_000_000


@pytest.fixture
def opened(tmp_path):
    """Opens the directory for these topics, and closes it at the end; `log` sees the replay."""
    openings = []

    def open_for(*topics, log=iter, **more):
        configuration = with_system_topics(Configuration("test", topics))
        opening = ServerBootstrap(
            configuration, tmp_path, lambda: Engine(configuration), NOW_US, **more
        )
        openings.append(opening)
        run_to_completion(opening.open(log))
        return opening

    def close():
        while openings:
            openings.pop().close()

    open_for.close = close
    yield open_for
    close()


def fill(opening, topic, *numbers):
    """Publish records, and store them."""
    bodies = [b'{"id":%d}' % number for number in numbers]
    opening.engine.publish(topic, bodies, NOW_US)
    opening.journal.append(opening.engine.flush().entries)


def count(opening, topic):
    return len(opening.engine.topic(topic).records.table)


def test_what_was_stored_is_there_again_and_the_log_is_the_same_one(opened):
    first = opened(ORDERS)
    fill(first, "orders", 1, 2)
    assert len(first.log_id) == 2 * LOG_ID_BYTES
    opened.close()
    replayed = []

    def log(entries):
        for entry in entries:
            replayed.append(entry.seq)
            yield entry

    second = opened(ORDERS, log=log)
    assert (count(second, "orders"), second.log_id) == (2, first.log_id)
    assert replayed == [1]


def test_a_directory_of_the_first_releases_gets_a_name_and_keeps_its_positions(
    opened, tmp_path, monkeypatch
):
    fill(opened(ORDERS), "orders", 1, 2)
    opened.close()
    file = ManifestFile(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(manifest, "WITHOUT_SERIES", 1)
        file.write(replace(file.manifest, log_id=""))
    upgraded = opened(ORDERS)
    log = upgraded.journal.log_id
    assert len(log) == 2 * LOG_ID_BYTES
    for bookmark in ("1", f"{log}-1"):
        assert parse_bookmark(bookmark, upgraded.journal, 2).after == 1
    opened.close()
    assert opened(ORDERS).journal.log_id == log


def test_a_checkpoint_shortens_the_replay(opened):
    first = opened(ORDERS)
    fill(first, "orders", 1)
    fill(first, "orders", 2)
    fill(first, "orders", 3)
    table = first.engine.topic("orders").records.table
    for name, checkpoint in first.checkpoints.items():
        checkpoint.write(3, [table.slice(0, 100)] if name == "orders" else ())
    opened.close()
    replayed = []
    second = opened(ORDERS, log=lambda entries: [replayed.append(e.seq) or e for e in entries])
    assert count(second, "orders") == 3
    assert replayed == [3], "the newest is read in any case: time goes on from there"


def test_records_without_a_place_are_refused_by_name_and_stay(opened, tmp_path):
    fill(opened(ORDERS, FILLS), "fills", 1, 2)
    opened.close()
    with pytest.raises(StoreError, match=r"2 acknowledged records .* fills \(2 records;") as caught:
        opened(ORDERS)
    assert caught.value.reason == "records would be lost"
    opened.close()
    assert count(opened(ORDERS, FILLS), "fills") == 2
    assert not (tmp_path / REMOVED).exists()


def test_who_says_so_gives_them_up_and_finds_them_written_out(opened, tmp_path, caplog):
    fill(opened(ORDERS, FILLS), "fills", 1, 2)
    opened.close()
    with caplog.at_level(logging.WARNING, "sow"):
        opened(ORDERS, allow_loss=True)
    assert "given up: topic fills, 2 records" in caplog.text
    (written,) = (tmp_path / REMOVED).rglob("fills.ndjson")
    assert written.read_text() == '{"id":1}\n{"id":2}\n'
    opened.close()
    again = opened(ORDERS, FILLS)
    assert count(again, "fills") == 0, "what was given up does not come back by its log"


def test_a_directory_is_one_servers(opened):
    opened(ORDERS)
    with pytest.raises(StoreError):
        opened(ORDERS)


TRADES = Topic("trades", "json", keys=("/id",))
SLICE = Slice(["1"], [b'{"id":1}'], numbers([1]), numbers([0]), numbers([1]), numbers([0]))


@pytest.fixture
def directory(tmp_path):
    made = DataDirectory(tmp_path / "data")
    yield made
    made.close()


def hold(directory, topic):
    """A checkpoint with a record."""
    checkpoint = directory.checkpoint(topic)
    checkpoint.write(1, [SLICE])
    checkpoint.close()


def journal(directory, configuration):
    directory.journal(configuration.journal).close()


def first(directory, *topics, allow_loss=False):
    return first_manifest(Configuration("test", topics), directory, 0, allow_loss)


def test_an_empty_directory_is_new(directory):
    manifest, is_known = first(directory, ORDERS)
    assert [kept.name for kept in manifest.kept] == ["orders"]
    assert (is_known, manifest.journal) == (True, "journal")


def test_files_without_a_manifest_are_taken_for_those_of_the_configuration(directory, caplog):
    hold(directory, ORDERS)
    manifest, is_known = first(directory, ORDERS)
    assert ([kept.name for kept in manifest.kept], is_known) == (["orders"], False)
    assert "has no manifest" in caplog.text


def test_files_of_no_topic_are_refused_or_moved(directory):
    hold(directory, ORDERS)
    hold(directory, TRADES)
    with pytest.raises(StoreError, match=r"records of no topic .*: trades.*\(1 records\)") as error:
        first(directory, ORDERS)
    assert error.value.reason == "records would be lost"
    first(directory, ORDERS, allow_loss=True)
    (moved,) = (directory.path / "removed").rglob("trades*")
    assert moved.is_file()
    first(directory, ORDERS)


def test_a_journal_somewhere_else_is_refused(directory):
    configuration = Configuration("test", (ORDERS,))
    journal(directory, configuration)
    (directory.path / "journal").rename(directory.path / "old")
    with pytest.raises(StoreError, match=r"the journal is in .*old.* or write old"):
        first(directory, ORDERS)


def test_a_refusal_names_a_handful():
    names = list("abcdefg")
    assert handful(names[:NAMED_MAX]) == "a, b, c, d, e"
    assert handful(names) == "a, b, c, d, e, and 2 more"


DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
WIDE = replace(DESKS, pattern="^/")


def manifest_of(*topics, since_seq=0, **more):
    configuration = Configuration("test", topics)
    kept = tuple(kept_of(topic, configuration, since_seq) for topic in topics)
    return Manifest("journal", kept, names=names_of(topics), **more)


def settled(before, *topics, last_seq=20, forgotten_seq=0):
    now = Configuration("test", topics, journal=JournalSettings("elsewhere"))
    kept = definitions_now(before, now, last_seq)
    return successor(before, now, kept, last_seq, forgotten_seq)


def test_what_is_new_begins_now_and_what_stays_where_it_began():
    after = settled(manifest_of(ORDERS, since_seq=3), ORDERS, DESKS)
    assert {kept.name: kept.since_seq for kept in after.kept} == {"orders": 3, "desks": 20}
    assert (after.journal, after.names) == ("elsewhere", names_of((ORDERS, DESKS)))


def test_what_was_given_up_is_remembered_as_long_as_anything_reports_of_it():
    before = manifest_of(ORDERS, given_up={"old": 4, "new": 9})
    assert settled(before, ORDERS, forgotten_seq=4).given_up == {"new": 9}


def test_who_had_which_names_is_remembered_where_a_pattern_took_some_over():
    assert settled(manifest_of(DESKS), WIDE).eras == (Era(20, names_of((DESKS,))),)
    assert settled(manifest_of(DESKS), DESKS).eras == ()
    assert settled(manifest_of(ORDERS), replace(ORDERS, name="other")).eras == ()


def test_of_a_life_in_which_nothing_was_logged_nothing_is_sent():
    before = manifest_of(DESKS, eras=(Era(5, names_of((WIDE,))), Era(20, names_of((WIDE,)))))
    after = settled(before, WIDE, last_seq=20, forgotten_seq=5)
    assert after.eras == before.eras[1:]


def test_a_definition_that_stays_begins_to_retain_only_when_its_file_has_been_opened():
    passing = replace(ORDERS, retain=False)
    (kept,) = manifest_of(passing).kept
    now = Configuration("test", (ORDERS,))
    assert as_now(kept, now).topic.retain is False
    assert definitions_now(manifest_of(passing), now, 20)[0].topic.retain is True
    (kept,) = manifest_of(ORDERS).kept
    assert as_now(kept, Configuration("test", (passing,))).topic.retain is False
