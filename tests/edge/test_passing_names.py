"""Names that pass from one definition to another, and patterns that take in more or fewer."""

import json
from dataclasses import replace

import pytest

from sow.core.definitions import ConflatedTopic, JournalSettings, Limits, Topic
from sow.errors import InvalidTopic, TooLarge
from sow.store.manifest import MANIFEST_FILE
from tests.edge.lives import (
    COPIES,
    DESKS,
    ORDERS,
    refused,
    removed,
    with_desks,
)


def test_a_narrower_pattern_is_refused_with_the_topics_it_leaves_out(live):
    names = [f"/desk/{number}" for number in range(9)]
    with_desks(live, *names)
    narrow = replace(DESKS, pattern="^/desk/0")
    detail = refused(live, ORDERS, narrow, match="^16 acknowledged records")
    assert "/desk/1 (2 records; Pattern of desks does not match /desk/1 any more)" in detail
    assert "/desk/5" in detail
    assert "/desk/6" not in detail
    assert "and 3 more" in detail
    with live(ORDERS, replace(DESKS, pattern="/desk/")) as life:
        assert all(life.records(name) == [{"id": 1}, {"id": 2}] for name in names)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_topics_of_a_pattern_that_were_given_up_do_not_come_back_by_its_checkpoint(
    live, checkpointed
):
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/0", {"id": 1})
        life.publish("/desk/1", {"id": 1})
        if checkpointed:
            life.checkpoint()
        life.publish("/desk/1", {"id": 2})
    with live(ORDERS, replace(DESKS, pattern="^/desk/0"), allow_loss=True) as life:
        assert life.records("/desk/0") == [{"id": 1}]
    assert len(removed(live)["%2Fdesk%2F1.ndjson"].read_text().splitlines()) == 2
    with live(ORDERS, DESKS) as life:
        assert "/desk/1" not in life.engine.topics
        life.publish("/desk/1", {"id": 3})
        assert life.logged("/desk/1") == [{"id": 3}]
    with live(ORDERS, DESKS) as life:
        assert life.records("/desk/0") == [{"id": 1}]
        assert life.records("/desk/1") == [{"id": 3}]


def test_what_was_given_up_stays_so_when_the_log_is_empty_and_no_checkpoint_is_newer(live):
    forgetful = {"journal": JournalSettings(retention_bytes=0)}
    with live(ORDERS, DESKS, **forgetful) as life:
        life.publish("/desk/1", {"id": 1})
        life.checkpoint()
        life.trim()
        assert life.journal.first_seq > life.journal.last_seq
    narrow = replace(DESKS, pattern="^/desk/0")
    with live(ORDERS, narrow, allow_loss=True, **forgetful):
        pass
    with live(ORDERS, narrow, **forgetful):
        pass
    with live(ORDERS, DESKS, **forgetful) as life:
        assert "/desk/1" not in life.engine.topics


@pytest.mark.parametrize(
    "passing",
    [
        Topic("/desk/1", "json", keys=("/id",), durability="transient"),
        Topic("first", "json", keys=("/id",), durability="transient", pattern="^/desk/1"),
        Topic("/desk/1", "binary", durability="transient"),
    ],
)
def test_what_a_transient_topic_has_logged_never_counts_for_a_pattern(live, passing):
    for wide in (DESKS, Topic("desks", "binary", pattern="^/desk/")):
        named = {"key": "1"} if passing.message_type == "binary" else {}
        with live(ORDERS, passing, wide) as life:
            life.publish("/desk/1", {"id": 1}, **named)
        with live(ORDERS, passing, wide) as life:
            life.publish("/desk/1", {"id": 2}, **named)
        with live(ORDERS, wide) as life:
            assert "/desk/1" not in life.engine.topics
        with live(ORDERS, allow_loss=True):
            pass


@pytest.mark.parametrize("checkpointed", [False, True])
def test_names_of_a_pattern_that_has_gone_do_not_tell_another_what_they_were(live, checkpointed):
    fixed = Topic("fixed", "nvfix", keys=("/55",), pattern="^/desk/1")
    with live(ORDERS, fixed, DESKS) as life:
        life.publish("/desk/1", b"55=a\x01", b"55=b\x01")
        life.publish("/desk/2", {"id": 2})
        life.delete("/desk/1")
        if checkpointed:
            life.checkpoint()
    for _ in range(2):
        with live(ORDERS, DESKS) as life:
            assert life.records("/desk/2") == [{"id": 2}]
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/1", {"id": 1})
        assert life.logged("/desk/1") == [{"id": 1}]
    with live(ORDERS, DESKS) as life:
        assert life.records("/desk/1") == life.logged("/desk/1") == [{"id": 1}]


def test_a_name_that_comes_back_to_a_pattern_begins_empty(live):
    exact = Topic("/desk/1", "json", keys=("/id",), hash_indexes=(("/id",),))
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/1", {"id": 1})
        life.checkpoint()
    with live(ORDERS, exact, DESKS, allow_loss=True) as life:
        life.publish("/desk/1", {"id": 2})
        life.delete("/desk/1")
    with live(ORDERS, DESKS) as life:
        assert "/desk/1" not in life.engine.topics
        life.publish("/desk/1", {"id": 3})
    with live(ORDERS, DESKS) as life:
        assert life.records("/desk/1") == life.logged("/desk/1") == [{"id": 3}]


