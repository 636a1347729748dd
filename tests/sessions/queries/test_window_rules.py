"""When a subscription is a window, and what is refused before any topic is looked at."""

import pytest

from sow.errors import ClientError, TooLarge
from sow.expressions import compile_filter
from sow.protocol.commands import Command, Options
from sow.sessions.queries.window_rules import END_MAX, check_window, window_of


def command(order_by=None, keys=None, **options):
    named = Options(**options)
    return Command("sow_and_subscribe", topic="t", options=named, order_by=order_by, keys=keys)


@pytest.mark.parametrize(
    ("options", "is_window"),
    [
        ({}, False),
        ({"top_n": 3}, False),
        ({"skip_n": 3}, False),
        ({"top_n": 3, "skip_n": 0}, True),
        ({"top_n": 3, "live": True}, True),
    ],
)
def test_a_window_has_a_length_and_says_that_it_is_live_or_where_it_begins(options, is_window):
    assert (window_of(command(**options)) is not None) == is_window


def test_what_a_window_is_stands_in_its_key():
    window = window_of(command("/px", top_n=3, skip_n=2, positions=True))
    assert window == ("/px", 2, 3, True)
    assert window.end == 5


@pytest.mark.parametrize("options", [{"live": True}, {"positions": True, "top_n": 3}])
def test_half_a_window_is_refused_with_what_to_write(options):
    with pytest.raises(ClientError, match="write for example"):
        window_of(command(**options))


@pytest.mark.parametrize(
    ("requested", "condition", "is_pattern", "error"),
    [
        (command(keys=("1",), top_n=1, live=True), None, False, ClientError),
        (command(top_n=1, live=True, conflation_key=("/a",)), None, False, ClientError),
        (command(top_n=1, live=True), None, True, ClientError),
        (command(top_n=END_MAX, skip_n=1), None, False, TooLarge),
        (command(top_n=1, live=True), "UNIX_TIMESTAMP() > 1", False, ClientError),
        (command(top_n=1, live=True), "BOOKMARK() = '1'", False, ClientError),
    ],
)
def test_what_no_window_can_do_is_refused(requested, condition, is_pattern, error):
    compiled = None if condition is None else compile_filter(condition)
    window = window_of(requested)
    with pytest.raises(error):
        check_window(requested, window, compiled, is_pattern)
    check_window(command(top_n=1, live=True), window_of(command(top_n=1, live=True)), None, False)
