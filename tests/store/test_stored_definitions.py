"""What stored records depend on of a definition, and which change leaves them without a place."""

from dataclasses import replace

import pytest

from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    MessageTypeOptions,
    Topic,
    View,
    stored,
)
from sow.store.stored_definitions import (
    StoredDefinition,
    file_name,
    fingerprint,
    kept_of,
    names_of,
    persistent_topics,
)

ORDERS = Topic("orders", "json", keys=("/id",))


def configuration(*topics, types=()):
    return Configuration(name="test", topics=topics, message_types=types)


def changes(before, now, types=(), types_before=()):
    kept = kept_of(before, configuration(types=types_before))
    return kept.changes(now, configuration(types=types))


@pytest.mark.parametrize(
    ("change", "elements"),
    [
        ({}, []),
        ({"keys": ("/id", "/side")}, ["Key"]),
        ({"key_domain": "other"}, ["KeyDomain"]),
        ({"file_name": "elsewhere.sow"}, ["FileName"]),
        ({"message_type": "nvfix"}, ["MessageType"]),
        ({"pattern": "ord.*"}, ["Pattern"]),
        ({"durability": "transient"}, ["Durability"]),
        ({"keys": ("/x",), "key_domain": "d"}, ["Key", "KeyDomain"]),
        ({"expires": True}, []),
    ],
)
def test_an_element_that_records_depend_on_is_named(change, elements):
    assert changes(ORDERS, replace(ORDERS, **change)) == elements


def test_a_definition_that_is_gone_or_of_another_kind():
    copy = ConflatedTopic("orders", "json", underlying="x")
    assert changes(ORDERS, None) == ["Name"]
    assert changes(ORDERS, copy) == ["UnderlyingTopic"]


def test_rows_that_spark_made_of_a_view_are_given_up_by_another_engine():
    view = View("desks", "json", ("orders",), ("/desk",), ("/desk",))
    by_spark = stored(replace(view, engine="spark"))
    assert changes(by_spark, view) == ["Engine"]
    assert changes(by_spark, by_spark) == []
    assert changes(replace(ORDERS, name="desks"), view) == ["UnderlyingTopic"]


def test_another_pattern_is_sent_by_the_names_that_it_takes():
    families = replace(ORDERS, pattern="a.*")
    assert changes(families, replace(ORDERS, pattern="b.*")) == []


def test_a_message_type_with_other_separators_is_another_one():
    one = MessageTypeOptions(name="json", module="nvfix", line=3)
    other = replace(one, field_separator=b"|")
    assert changes(ORDERS, ORDERS, (replace(one, line=9),), (one,)) == []
    assert changes(ORDERS, ORDERS, (other,), (one,)) == ["MessageType"]


def test_a_file_is_named_after_topic_and_type_unless_it_has_a_name():
    assert file_name(replace(ORDERS, name="a/b c")) == "a%2Fb%20c.json.sow"
    assert file_name(replace(ORDERS, file_name="mine.sow")) == "mine.sow"


def test_a_fingerprint_is_of_what_names_records():
    assert fingerprint(ORDERS) == fingerprint(replace(ORDERS, retain=False, expires=True))
    for change in ({"keys": ("/x",)}, {"message_type": "nvfix"}, {"key_domain": "d"}):
        assert fingerprint(ORDERS) != fingerprint(replace(ORDERS, **change))


def test_what_is_kept_reads_itself_without_the_configuration():
    options = MessageTypeOptions(name="json", module="nvfix", line=3)
    kept = kept_of(ORDERS, configuration(types=(options,)), since_seq=7)
    assert kept == StoredDefinition(kept.topic, replace(options, line=0), 7)
    assert kept.kinds == {"json": kept.options}
    assert kept.name == "orders"
    assert kept.topic.file_name == "orders.json.sow"
    assert kept_of(ORDERS, configuration()).kinds == {}


def test_only_persistent_topics_have_records_on_disk_but_transient_ones_take_names():
    transient = replace(ORDERS, name="quick", durability="transient", pattern="q.*")
    copy = ConflatedTopic("copy", "json", underlying="orders")
    topics = (ORDERS, transient, copy)
    assert persistent_topics(configuration(*topics)) == [ORDERS]
    assert names_of(topics) == (("orders", None), ("quick", "q.*"))
