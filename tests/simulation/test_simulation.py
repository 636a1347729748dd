"""Thirty-six seeds of the simulation, in groups, so that a failure names its seed quickly."""

from pkgutil import resolve_name
from random import Random

import pytest

from sow.engine import output
from sow.streaming import router
from tests.effort import seeds
from tests.simulation import tight
from tests.simulation.machine import Machine
from tests.simulation.past import run as run_past
from tests.simulation.publishers import run as run_publishers
from tests.simulation.sent import run as run_sent
from tests.simulation.simulation import run

GROUP = 6


@pytest.mark.parametrize("first", seeds(36)[::GROUP])
def test_the_engine_does_what_the_model_says(first):
    for seed in range(first, first + GROUP):
        run(seed)


def test_the_same_whoever_is_late(monkeypatch):
    """All feeds process each batch later, a record in each step."""
    monkeypatch.setattr(router, "AT_ONCE_US", 1)
    monkeypatch.setattr(output, "CAUGHT_UP_US", 1)
    for seed in seeds(3):
        run(seed)


def test_the_same_whatever_is_on_its_way_to_the_disk(monkeypatch):
    """Every publish has a group of its own, and several are on their way at once."""
    monkeypatch.setattr(Machine, "wait", Machine.pass_on)
    for seed in seeds(6):
        run(seed)


@pytest.mark.parametrize("first", seeds(60)[::20])
def test_each_number_of_a_publisher_is_applied_once(first):
    for seed in range(first, first + 20):
        run_publishers(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_the_past_is_what_was_answered_then(seed):
    run_past(seed)


@pytest.mark.parametrize("seed", seeds(5))
def test_what_was_sent_is_sent_again_later(seed):
    run_sent(seed)


def test_a_run_leaves_each_bound_as_it_was():
    places = [*tight.ALWAYS, *(place for group in tight.BOUNDS for place in group)]
    before = list(map(resolve_name, places))
    assert len(set(places)) == len(places)
    with tight.tightened(Random(0)):
        assert list(map(resolve_name, places)) != before
    assert list(map(resolve_name, places)) == before
