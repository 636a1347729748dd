"""Functions of the message: each is read as a trait, whatever its case and wherever it stands."""

import pytest

from sow.expressions import MessageTrait, Trait, compile_filter, parse, traits_in
from sow.expressions.message_functions import MESSAGE_FUNCTIONS, NOT_KEPT


@pytest.mark.parametrize("name", MESSAGE_FUNCTIONS)
def test_a_function_of_the_message_is_read_as_its_trait(name):
    for text in (f"{name}() = 1", f"{name.lower()} ( ) = 1"):
        assert parse(text).left == MessageTrait(Trait(name))
    condition = compile_filter(f"ABS({name}()) > /a OR {name}() IN (1, /b)")
    assert [str(path) for path in condition.paths] == ["/a", "/b"]
    assert condition.traits == (Trait(name),)
    assert condition.sources == (*condition.paths, *condition.traits)
    assert parse(str(condition.expression)) == condition.expression


def test_values_are_handed_over_behind_those_of_fields():
    condition = compile_filter("SOW_KEY() = /id AND MESSAGE_SIZE() > 3")
    assert condition.truth(["7", "7", 4]) is True
    assert condition.matches([["7", "7", "8"], ["7", "7", "7"], [4, 3, 4]], 3) == [
        *[True, False, False]
    ]


def test_every_trait_but_that_of_the_time_has_a_function_here():
    assert set(Trait) - MESSAGE_FUNCTIONS.keys() == {Trait.UNIX_TIMESTAMP}
    assert not NOT_KEPT.keys() & MESSAGE_FUNCTIONS.keys()
    assert traits_in(parse("/a = 1")) == ()
