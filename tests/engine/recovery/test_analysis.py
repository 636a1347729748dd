"""Analysis: whose a name is and was, where stored records belong now, and what has no place."""

from dataclasses import replace

import pytest

from sow.core.definitions import Configuration, ConflatedTopic, Limits, Topic
from sow.engine.recovery import (
    OLD_MANIFEST,
    ONLY_IN_LOG,
    CountedFrom,
    OrphanedRecords,
    Owners,
    Ownership,
    RestoreMapping,
)
from sow.store.manifest import Era, Past, kept_of, names_of, past_of
from sow.store.protocols import LogEntry
from tests.engine.making import COPIES, DESKS, ORDERS, SLOW, catalog, put

EXACT = Topic("/desk/1", "json", keys=("/id",))
WIDE = Topic("wide", "json", keys=("/id",), pattern="^/desk/")
OTHER = Topic("other", "json", keys=("/id",), pattern="1$")
TRANSIENT = Topic("tmp", "json", keys=("/id",), durability="transient")


def past(*topics, eras=(), since_seq=0, **more):
    configuration = Configuration("test", topics)
    kept = tuple(kept_of(topic, configuration, since_seq) for topic in topics)
    eras = tuple(Era(until_seq, names_of(then)) for until_seq, then in eras)
    return Past(kept, names=names_of(topics), eras=eras, **more)


def entry(name, seq):
    return LogEntry("publish", name, seq, 0, None, [b"{}"])


def test_the_very_name_goes_first_and_then_the_first_pattern():
    owners = Owners(names_of((WIDE, OTHER, EXACT)))
    assert [owners.of(name) for name in ("/desk/1", "/desk/21", "/x1", "/x2")] == [
        "/desk/1",
        "wide",
        "other",
        None,
    ]


def test_without_names_of_their_own_those_of_the_kept_definitions_count():
    assert Ownership(Past(past(WIDE).kept)).owner("/desk/1") == "wide"


def test_entries_of_another_owner_of_the_name_do_not_count():
    ownership = Ownership(past(WIDE, eras=[(5, (WIDE,)), (9, (OTHER, WIDE))]))
    assert ownership.since("wide", "/desk/1") == 9
    assert ownership.since("wide", "/desk/2") == 0
    assert ownership.since("other", "/desk/1") == 5


def test_what_was_given_up_does_not_count():
    ownership = Ownership(past(WIDE, given_up={"/desk/1": 7}))
    assert [ownership.since("wide", name) for name in ("/desk/1", "/desk/2")] == [7, 0]


@pytest.mark.parametrize(("is_known", "passed"), [(True, True), (False, False)])
def test_records_pass_on_with_their_name_where_that_is_known(is_known, passed):
    ownership = Ownership(past(OTHER, WIDE, is_known=is_known))
    assert ownership.has_passed("wide", "/desk/1") is passed
    assert ownership.has_passed("wide", "/desk/2") is False


def test_an_entry_is_known_if_it_had_an_owner_then():
    ownership = Ownership(past(EXACT, eras=[(5, (WIDE,))], given_up={"/gone": 8}))
    known = [("/desk/2", 5), ("/desk/2", 6), ("/desk/1", 6), ("/gone", 8), ("/gone", 9)]
    assert [ownership.was_known(entry(*one)) for one in known] == [True, False, True, True, False]


def test_a_new_definition_counts_from_now_on_and_one_that_stays_from_where_it_began():
    before = past(EXACT, since_seq=3)
    now = Configuration("test", (EXACT, WIDE, TRANSIENT))
    counted = CountedFrom(now, before, Ownership(before), {"/desk/1": []}, last_seq=20)
    assert counted("/desk/1", "/desk/1") == 3
    assert counted("wide", "/desk/2") == 20
    assert counted("tmp", "tmp") == 0
    changed = CountedFrom(now, before, Ownership(before), {"/desk/1": ["Key"]}, last_seq=20)
    assert changed("/desk/1", "/desk/1") == 20


def test_a_name_that_belonged_to_another_counts_from_now_on():
    before = past(WIDE)
    now = Configuration("test", (EXACT, WIDE))
    counted = CountedFrom(now, before, Ownership(before), {"wide": []}, last_seq=20)
    assert counted("/desk/1", "/desk/1") == 20


