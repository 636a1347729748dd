"""Places: where stored records belong now, and what has no place."""

from dataclasses import replace

import pytest

from sow.core.definitions import ConflatedTopic, Limits, Topic
from sow.engine.recovery.restore_mapping import STRAY, UNKNOWN, RestoreMapping
from sow.store.protocols import LogEntry
from sow.store.stored_definitions import Past, past_of
from tests.engine.making import COPIES, DESKS, ORDERS, SLOW, catalog, put


def places(now, before, *, last_seq=20, seqs=None, **more):
    """The places of what was stored for some definitions, in a catalog of others."""
    made, _ = catalog(*now, **more)
    past = past_of(catalog(*before)[0].configuration)
    return made, RestoreMapping(made, past, seqs or {}, last_seq)


def entry(name, seq=1, bodies=(b'{"id":1}',)):
    return LogEntry("publish", name, seq, 0, None, bodies)


def test_a_definition_that_stays_has_its_records():
    made, found = places([ORDERS], [ORDERS], seqs={"orders": 7})
    place = found.of_entry(entry("orders"))
    assert place.records is made.topics["orders"].records
    assert (place.after_seq, found.orphaned) == (7, [])


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
    place = found.of_entry(entry("orders"))
    assert place.records not in [topic.records for topic in made]
    (orphaned,) = found.orphaned
    assert (orphaned.name, orphaned.reason, orphaned.records) == ("orders", reason, place.records)


def test_a_topic_of_a_pattern_is_made_for_its_records_with_its_copies():
    made, found = places([DESKS, COPIES], [DESKS])
    place = found.of_entry(entry("/desk/1"))
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
    found.of_entry(entry("/desk/1"))
    assert [one.reason for one in found.orphaned] == [reason]


def test_what_was_kept_for_no_topic_has_no_place():
    transient = Topic("tmp", "json", durability="transient")
    _, found = places([ORDERS], [ORDERS, transient])
    assert found.of_entry(entry("tmp")) is None
    assert found.orphaned == []


@pytest.mark.parametrize(("is_known", "reason"), [(True, UNKNOWN), (False, STRAY)])
def test_what_only_the_log_reports_of_is_counted_record_by_record(is_known, reason):
    made, _ = catalog(ORDERS)
    found = RestoreMapping(made, Past(is_known=is_known), {}, 20)
    place = found.of_entry(entry("stray", bodies=(b"a", b"a")))
    of_one, of_another = (place.records.identities_of(bodies) for bodies in ([b"a", b"a"], [b"a"]))
    assert len({*of_one, *of_another}) == 3
    assert [(one.name, one.kept, one.reason) for one in found.orphaned] == [("stray", None, reason)]


def test_topics_over_a_limit_are_orphaned_or_empty():
    made, found = places([DESKS], [DESKS], limits=Limits(pattern_topics_max=1))
    for name in ("/desk/1", "/desk/2", "/desk/3"):
        made.placed(name)
    put(made.topics["/desk/1"], {"id": 1})
    put(made.topics["/desk/3"], {"id": 1})
    assert [topic.name for topic in found.over_limits()] == ["/desk/2"]
    assert [one.name for one in found.orphaned] == ["/desk/3"]


def test_the_catalog_is_sent_from_where_entries_count():
    made, _ = places([ORDERS, DESKS], [ORDERS])
    assert made.topics["orders"].records.since_seq == 0
    assert made.placed("/desk/1").records.since_seq == 20
