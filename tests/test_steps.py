"""Steps return what they return, and fail as they fail, when all are taken at once."""

import pytest

from sow.steps import at_once


def counted(count, taken):
    for at in range(count):
        taken.append(at)
        yield
    return count


def test_all_steps_are_taken_and_the_result_is_theirs():
    taken = []
    assert at_once(counted(3, taken)) == 3
    assert taken == [0, 1, 2]
    assert at_once(counted(0, taken)) == 0


def test_a_failure_is_that_of_the_step():
    def failing():
        yield
        raise ValueError("the second")

    with pytest.raises(ValueError, match="the second"):
        at_once(failing())
