"""What is read of a request's query string."""

import pytest

from sow.errors import ClientError
from sow.protocol.commands import Options
from sow.server.http.parameters import read_count, read_flag, read_options, read_seconds


def test_options_of_a_query_are_read_as_those_of_a_command():
    requested = {"top_n": "3", "skip_n": "0", "select": "[+/id,-/px]", "filter": "1=1"}
    assert read_options(requested, "query") == Options(
        non_regex_topic=True, top_n=3, skip_n=0, select=("+/id", "-/px")
    )


def test_options_of_a_stream_are_flags_that_say_true_or_false_too():
    requested = {
        "oof": "true",
        "no_empties": "false",
        "conflation": "1s",
        "conflation_key": "/a,/b",
    }
    assert read_options(requested, "stream") == Options(
        non_regex_topic=True, oof=True, conflation=1_000_000, conflation_key=("/a", "/b")
    )


def test_an_option_that_is_ignored_in_a_command_is_ignored_of_a_stream():
    assert read_options({"max_backlog": "x"}, "stream").ignored == ("max_backlog",)


def test_nothing_requested_is_nothing_but_a_literal_name():
    assert read_options({}, "stream") == Options(non_regex_topic=True)


@pytest.mark.parametrize(
    ("request_", "requested"),
    [
        ("query", {"top_n": "x"}),
        ("query", {"skip_n": "-1"}),
        ("stream", {"oof": "yes"}),
        ("stream", {"conflation": "5"}),
    ],
)
def test_an_option_that_cannot_be_read_is_named(request_, requested):
    (name,) = requested
    with pytest.raises(ClientError, match=name):
        read_options(requested, request_)


@pytest.mark.parametrize("count", ["-1", "x", ""])
def test_a_count_is_refused_as_every_count_over_http(count):
    with pytest.raises(ClientError) as caught:
        read_options({"top_n": count}, "query")
    assert caught.value.reason == "bad request"
    assert str(caught.value) == f"top_n={count} must be a whole number, 0 or more"


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (read_flag, "true", True),
        (read_flag, "false", False),
        (read_count, "10", 10),
        (read_seconds, "1.5", 1.5),
    ],
)
def test_a_parameter_is_read(read, text, value):
    assert read({"name": text}, "name") == value
    assert not read({}, "name")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_flag, "1"),
        (read_count, "-1"),
        (read_count, "٣"),
        (read_count, "1" * 10),
        (read_seconds, "inf"),
        (read_seconds, "-1"),
        (read_seconds, "soon"),
    ],
)
def test_what_cannot_be_read_is_named(read, text):
    with pytest.raises(ClientError, match="name="):
        read({"name": text}, "name")
