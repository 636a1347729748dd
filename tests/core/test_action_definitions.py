"""What an action is called, and what is known where it is set off."""

from typing import get_args

from sow.core.action_definitions import (
    VARIABLES,
    ActionDeed,
    ActionDefinition,
    ActionTrigger,
    TriggerKind,
)


def test_an_action_has_the_name_of_its_trigger():
    deed = ActionDeed("echo-message", message="up")
    assert ActionDefinition(ActionTrigger("startup", "hello"), (deed,)).name == "hello"


def test_it_is_said_of_each_trigger_which_variables_it_has():
    assert set(VARIABLES) == set(get_args(TriggerKind))
