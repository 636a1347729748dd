"""Some worlds of three nodes over a simulated log; `make simulate` runs thousands."""

from collections import Counter

import pytest

from tests.effort import seeds
from tests.shared_log.simulation import FAULTS, run


@pytest.mark.parametrize("seed", seeds(12))
def test_three_nodes_lose_nothing_and_are_equal(seed):
    seen = run(seed, steps=200)
    assert seen["acknowledged"] > 0
    assert seen["fresh"] > 0


def test_the_worlds_have_every_fault_and_what_follows_from_them():
    seen = Counter()
    for seed in range(100, 106):
        seen += run(seed)
    wanted = {fault.__name__ for fault in FAULTS}
    wanted |= {"leads", "steps down", "refused", "void", "checkpoints of peers"}
    assert wanted <= seen.keys(), wanted - seen.keys()