def places(now, before, *, last_seq=20, seqs=None, **more):
    """The places of what was stored for some definitions, in a catalog of others."""
    made, _ = catalog(*now, **more)
    past = past_of(catalog(*before)[0].configuration)
    return made, RestoreMapping(made, past, seqs or {}, last_seq)


def published(name, seq=1, bodies=(b'{"id":1}',)):
    return LogEntry("publish", name, seq, 0, None, bodies)


def test_a_definition_that_stays_has_its_records():
    made, found = places([ORDERS], [ORDERS], seqs={"orders": 7})
    place = found.of_entry(published("orders"))
    assert place.records is made.topics["orders"].records
    assert (place.after_seq, [*found.orphans]) == (7, [])


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ([], "orders is not defined any more"),
        ([replace(ORDERS, keys=("/x",))], "Key of orders changed"),
        ([replace(ORDERS, keys=("/x",), message_type="nvfix")],
         "MessageType and Key of orders changed"),
        ([Topic("t", "json", keys=("/id",)), ConflatedTopic("orders", "json", "t")],
         "UnderlyingTopic of orders changed"),
        ([replace(ORDERS, retain=False)], "Retain is false now"),
    ],
)  # fmt: skip
def test_records_of_another_definition_are_orphaned(now, reason):
    made, found = places(now, [ORDERS])
    place = found.of_entry(published("orders"))
    assert place.records not in [topic.records for topic in made]
    (orphaned,) = found.orphans
    assert (orphaned.name, orphaned.reason, orphaned.records) == ("orders", reason, place.records)


def test_a_topic_of_a_pattern_is_made_for_its_records_with_its_copies():
    made, found = places([DESKS, COPIES], [DESKS])
    place = found.of_entry(published("/desk/1"))
    assert place.records is made.topics["/desk/1"].records
    assert "/desk/1-C" in made.topics


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ([replace(DESKS, pattern="^/other/")], "Pattern of desks does not match /desk/1 any more"),
        ([Topic("/desk/1", "json", keys=("/id",)), DESKS],
         "/desk/1 belongs to /desk/1 now, and belonged to desks"),
        ([ORDERS, replace(SLOW, name="/desk/1"), DESKS],
         "/desk/1 is the name of a conflated topic now"),
    ],
)  # fmt: skip
def test_a_name_that_a_pattern_has_lost_leaves_its_records_orphaned(now, reason):
    _, found = places(now, [DESKS])
    found.of_entry(published("/desk/1"))
    assert [one.reason for one in found.orphans] == [reason]


def test_what_was_kept_for_no_topic_has_no_place():
    transient = Topic("tmp", "json", durability="transient")
    _, found = places([ORDERS], [ORDERS, transient])
    assert found.of_entry(published("tmp")) is None
    assert [*found.orphans] == []


@pytest.mark.parametrize(("is_known", "reason"), [(True, OLD_MANIFEST), (False, ONLY_IN_LOG)])
def test_what_only_the_log_reports_of_is_counted_record_by_record(is_known, reason):
    made, _ = catalog(ORDERS)
    found = RestoreMapping(made, Past(is_known=is_known), {}, 20)
    place = found.of_entry(published("stray", bodies=(b"a", b"a")))
    of_one, of_another = (place.records.identities_of(bodies) for bodies in ([b"a", b"a"], [b"a"]))
    assert len({*of_one, *of_another}) == 3
    assert [(one.name, one.kept, one.reason) for one in found.orphans] == [("stray", None, reason)]


def test_topics_over_a_limit_are_orphaned_or_empty():
    made, found = places([DESKS], [DESKS], limits=Limits(pattern_topics_max=1))
    for name in ("/desk/1", "/desk/2", "/desk/3"):
        made.placed(name)
    put(made.topics["/desk/1"], {"id": 1})
    put(made.topics["/desk/3"], {"id": 1})
    assert [topic.name for topic in found.over_limits()] == ["/desk/2"]
    assert [one.name for one in found.orphans] == ["/desk/3"]


def test_the_catalog_is_sent_from_where_entries_count():
    made, _ = places([ORDERS, DESKS], [ORDERS])
    assert made.topics["orders"].records.since_seq == 0
    assert made.placed("/desk/1").records.since_seq == 20


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
