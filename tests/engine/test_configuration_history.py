"""The account of starts and reloads: what was in force at each place of the log."""

from dataclasses import replace

from sow.core.definitions import CONFIGURATIONS
from sow.engine.configuration_history import InForceSince, noted
from tests.laws.harness import ORDERS, SECOND, SLOW, World

FAST = replace(SLOW, interval_us=SECOND // 2)


def world(*topics):
    return World(ORDERS, *topics, CONFIGURATIONS)


def start(world, **more):
    world.engine.sequencer.moment(world.now)
    world.engine.configurations.note(True, **more)
    world.settle()


def reload(world, *topics):
    configuration = replace(world.configuration, topics=(ORDERS, *topics, CONFIGURATIONS))
    world.executor.reconfigure(configuration, world.now)
    world.configuration = configuration
    world.settle()


def intervals(history):
    """What there is of each: the place, whether it is a start, and the copy's interval."""
    return [(one.seq, one.is_start, one.configuration.topics[1].interval_us) for one in history]


def test_starts_and_reloads_stand_in_the_log_with_what_was_in_force():
    here = world(SLOW)
    start(here)
    here.publish("orders", {"id": 1})
    reload(here, FAST)
    here.publish("orders", {"id": 2})
    again = here.restart()
    again.clock.advance(SECOND)
    start(again)
    expected = [(0, True, SECOND), (1, False, SECOND // 2), (2, True, SECOND // 2)]
    assert intervals(again.engine.configurations.all()) == expected
    assert intervals(noted(again.journal.accounts())) == expected
    assert again.engine.configurations.all()[2].time_us == again.now


def test_a_start_is_noted_once_while_nothing_changes():
    here = world(SLOW)
    start(here)
    for _ in range(3):
        here = here.restart()
        here.clock.advance(SECOND)
        start(here)
    assert len(here.engine.configurations.all()) == 1
    start(here, goes_on=True)
    assert [one.goes_on for one in here.engine.configurations.all()] == [False, True]


def test_a_reload_that_changes_nothing_is_not_noted():
    here = world(SLOW)
    start(here)
    reload(here, SLOW)
    assert len(here.engine.configurations.all()) == 1


def test_what_ended_before_the_kept_log_is_forgotten_but_for_its_text():
    here = world(SLOW)
    start(here)
    for id_ in range(4):
        here.publish("orders", {"id": id_})
        here = here.restart()
        start(here)
    start(here, oldest_seq=3)
    # The first has the text of all.
    assert [one.seq for one in here.engine.configurations.all()] == [0, 1, 2, 3, 4]
    reload(here, FAST)
    here.publish("orders", {"id": 5})
    here.publish("orders", {"id": 6})
    start(here, oldest_seq=6)
    assert [one.seq for one in here.engine.configurations.all()] == [4, 6]
    start(here, oldest_seq=0)
    assert len(here.engine.configurations.all()) == 2
    assert {one.configuration.topics[1].interval_us for one in noted(here.journal.accounts())} == {
        SECOND // 2
    }


def test_a_directory_of_an_earlier_release_has_the_present_one_for_all_of_it():
    here = world(SLOW)
    here.publish("orders", {"id": 1})
    assert here.engine.configurations.all() == [InForceSince(here.engine.configuration)]
    assert noted(()) == []


def test_an_engine_without_the_account_notes_nothing():
    here = World(ORDERS, SLOW)
    here.engine.configurations.note(True)
    here.settle()
    assert here.engine.configurations.all() == [InForceSince(here.engine.configuration)]
