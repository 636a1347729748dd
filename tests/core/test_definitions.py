"""What definitions say by themselves."""

from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from sow.core.definitions import (
    Configuration,
    Topic,
    View,
    authority,
    is_persistent,
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
