"""Homeless records: how many there are whose time has not come."""

from sow.core.definitions import Configuration, Topic
from sow.engine.recovery.orphaned_records import OrphanedRecords
from sow.store.stored_definitions import kept_of
from tests.engine.making import catalog

EXPIRING = Topic("t", "json", keys=("/id",), expires=True)


def orphaned(is_kept=True):
    made, _ = catalog(EXPIRING)
    records = made.topics["t"].records
    for identity, expires_us in (("1", 0), ("2", 50), ("3", 90)):
        records.put([identity], [b"{}"], {}, [int(identity)], [0], expires_us)
    kept = kept_of(EXPIRING, Configuration("test", (EXPIRING,))) if is_kept else None
    return OrphanedRecords(records, kept, "a reason")


def test_records_count_until_they_expire():
    assert [orphaned().count(now_us) for now_us in (0, 49, 50, 90)] == [3, 3, 2, 1]


def test_live_records_stand_in_order_of_first_publication():
    assert orphaned().live(50) == [0, 2]


def test_of_what_only_the_log_reports_everything_counts():
    assert orphaned(is_kept=False).count(10**9) == 3


def test_they_are_called_as_their_topic_is():
    assert orphaned().name == "t"
