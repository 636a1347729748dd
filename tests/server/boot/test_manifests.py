"""Manifests: the first one of a data directory, and how one follows from another."""

from dataclasses import replace

import pytest

from sow.core.definitions import Configuration, JournalSettings, Topic
from sow.errors import StoreError
from sow.server.boot.manifests import (
    NAMED_MAX,
    as_now,
    definitions_now,
    first_manifest,
    handful,
    successor,
)
from sow.store.directory import DataDirectory
from sow.store.manifest import Manifest
from sow.store.protocols import Slice, numbers
from sow.store.stored_definitions import Era, kept_of, names_of

ORDERS = Topic("orders", "json", keys=("/id",))
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


def manifest(*topics, since_seq=0, **more):
    configuration = Configuration("test", topics)
    kept = tuple(kept_of(topic, configuration, since_seq) for topic in topics)
    return Manifest("journal", kept, names=names_of(topics), **more)


def settled(before, *topics, last_seq=20, forgotten_seq=0):
    now = Configuration("test", topics, journal=JournalSettings("elsewhere"))
    kept = definitions_now(before, now, last_seq)
    return successor(before, now, kept, last_seq, forgotten_seq)


def test_what_is_new_begins_now_and_what_stays_where_it_began():
    after = settled(manifest(ORDERS, since_seq=3), ORDERS, DESKS)
    assert {kept.name: kept.since_seq for kept in after.kept} == {"orders": 3, "desks": 20}
    assert (after.journal, after.names) == ("elsewhere", names_of((ORDERS, DESKS)))


def test_what_was_given_up_is_remembered_as_long_as_anything_reports_of_it():
    before = manifest(ORDERS, given_up={"old": 4, "new": 9})
    assert settled(before, ORDERS, forgotten_seq=4).given_up == {"new": 9}


def test_who_had_which_names_is_remembered_where_a_pattern_took_some_over():
    assert settled(manifest(DESKS), WIDE).eras == (Era(20, names_of((DESKS,))),)
    assert settled(manifest(DESKS), DESKS).eras == ()
    assert settled(manifest(ORDERS), replace(ORDERS, name="other")).eras == ()


def test_of_a_life_in_which_nothing_was_logged_nothing_is_sent():
    before = manifest(DESKS, eras=(Era(5, names_of((WIDE,))), Era(20, names_of((WIDE,)))))
    after = settled(before, WIDE, last_seq=20, forgotten_seq=5)
    assert after.eras == before.eras[1:]


def test_a_definition_that_stays_begins_to_retain_only_when_its_file_has_been_opened():
    passing = replace(ORDERS, retain=False)
    (kept,) = manifest(passing).kept
    now = Configuration("test", (ORDERS,))
    assert as_now(kept, now).topic.retain is False
    assert definitions_now(manifest(passing), now, 20)[0].topic.retain is True
    (kept,) = manifest(ORDERS).kept
    assert as_now(kept, Configuration("test", (passing,))).topic.retain is False
