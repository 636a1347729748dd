"""Ownership: whose a name is, and whose it was."""

import pytest

from sow.core.definitions import Configuration, Topic
from sow.engine.recovery.definition_lineage import CountedFrom, Owners, Ownership
from sow.store.protocols import LogEntry
from sow.store.stored_definitions import Era, Past, kept_of, names_of

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
