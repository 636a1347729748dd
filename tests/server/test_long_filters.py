"""What takes long to compile is compiled in a thread, once, and kept."""

import asyncio

import pytest

from sow.definitions import Limits
from sow.engine.filters import Filters
from sow.errors import BadFilter
from sow.server.long_filters import LONG_FILTER_CHARS, compile_beside, long_among

LONG = " OR ".join(f"/identity = {at}" for at in range(300))


def test_long_ones_that_are_not_at_hand_are_told_once_each():
    filters = Filters(Limits)
    assert len(LONG) > LONG_FILTER_CHARS
    assert long_among(filters, [None, "/id = 1", LONG, LONG]) == [LONG]
    filters.get(LONG)
    assert long_among(filters, [LONG]) == []


@pytest.mark.parametrize("text", [LONG, LONG + " OR"])
def test_what_was_made_beside_is_at_hand_also_a_mistake(text):
    filters = Filters(Limits)
    asyncio.run(compile_beside(filters, [text]))
    assert filters.has(text)
    if text != LONG:
        with pytest.raises(BadFilter):
            filters.get(text)
