"""Traits: what is known of messages beside their fields, each as one column."""

import pytest

from sow.expressions.function import EXAMPLE_MESSAGE
from sow.expressions.message_attributes import UNSTEADY, MessageColumns, Trait

LOGGED = MessageColumns(
    "orders", [b"{}", None, b"abc"], lambda: ["1", "2", "3"], [7, 8, 9], [0, 1, 5], "desk"
)


@pytest.mark.parametrize(
    ("trait", "column"),
    [
        (Trait.SOW_KEY, ["1", "2", "3"]),
        (Trait.TOPIC_NAME, ["orders"] * 3),
        (Trait.AMPS_INSTANCE_NAME, ["desk"] * 3),
        (Trait.MESSAGE_SIZE, [2, None, 3]),
        (Trait.BOOKMARK, ["7", "8", "9"]),
        (Trait.LAST_UPDATED, [0.0, 0.000001, 0.000005]),
        (Trait.UNIX_TIMESTAMP, [0.0, 0.000001, 0.000005]),
    ],
)
def test_a_trait_is_a_column(trait, column):
    assert LOGGED.column(trait) == column
    assert LOGGED.columns((trait, Trait.MESSAGE_SIZE))[0] == column


def test_what_is_not_in_the_log_has_no_bookmark():
    assert LOGGED._replace(seqs=None).column(Trait.BOOKMARK) == [None] * 3


def test_sow_keys_are_made_on_request():
    requested = []
    messages = LOGGED._replace(sow_keys=lambda: requested.append(1) or ["1", "2", "3"])
    messages.columns((Trait.MESSAGE_SIZE, Trait.TOPIC_NAME))
    assert requested == []
    assert messages.first((Trait.SOW_KEY, Trait.BOOKMARK)) == {"SOW_KEY": "1", "BOOKMARK": "7"}
    assert requested == [1]


def test_every_trait_has_an_example_and_those_of_a_moment_are_known():
    assert EXAMPLE_MESSAGE.keys() == set(Trait)
    assert {Trait.BOOKMARK, Trait.LAST_UPDATED, Trait.UNIX_TIMESTAMP} == UNSTEADY
