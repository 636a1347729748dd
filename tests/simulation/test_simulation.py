"""Two hundred seeds of the simulation, in groups, so that a failure names its seed quickly."""

import pytest

from tests.simulation.simulation import run

SEEDS = 200
GROUP = 10


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_the_engine_does_what_the_model_says(first):
    for seed in range(first, first + GROUP):
        run(seed)
