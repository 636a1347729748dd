"""What definitions say by themselves."""

from dataclasses import replace
from urllib.parse import urlsplit

import orjson
import pytest

from sow.core.definitions import (
    Configuration,
    MessageTypeOptions,
    RecordField,
    Topic,
    View,
    authority,
    can_read,
    describe_message_type,
    is_persistent,
    message_type_options,
    record_fields,
    stored,
    with_system_topics,
    without_system_topics,
)

DESKS = View(
    "desks", "json", ("orders",), ("/desk",), ("/desk",), indexes=("/desk",),
    key_domain="d", placement="append", line=7,
)  # fmt: skip


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "fe80::1"])
def test_an_address_is_one_in_a_url(host):
    parts = urlsplit(f"http://{authority(host, 8080)}")
    assert (parts.hostname, parts.port) == (host, 8080)


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


def changed(options, **values):
    return MessageTypeOptions(
        **{
            "name": options.name,
            "module": options.module,
            "field_separator": options.field_separator,
            "fields": options.fields,
            "parts": options.parts,
            **values,
        }
    )


@pytest.mark.parametrize("options", [TRADES, BOTH, MessageTypeOptions("bar", "fix", b"|")])
def test_what_was_described_is_read_again(options):
    assert (
        message_type_options(orjson.loads(orjson.dumps(describe_message_type(options)))) == options
    )


def test_what_knows_neither_fields_nor_parts_is_read_too():
    options = {"name": "bar", "module": "fix", "field_separator": "|"}
    assert message_type_options(options) == MessageTypeOptions("bar", "fix", b"|")
    assert record_fields([]) == ()


def test_the_line_makes_no_difference():
    assert changed(TRADES, line=9) == TRADES


def test_a_field_more_at_the_end_reads_old_records():
    more = changed(TRADES, fields=(ID, PX, RecordField("qty")))
    assert can_read(more, TRADES)
    assert not can_read(TRADES, more)
    assert can_read(changed(BOTH, parts=(BOTH.parts[0], more)), BOTH)


@pytest.mark.parametrize(
    "other",
    [
        changed(TRADES, fields=(PX, ID)),
        changed(TRADES, fields=(ID, RecordField("price", "decimal"))),
        changed(TRADES, fields=(ID, RecordField("px", "string"))),
        changed(TRADES, field_separator=b"|"),
        changed(TRADES, module="fix"),
        BOTH,
        None,
    ],
)
def test_other_fields_do_not(other):
    assert not can_read(other, TRADES)


def test_parts_are_compared_one_by_one():
    json, trades = BOTH.parts
    assert not can_read(changed(BOTH, parts=(trades, json)), BOTH)
    assert not can_read(changed(BOTH, parts=(json, trades, json)), BOTH)
    assert can_read(changed(BOTH, parts=(json, changed(trades, name="deals"))), BOTH)


def test_a_type_as_it_comes_reads_itself():
    assert can_read(None, None)
