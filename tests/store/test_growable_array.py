"""A larger block has what the smaller one has, and no change copies many of its places."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sow.store.growable_array import COPIED_AT_ONCE, GrowableArray

SIZE = 10 * COPIED_AT_ONCE
writes = st.lists(st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=3), min_size=10)


@given(writes)
def test_what_is_written_meanwhile_is_in_the_larger_block_too(log):
    block = np.arange(2 * SIZE).reshape(2, SIZE)
    larger, number = GrowableArray(block, 2 * SIZE), 0
    for places in log:
        block[:, places] = number = number - 1
        is_complete = larger.write(np.array(places))
        block[1, places] = number  # what is written last of all, to the same places
        if is_complete:
            break
        larger.write(np.array(places))
    else:
        raise AssertionError("ten places have been written to")
    assert np.array_equal(larger.block[0, :SIZE], block[0])
    assert not larger.block[:, SIZE:].any()


def test_each_place_that_is_written_to_has_a_few_copied():
    block = np.ones((2, SIZE), np.int64)
    larger = GrowableArray(block, SIZE + 1)
    for at in range(1, 10):
        assert not larger.write(np.array([0]))
        assert np.count_nonzero(larger.block) == 2 * at * COPIED_AT_ONCE
    assert larger.write(np.array([0]))
    assert np.count_nonzero(larger.block) == 2 * SIZE
