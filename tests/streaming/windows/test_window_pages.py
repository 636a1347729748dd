"""What has to be said from one page to the next, and at which places."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import ClientError, TooLarge
from sow.expressions import compile_filter
from sow.protocol.commands import Command, Options
from sow.streaming.windows import (
    EMPTY_PAGE,
    WINDOW_END_MAX,
    PageRow,
    WindowPage,
    check_window,
    difference_of,
    page_before,
    window_of,
)

NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)


def row(version):
    return PageRow(b"%d" % version, version, 0, 0)


def page(names, changed=()):
    return WindowPage({name: row(2 if name in changed else 1) for name in names})


def applied(held, steps):
    """What a naive client makes of the steps, and the most that it held on the way."""
    names, most = [*held.rows], 0
    for step in steps:
        stood = names.index(step.identity) if step.identity in names else None
        if stood is not None:
            del names[stood]
        if step.new is None:
            assert step.at == stood
        else:
            assert step.moved == (step.at != stood)
            names.insert(step.at, step.identity)
        most = max(most, len(names))
    return names, most


@given(NAMES, NAMES, st.sets(st.sampled_from("abcdefgh")), st.permutations("abcdefgh"))
def test_steps_applied_in_order_end_in_the_pages_order(before, after, changed, order):
    """What has not changed keeps its order, whatever else has moved."""
    still = [name for name in order if name in before and name in after and name not in changed]
    both = iter(still)
    before = [next(both) if name in still else name for name in before]
    both = iter(still)
    after = [next(both) if name in still else name for name in after]
    held, now = page(before), page(after, changed)
    steps = [*difference_of(held, now)]
    names, most = applied(held, steps)
    assert names == after
    assert most <= max(len(before) - 1 if steps else 0, len(after))
    kinds = [0 if one.new is None else 1 if one.old is None else 2 for one in steps]
    assert kinds == sorted(kinds), "leavers first, then those who enter, then changes"
    assert len({step.identity for step in steps}) == len(steps)


def test_equal_pages_have_nothing_to_say_unless_they_are_seen_anew():
    assert [*difference_of(page("abc"), page("abc"))] == []
    from_scratch = [*difference_of(page("abc"), page("abc"), from_scratch=True)]
    assert [(step.identity, step.at, step.moved) for step in from_scratch] == [
        ("a", 0, False), ("b", 1, False), ("c", 2, False)
    ]  # fmt: skip


def test_a_page_is_sent_whole_to_who_holds_nothing():
    steps = [*difference_of(EMPTY_PAGE, page("xyz"))]
    assert [(step.identity, step.at, step.old) for step in steps] == [
        ("x", 0, None), ("y", 1, None), ("z", 2, None)
    ]  # fmt: skip


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_steps_that_are_taken_back_end_in_the_page_from_which_they_began(every):
    """Each page says of its records, in whatever order, that they have changed."""
    pages = [WindowPage({name: row(at) for name in names}) for at, names in enumerate(every)]
    turns = [[*difference_of(*pair)] for pair in pairwise(pages)]
    before = page_before(pages[-1], turns)
    assert [*before.rows.items()] == [*pages[0].rows.items()]


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
        (command(top_n=WINDOW_END_MAX, skip_n=1), None, False, TooLarge),
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
