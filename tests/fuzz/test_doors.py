"""Whatever is said to a door that needs no socket, it is answered, and the process goes on."""

import pytest

from tests.fuzz.running import knocked


@pytest.mark.parametrize("door", ["frame", "filter", "configuration"])
def test_any_input_is_answered(door):
    found = knocked(door)
    assert 0 < found["let_in"] < found["inputs"]
