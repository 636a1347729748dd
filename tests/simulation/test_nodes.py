"""Some seeds of several nodes; `make simulate` runs hundreds (`tests.simulation.nodes`)."""

import pytest

from tests.effort import seeds
from tests.simulation.nodes.run import run


@pytest.mark.parametrize("seed", seeds(3))
def test_all_nodes_show_what_the_primary_shows(seed):
    run(seed, steps=60)
