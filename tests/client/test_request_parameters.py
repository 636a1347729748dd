"""The keyword arguments of the client, as HTTP parameters and as a subscription's command."""

from datetime import timedelta

import orjson
import pytest

from conflated_topics.user_texts import interval_us
from sow.client.request_parameters import parameters, subscription
from sow.protocol.wire import read_frame


def test_lists_become_comma_text_and_everything_else_stays():
    requested = {"keys": ["1", "2"], "select": ("/a", "/b"), "top_n": 5, "filter": None}
    assert parameters(requested) == {"keys": "1,2", "select": "/a,/b", "top_n": 5, "filter": None}
    assert parameters({"select": "/a,/b"}) == {"select": "/a,/b"}
    assert requested["keys"] == ["1", "2"], "what was given is not changed"


@pytest.mark.parametrize(
    ("delta", "snapshot", "command"),
    [
        (False, False, "subscribe"),
        (True, False, "delta_subscribe"),
        (False, True, "sow_and_subscribe"),
        (True, True, "sow_and_delta_subscribe"),
    ],
)
def test_a_delta_and_a_snapshot_are_in_the_commands_name(delta, snapshot, command):
    assert subscription("orders", {"delta": delta}, snapshot) == (command, {"t": "orders"})


def test_flags_and_a_pace_are_options_and_the_bookmark_has_its_short_name():
    focus = {
        "filter": "/a = 1",
        "oof": True,
        "no_empties": False,
        "timestamp": True,
        "conflation": timedelta(milliseconds=1500),
        "conflation_key": ["/a", "/b"],
        "select": ["/a"],
        "bookmark": "7",
    }
    assert subscription("orders", focus, False) == (
        "subscribe",
        {
            "t": "orders",
            "filter": "/a = 1",
            "select": "/a",
            "bm": "7",
            "opts": "oof,timestamp,conflation=1500000us,conflation_key=[/a,/b]",
        },
    )


def test_a_server_reads_what_the_client_writes():
    name, fields = subscription(
        "orders",
        {"oof": True, "delta": True, "conflation": "1s", "conflation_key": ["/a"], "top_n": 3},
        True,
    )
    (command,) = read_frame(orjson.dumps({"c": name, **fields}))
    assert (command.name, command.topic) == (name, "orders")
    options = command.options
    assert (options.oof, options.top_n, options.conflation) == (True, 3, 1_000_000)
    assert options.conflation_key == ("/a",)


@pytest.mark.parametrize(
    "interval", [timedelta(microseconds=15_001), timedelta(milliseconds=250), timedelta(days=3)]
)
def test_an_interval_is_sent_to_the_microsecond(interval):
    _, header = subscription("orders", {"conflation": interval}, True)
    sent = header["opts"].removeprefix("conflation=")
    assert interval_us(sent) == interval // timedelta(microseconds=1)
