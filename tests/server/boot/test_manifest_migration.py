"""The manifest's successor: what is written down once a directory is open."""

from dataclasses import replace

from sow.core.definitions import Configuration, JournalSettings, Topic
from sow.server.boot.manifest_migration import as_now, definitions_now, successor
from sow.store.manifest import Manifest
from sow.store.stored_definitions import Era, kept_of, names_of

ORDERS = Topic("orders", "json", keys=("/id",))
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
