"""The description of a function of the expression language, and constructors for common forms.

The body of a function takes values as paths give them. The constructors convert each argument
(number, text, any), so that bodies do not: `of_numbers` and `of_texts` give NULL if an argument
has another type.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from sow.core.paths import Scalar, Value
from sow.expressions.message_attributes import Trait
from sow.expressions.nodes import Node
from sow.expressions.values import number, text

ANY = 99
"""Any number of arguments."""
TEXT_CHARS_MAX = 1024 * 1024
"""Length of a text that a function makes: a message by default. Longer ones are NULL, since
texts made of texts double with every level of a filter."""
_NUMBERS = frozenset((int, float))
NULL_BY_NULL = "NULL if an argument is NULL"


class Example(NamedTuple):
    """An expression over `EXAMPLE_RECORD`, and what it gives."""

    expression: str
    result: Value


EXAMPLE_RECORD: dict[str, Any] = {
    "qty": 4,
    "px": 2.5,
    "sym": "ACME",
    "list": [2, 5, 7],
    "tags": ["a", None, "b"],
    "at": 1_700_000_000.25,
}
"""The record of all examples."""
EXAMPLE_MESSAGE: dict[Trait, Scalar] = {
    Trait.AMPS_INSTANCE_NAME: "desk",
    Trait.BOOKMARK: "7",
    Trait.LAST_UPDATED: 1_700_000_000.5,
    Trait.MESSAGE_SIZE: 87,
    Trait.SOW_KEY: "13378342716498349218",
    Trait.TOPIC_NAME: "orders",
    Trait.UNIX_TIMESTAMP: 1_700_000_060.0,
}
"""The traits of the message that holds it."""


class Function(NamedTuple):
    """A function: how it is called, what it does, and what it gives where there is no value.

    `least` to `most` are the numbers of arguments, `run` what takes them as values (None: generated
    code does it itself). `literals` are the places of arguments that are texts known when the
    expression is read: `prepare` makes of them what runs.
    """

    signature: str
    least: int
    most: int
    run: Callable[..., Value] | None
    about: str
    null: str
    examples: tuple[Example, ...]
    literals: tuple[int, ...] = ()
    prepare: Callable[..., Callable[..., Value]] | None = None
    searches: bool = False
    """The text known beforehand is a regular expression: it counts with those of LIKE."""
    slow: bool = False
    """It costs hundreds of times as much as others, as do those that `prepare` something."""
    stands_for: Node | None = None
    """The node that replaces a call without arguments: a literal or a trait."""
    scans: bool = False
    """It looks for text in a text, which may be of any length."""

    @property
    def is_slow(self) -> bool:
        """An expression has few calls of it."""
        return self.slow or self.prepare is not None


def function(
    signature: str, run: Callable[..., Value] | None = None, **more: Any
) -> Callable[..., Function]:
    """A function, once it is given the sentence about it, what is NULL, and examples.

    Its signature says how many arguments it takes: those in brackets may be left out, and ``...``
    stands for any number more.
    """
    needed, _, others = signature.partition("(")[2].rstrip(")").partition("[")
    names = [name for name in needed.split(", ") if name]
    least, most = len(names), len(names) + others.count(",")
    if "..." in names:
        least, most = least - 1, ANY

    def described(about: str, null: str, *examples: Example) -> Function:
        return Function(signature, least, most, run, about, null, examples, **more)

    return described


def by_name(*functions: Function) -> dict[str, Function]:
    """Functions by the names in their signatures."""
    return {one.signature.partition("(")[0]: one for one in functions}


def of_number(run: Callable[[Any], Any]) -> Callable[[Value], Value]:
    """A function that applies `run` to one number; NULL where it is none, or there is no result."""

    def calculated(value: Value) -> Value:
        # Most values are numbers already: they are looked at no further.
        one = value if value.__class__ is float or value.__class__ is int else number(value)
        try:
            result: Value = None if one is None else run(one)
        except (ValueError, OverflowError):
            return None
        return result

    return calculated


def of_numbers(run: Callable[..., Any]) -> Callable[..., Value]:
    """A function that applies `run` to numbers; NULL where one is none, or there is no result."""

    def calculated(*values: Value) -> Value:
        # Most values are numbers already: they are looked at no further.
        numbers = [value if value.__class__ in _NUMBERS else number(value) for value in values]
        if None in numbers:
            return None
        try:
            result: Value = run(*numbers)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None
        return result

    return calculated


def of_text(run: Callable[[str], Any]) -> Callable[[Value], Value]:
    """A function that applies `run` to one text; NULL where it is none."""

    def calculated(value: Value) -> Value:
        if value.__class__ is str and value:
            result: Value = run(value)
            return result
        one = text(value)
        return None if one is None else run(one)

    return calculated


def of_texts(run: Callable[[str, str], Any]) -> Callable[[Value, Value], Value]:
    """A function that applies `run` to two texts; NULL where one is none."""

    def calculated(left: Value, right: Value) -> Value:
        # Most values are texts already.
        one = left if left.__class__ is str and left else text(left)
        other = right if right.__class__ is str and right else text(right)
        return None if one is None or other is None else run(one, other)

    return calculated


def bounded(made: str) -> Value:
    """A text that was made, if it is not too long."""
    return made if len(made) <= TEXT_CHARS_MAX else None
