"""Actions of AMPS are ignored with what to do instead of each."""

import pytest

from sow.config.actions import ADVICE

ACTION = """<Actions><Action><On><Module>amps-action-on-schedule</Module>
<Options><Every>21:30</Every></Options></On>
<Do><Module>{}</Module><Options><Age>7d</Age></Options></Do></Action></Actions>"""


@pytest.mark.parametrize(
    ("module", "instead"),
    [
        ("amps-action-do-remove-journal", "RetentionAge and RetentionSize in TransactionLog"),
        ("amps-action-do-archive-journals", "sow backup"),
        ("amps-action-do-delete-sow", "sow delete TOPIC --filter"),
        ("amps-action-do-rotate-logs", "the system keeps and rotates"),
        ("amps-action-do-truncate-statistics", "GET /metrics"),
        ("amps-action-do-downgrade-replication", "there is no replication"),
    ],
)
def test_what_an_action_did_is_done_otherwise(instance, module, instead):
    actions, done = map(str, instance(ACTION.format(module)).warnings)
    assert "Actions: is an element of AMPS that this server does not have" in actions
    assert f"config.xml:3: Module: '{module}' is an action that does not run here; " in done
    assert instead in done


def test_an_action_that_is_not_known_and_when_it_is_done_get_no_line(instance, only):
    assert "Actions: " in only(instance(ACTION.format("my-own-module")))


def test_every_word_finds_its_own_advice(instance):
    for word, advice in ADVICE.items():
        *_, done = instance(ACTION.format(f"amps-action-do-{word}")).warnings
        assert done.instead == advice
