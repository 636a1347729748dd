"""The tables of commands and options, held against what reads them."""

import contextlib
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import ClientError, SowError, TooLarge
from sow.protocol.commands import (
    COMMANDS,
    CONFLATION_US_MIN,
    KEY_FIELDS_MAX,
    OPTIONS,
    OPTIONS_IGNORED,
    READERS,
    Command,
    Options,
    acks_of,
    options_of,
    read_options,
    read_value,
)
from sow.protocol.wire import FRAMED, HEADER_FIELDS
from sow.sessions.commands.executor import ACTIONS, Executor
from tests.cases import all_cases

OF_EVERY_COMMAND = {"c", "cid", "a"}


def test_every_field_that_a_line_may_have_is_read_by_a_command():
    assert {name for kind in COMMANDS.values() for name in kind.fields} | OF_EVERY_COMMAND == (
        HEADER_FIELDS
    )


def test_the_fields_that_are_options_are_read_where_options_are():
    both = HEADER_FIELDS & OPTIONS.keys()
    for kind in COMMANDS.values():
        assert not both & set(kind.fields) or "opts" in kind.fields


def test_each_command_is_carried_out_by_a_method_of_its_own_or_another_ones():
    assert ACTIONS.keys() == COMMANDS.keys()
    methods = dict(inspect.getmembers(Executor, inspect.isfunction))
    assert all(methods[f"_{COMMANDS[name].action}"] is action for name, action in ACTIONS.items())


def test_commands_whose_bodies_may_follow_read_all_that_says_how():
    assert set(FRAMED) == {"publish", "delta_publish", "sow_delete"}
    assert all({"d", "n", "enc"} <= set(COMMANDS[name].fields) for name in FRAMED)


def test_a_command_knows_what_the_table_says_of_it():
    assert Command("delta_publish").kind.is_delta
    assert not Command("publish").kind.is_delta


@all_cases("name", OPTIONS)
def test_an_option_is_read_and_stands_at_its_default(name):
    option = OPTIONS[name]
    assert option.value == "flag" or option.value in READERS
    assert (getattr(Options(), name) is False) == (option.value == "flag")
    assert not option.choices or getattr(Options(), name) in option.choices


def test_requests_take_the_options_that_say_so():
    assert set(options_of("query")) == {"top_n", "skip_n", "select", "projection", "grouping"}
    assert set(options_of("stream")) == {
        "as_of",
        "bookmark_not_found",
        "oof",
        "no_empties",
        "conflation",
        "conflation_key",
        "last",
        "live",
        "positions",
        "select",
        "skip_n",
        "top_n",
        "projection",
        "grouping",
    }


def test_acks_come_in_their_order_and_processed_to_whoever_requested_for_none():
    assert acks_of({"completed", "processed"}, False) == ("processed", "completed")
    assert acks_of(frozenset(), True) == ("processed",)
    assert acks_of(frozenset(), False) == ()


def test_no_options_are_the_defaults():
    assert read_options("") == read_options(" ") == Options()


def test_options_are_read_by_the_table():
    options = read_options(
        "oof, timestamp,top_n=10,conflation=1.5s,conflation_key=[/a,/b],select=[-/,+/c]"
    )
    assert options == Options(
        oof=True,
        timestamp=True,
        top_n=10,
        conflation=1_500_000,
        conflation_key=("/a", "/b"),
        select=("-/", "+/c"),
    )


@all_cases("name", [name for name, each in OPTIONS.items() if each.value == "flag"])
def test_a_flag_takes_no_value(name):
    assert getattr(read_options(name), name) is True
    with pytest.raises(ClientError, match=f"option {name} takes no value"):
        read_options(f"{name}=true")


@pytest.mark.parametrize("name", OPTIONS_IGNORED)
def test_an_option_that_only_tunes_is_ignored_by_name_whatever_its_value(name):
    for text in (name, f"{name}=50", f"{name}=x"):
        assert read_options(f"oof,{text},{text},top_n=1") == Options(
            oof=True, top_n=1, ignored=(name,)
        )


def test_the_options_that_are_ignored_are_named_in_order():
    assert read_options("pretty,max_backlog=1").ignored == ("pretty", "max_backlog")


@pytest.mark.parametrize("text", ["expire", "fully_durable", "rate_max_gap=1s"])
def test_an_option_of_amps_that_does_more_than_tune_is_refused(text):
    with pytest.raises(ClientError, match="no option"):
        read_options(text)


@all_cases(
    ("text", "detail"),
    [
        ("ooof", "no option 'ooof'; did you mean oof?"),
        ("OOF", "did you mean oof?"),
        ("qqq", "known are oof, no_empties"),
        ("top_n=x", "top_n='x' must be a whole number such as top_n=10"),
        ("top_n", "whole number"),
        ("skip_n=-1", "whole number"),
        ("top_n=9999999999", "whole number"),
        ("conflation=5", "conflation=5: '5' has no unit; write 5s, 5ms or another unit, auto or"),
        ("conflation=9ms", f"shorter than {CONFLATION_US_MIN // 1000}ms"),
        ("conflation", "not an interval"),
        ("bookmark_not_found=later", "write fail or epoch or now"),
    ],
)
def test_a_mistake_is_sent_with_what_to_write(text, detail):
    with pytest.raises(ClientError) as caught:
        read_options(text)
    assert detail in caught.value.detail
    assert caught.value.reason == "invalid options"


@pytest.mark.parametrize(
    ("text", "value"), [("auto", "auto"), ("none", None), ("10ms", 10_000), ("1m", 60_000_000)]
)
def test_an_interval_may_be_auto_or_none(text, value):
    assert read_value(OPTIONS["conflation"], text) == value


def test_a_conflation_key_has_few_fields_wherever_it_stands():
    option = OPTIONS["conflation_key"]
    assert len(read_value(option, ",".join(["/a"] * KEY_FIELDS_MAX))) == KEY_FIELDS_MAX
    with pytest.raises(TooLarge):
        read_value(option, ",".join(["/a"] * (KEY_FIELDS_MAX + 1)))


@given(text=st.text() | st.from_regex(r"(\w+(=\[?[\w,/]*\]?)?,?)+", fullmatch=True))
def test_no_text_raises_anything_but_a_mistake(text):
    with contextlib.suppress(SowError):
        assert isinstance(read_options(text), Options)


def test_lists_of_expressions_may_hold_commas_and_stand_anywhere():
    read = read_options(
        "oof,grouping=[/a, [/odd name]],top_n=3, "
        "projection=[IF(/a > 1, 1, 0) AS /x,GROUP_CONCAT(/b, ',]') AS /y],select=[/x,/y]"
    )
    assert read.grouping == ("/a", "[/odd name]")
    assert read.projection == ("IF(/a > 1, 1, 0) AS /x", "GROUP_CONCAT(/b, ',]') AS /y")
    assert (read.oof, read.top_n, read.select) == (True, 3, ("/x", "/y"))


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("projection=[/a", "no closing"),
        ("oof,grouping=[/a]x", "write a comma"),
        (f"grouping=[{','.join(['/a'] * 40)}]", "32 are the most"),
    ],
)
def test_a_list_of_expressions_that_is_none_is_sent(text, detail):
    with pytest.raises(ClientError, match=detail):
        read_options(text)
