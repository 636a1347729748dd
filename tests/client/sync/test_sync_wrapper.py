"""A method that is mirrored is that of the original, with its words and its parameters."""

import inspect

import pytest

from sow.client.sync.bridge import Bridge
from sow.client.sync.sync_wrapper import (
    SyncWrapper,
    handed,
    mirrored,
    mirrored_coroutine,
    plain,
    waited,
)


class Counter:
    def __init__(self):
        self.count = 0

    async def add(self, number: int, *, twice: bool = False) -> int:
        """Add a number (`async with`)."""
        self.count += number * (1 + twice)
        return self.count

    def look(self) -> int:
        """The count."""
        return self.count

    def made(self) -> "Counter":
        """Another."""
        return Counter()

    async def awaited(self) -> "Counter":
        """Another, too."""
        return Counter()


class PlainCounter(SyncWrapper[Counter]):
    add = waited(Counter.add)
    look = handed(Counter.look)


class PlainMaker(SyncWrapper[Counter]):
    made = mirrored(Counter.made, PlainCounter)
    awaited_one = mirrored_coroutine(Counter.awaited, PlainCounter)


@pytest.fixture
def bridge():
    made = Bridge()
    yield made
    made.close()


def test_it_does_what_the_original_does(bridge):
    counter = PlainCounter(bridge, Counter())
    assert counter.add(2, twice=True) == 4
    assert counter.look() == counter.awaited.count == 4


def test_what_it_makes_is_mirrored_too(bridge):
    maker = PlainMaker(bridge, Counter())
    assert maker.made().add(1) == 1
    assert maker.awaited_one().add(1) == 1


def test_it_shows_the_name_the_parameters_and_the_words_of_the_original():
    assert str(inspect.signature(PlainCounter.add)) == (
        "(self, number: int, *, twice: bool = False) -> int"
    )
    assert PlainCounter.add.__name__ == "add"
    assert PlainCounter.add.__doc__ == "Add a number (`with`)."
    assert inspect.signature(PlainMaker.made).return_annotation is PlainCounter
    assert not inspect.iscoroutinefunction(PlainCounter.add)


def test_what_is_so_with_asyncio_alone_is_left_out():
    assert plain("Read it (`async for`). With asyncio it is awaited. It ends.") == (
        "Read it (`for`). It ends."
    )
