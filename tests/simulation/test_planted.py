"""The planted bugs can still be planted, and a sample of them is caught here and now."""

import pytest

from tests.cases import all_cases
from tests.simulation.mutations import MUTATIONS
from tests.simulation.planted import found_once, survives

SAMPLE = (
    ("a key is held for ten intervals", "tests/conflated_topics/test_conflator.py"),
    # Each copies the tree, and compiles it: one shows that what is planted is run.
    pytest.param(
        "folding takes the newer `known`",
        "tests/laws/test_conflated_subscriptions.py",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "bytes of a rewritten update are counted wrongly",
        "tests/laws/test_back_pressure.py",
        marks=pytest.mark.slow,
    ),
)


@all_cases("mutation", MUTATIONS)
def test_a_bug_can_be_planted(mutation):
    assert found_once(mutation)


@pytest.mark.parametrize(("name", "suite"), SAMPLE)
def test_a_planted_bug_is_caught(name, suite):
    (mutation,) = [mutation for mutation in MUTATIONS if mutation.name == name]
    assert not survives(mutation, [suite])
