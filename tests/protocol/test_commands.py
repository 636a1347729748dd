"""The tables of commands and options, held against what reads them."""

import inspect

from sow.protocol.commands import COMMANDS, OPTIONS, Command, Options, acks_of, options_of
from sow.protocol.options import READERS
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
