"""The planted bugs can still be planted, and a sample of them is caught here and now."""

import pytest

from tests.cases import all_cases
from tests.effort import PLANTED
from tests.simulation.mutation import Mutation
from tests.simulation.mutations import MUTATIONS
from tests.simulation.planted import Round, catches, copied, found_once, is_green

SAMPLE = (
    ("a key is held for ten intervals", "tests/conflated_topics/test_conflator.py"),
    # One shows that what is planted is run.
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
    *(
        pytest.param(name, "tests/shared_log/test_simulation.py", marks=pytest.mark.slow)
        for name in (
            "what the engine has answered is released without reading it back",
            "an entry is valid because it was stored, as a condition by position has it",
            "what stands where an answer says is taken for what was sent",
        )
    ),
)


@all_cases("mutation", MUTATIONS)
def test_a_bug_can_be_planted(mutation):
    assert found_once(mutation)


@pytest.fixture(scope="module")
def copy():
    with copied() as copy:
        yield copy


@pytest.mark.parametrize(("name", "suite"), SAMPLE)
def test_a_planted_bug_is_caught(copy, name, suite):
    (mutation,) = [mutation for mutation in MUTATIONS if mutation.name == name]
    assert catches(copy, mutation, Round(PLANTED, [suite])).startswith(f"{suite}::test_")
    source = (copy / mutation.file).read_text()
    assert (mutation.text in source, mutation.instead in source) == (True, False)


def test_a_test_that_fails_anyway_catches_nothing(copy):
    (copy / "tests/test_red.py").write_text("def test_red():\n    assert False\n")
    harmless = Mutation("another title", "sow/errors.py", "Every error", "Each error")
    assert catches(copy, harmless, Round("1", ["tests/test_red.py"])) is None


def test_the_copy_has_what_tests_read_beside_the_sources(copy):
    assert is_green(copy, Round("1", ["tests/engine/test_configurations.py"]))
