"""What definitions say by themselves."""

from dataclasses import replace

import orjson
import pytest

from sow.core.definitions import (
    Configuration,
    MessageTypeOptions,
    RecordField,
    Topic,
    View,
    describe_message_type,
    is_persistent,
    message_type_options,
    stored,
    with_system_topics,
    without_system_topics,
)

DESKS = View(
    "desks", "json", ("orders",), ("/desk",), ("/desk",), indexes=("/desk",),
    key_domain="d", placement="append", line=7,
)  # fmt: skip


def test_a_view_that_spark_runs_is_stored_as_a_topic_and_shown_as_it_was_written():
    orders, by_spark = Topic("orders", "json"), replace(DESKS, engine="spark")
    requested = Configuration("test", (orders, DESKS, by_spark))
    run = with_system_topics(requested)
    assert run.topics[:2] == (orders, DESKS)
    topic = run.topics[2]
    assert isinstance(topic, Topic)
    assert is_persistent(topic)
    assert (topic.name, topic.domain, topic.keys) == ("desks", "d", ())
    assert (topic.placement, topic.indexes, topic.line) == ("append", ("/desk",), 7)
    assert without_system_topics(run) == requested


def test_where_a_view_stands_in_the_file_makes_no_other_topic_of_it():
    topic, moved = (stored(replace(DESKS, engine="spark", line=line)) for line in (7, 8))
    assert (topic.view, topic.line) == (moved.view, 7)


ID, PX = RecordField("id", "int"), RecordField("px", "decimal")
TRADES = MessageTypeOptions("trades", "record", b"\x02", (ID, PX), line=4)
BOTH = MessageTypeOptions(
    "both", "composite-local", parts=(MessageTypeOptions("json", "json"), TRADES)
)


@pytest.mark.parametrize("options", [TRADES, BOTH, MessageTypeOptions("bar", "fix", b"|")])
def test_what_was_described_is_read_again(options):
    assert (
        message_type_options(orjson.loads(orjson.dumps(describe_message_type(options)))) == options
    )


def test_what_knows_neither_fields_nor_parts_is_read_too():
    options = {"name": "bar", "module": "fix", "field_separator": "|"}
    assert message_type_options(options) == MessageTypeOptions("bar", "fix", b"|")


def test_the_line_makes_no_difference():
    assert replace(TRADES, line=9) == TRADES
