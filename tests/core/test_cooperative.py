"""Steps return what they return, and fail as they fail, when all are taken at once."""

import pytest

from sow.core.cooperative import CatchUpPacer, run_to_completion


def counted(count, taken):
    for at in range(count):
        taken.append(at)
        yield
    return count


def test_all_steps_are_taken_and_the_result_is_theirs():
    taken = []
    assert run_to_completion(counted(3, taken)) == 3
    assert taken == [0, 1, 2]
    assert run_to_completion(counted(0, taken)) == 0


def test_a_failure_is_that_of_the_step():
    def failing():
        yield
        raise ValueError("the second")

    with pytest.raises(ValueError, match="the second"):
        run_to_completion(failing())


def steps_until_little_is_left(count, comes):
    """How many steps it takes, of 100 at first, and what is left, while so much comes between."""
    gaining, steps = CatchUpPacer(100), 0
    while count > gaining.share:
        gaining.begin(count)
        count -= gaining.share
        gaining.end(count)
        count += comes
        steps += 1
        assert steps < 1000, "it never ends"
    return steps, count


def test_what_grows_meanwhile_comes_to_an_end():
    assert steps_until_little_is_left(1000, 0) == (9, 100)
    assert steps_until_little_is_left(1000, 50)[0] == 18
    steps, left = steps_until_little_is_left(1000, 100)
    assert (steps < 20, left) == (True, 200)
    steps, left = steps_until_little_is_left(1000, 5000)
    assert steps < 20
    assert left <= 4 * 5000