def test_a_checkpoint_does_not_bring_back_what_was_deleted_before_a_name_passed_on(live):
    exact = Topic("/desk/1", "binary")
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/1", {"id": 1})
        life.checkpoint()
        life.delete("/desk/1")
    for _ in range(2):
        with live(ORDERS, exact, DESKS) as life:
            life.publish("/desk/1", b"\x00", key="1")
    with live(ORDERS, exact, DESKS) as life:
        life.delete("/desk/1")
    for _ in range(2):
        with live(ORDERS, DESKS) as life:
            assert "/desk/1" not in life.engine.topics


def test_whose_names_were_whose_is_forgotten_with_the_log(live):
    narrow = replace(DESKS, pattern="^/desk/0")
    forgetful = {"journal": JournalSettings(retention_bytes=0)}
    for topics in ((DESKS,), (narrow,), (DESKS,), (narrow,)):
        with live(ORDERS, *topics, **forgetful) as life:
            life.publish("orders", {"id": 1})
    assert len(json.loads((live.path / MANIFEST_FILE).read_bytes())["eras"]) == 3
    with live(ORDERS, narrow, **forgetful) as life:
        life.publish("orders", {"id": 1})
        life.checkpoint()
        life.trim()
    with live(ORDERS, narrow, **forgetful):
        pass
    assert json.loads((live.path / MANIFEST_FILE).read_bytes())["eras"] == []


def test_a_pattern_may_be_called_as_a_topic_of_another_is(live):
    with live(DESKS) as life:
        life.publish("/desk/1", {"id": 1})
    with live(DESKS, replace(DESKS, name="/desk/1", pattern="^orders")) as life:
        assert life.records("/desk/1") == life.logged("/desk/1") == [{"id": 1}]


def test_topics_that_hold_nothing_do_not_lead_over_the_limit(live):
    limited = {"limits": Limits(pattern_topics_max=2)}
    with_desks(live, "/desk/1", "/desk/2", "/desk/3")
    with live(ORDERS, DESKS) as life:
        life.delete("/desk/1")
    with live(ORDERS, DESKS, **limited) as life:
        with pytest.raises(TooLarge):
            life.publish("/desk/1", {"id": 1})
        life.publish("/desk/2", {"id": 3})
    with live(ORDERS, DESKS, **limited) as life:
        assert len(life.records("/desk/2")) == 3


def test_a_lower_limit_of_a_patterns_topics_counts_those_that_hold_records(live):
    with_desks(live, "/desk/1", "/desk/2", "/desk/3")
    limited = {"limits": Limits(pattern_topics_max=2)}
    refused(live, ORDERS, DESKS, match=r"/desk/3 \(2 records; Limits/PatternTopics", **limited)
    with live(ORDERS, DESKS) as life:
        life.delete("/desk/1")
    with live(ORDERS, DESKS, **limited) as life:
        assert life.records("/desk/3") == [{"id": 1}, {"id": 2}]


def test_a_limit_gives_up_only_what_is_over_it(live):
    with_desks(live, "/desk/1", "/desk/2", "/desk/3")
    limited = {"limits": Limits(pattern_topics_max=2)}
    with live(ORDERS, DESKS, allow_loss=True, **limited) as life:
        assert "/desk/3" not in life.engine.topics
        assert life.records("/desk/2") == [{"id": 1}, {"id": 2}]
    assert list(removed(live)) == ["%2Fdesk%2F3.ndjson"]
    with live(ORDERS, DESKS) as life:
        assert "/desk/3" not in life.engine.topics


@pytest.mark.parametrize("order", [("/desk/1", "/desk/1-C"), ("/desk/1-C", "/desk/1")])
def test_a_format_whose_copies_would_take_the_names_of_topics_is_refused(live, order):
    with_desks(live, *order)
    refused(live, ORDERS, DESKS, COPIES, match=r"/desk/1-C \(2 records; /desk/1-C is ")
    with live(ORDERS, DESKS) as life:
        assert life.records("/desk/1-C") == [{"id": 1}, {"id": 2}]
    with live(ORDERS, DESKS, COPIES, allow_loss=True) as life:
        assert life.records("/desk/1") == [{"id": 1}, {"id": 2}]
        with pytest.raises(InvalidTopic):
            life.publish("/desk/1-C", {"id": 1})
        life.publish("/desk/1", {"id": 3})
    with live(ORDERS, DESKS, COPIES) as life:
        assert life.records("/desk/1-C") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_definition_that_takes_a_topic_of_a_pattern_for_itself_is_refused(live):
    with_desks(live, "/desk/1")
    exact = Topic("/desk/1", "json", keys=("/id",))
    refused(
        live, ORDERS, exact, DESKS, match="/desk/1 belongs to /desk/1 now, and belonged to desks"
    )
    copy = ConflatedTopic("/desk/1", "json", "orders")
    refused(live, ORDERS, DESKS, copy, match="/desk/1 is the name of a conflated topic now")
    before = replace(DESKS, name="first")
    refused(live, ORDERS, before, DESKS, match="/desk/1 belongs to first now")


def test_a_pattern_is_given_up_with_everything_in_it(live):
    with live(ORDERS, DESKS) as life:
        life.publish("/desk/1", {"id": 1})
        life.checkpoint()
        life.publish("/desk/2", {"id": 2})
    transient = replace(DESKS, durability="transient")
    refused(live, ORDERS, transient, match=r"/desk/1 \(1 record; Durability of desks changed\)")
    with live(ORDERS, allow_loss=True):
        pass
    assert removed(live).keys() == {
        "%2Fdesk%2F1.ndjson",
        "%2Fdesk%2F2.ndjson",
        "desks.json.sow",
    }
    with live(ORDERS, DESKS) as life:
        assert not any(name.startswith("/desk/") for name in life.engine.topics)
