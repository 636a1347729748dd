"""Thirty-six seeds of the simulation, in groups, so that a failure names its seed quickly."""

import pytest

from tests.effort import seeds
from tests.simulation.simulation import run

GROUP = 6


@pytest.mark.parametrize("first", seeds(36)[::GROUP])
def test_the_engine_does_what_the_model_says(first):
    for seed in range(first, first + GROUP):
        run(seed)
