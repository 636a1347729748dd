"""What a client's arguments become in a command."""

from datetime import timedelta

import pytest

from conflated_topics.intervals import interval_us
from sow.client.questions import subscription


def options(**focus):
    return subscription("orders", focus, snapshot=True)[1]["opts"]


@pytest.mark.parametrize(
    "interval", [timedelta(microseconds=15_001), timedelta(milliseconds=250), timedelta(days=3)]
)
def test_an_interval_is_sent_to_the_microsecond(interval):
    sent = options(conflation=interval).removeprefix("conflation=")
    assert interval_us(sent) == interval // timedelta(microseconds=1)


def test_an_interval_that_is_text_is_sent_as_it_is():
    assert options(conflation="1s", conflation_key=["/a", "/b"]) == (
        "conflation=1s,conflation_key=[/a,/b]"
    )
