"""Each class of nodes in each place of each class of conditions.

A new class of the language is in `node_classes` at once, and in `CONDITIONS` or `OPERANDS` when
somebody adds it there; tests compare the two.
"""

from collections.abc import Iterator

from sow.core.paths import Path
from sow.expressions import (
    Affix,
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    Identifier,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    MessageTrait,
    Node,
    Not,
    Or,
    Parameter,
    Trait,
)
from sow.expressions.nodes import Slot

A, B = Identifier(Path(("a",))), Identifier(Path(("b",)))
FIELDS_COMPARED = Compare(">", B, A)
"""What no single column answers."""
LITERALS = [Literal(value) for value in ("ab", "5", 5, None)]
OPERANDS: list[Node] = [
    A,
    *LITERALS,
    MessageTrait(Trait.MESSAGE_SIZE),
    Arithmetic("+", A, Literal(1)),
    Arithmetic("*", Literal(2), Literal(3)),
    Call("LENGTH", (A,)),
    Call("COALESCE", (Literal(None), Literal("ab"))),
    Compare("=", A, Literal(5)),
    Compare("=", Literal(5), Literal("5")),
]
PATTERN = Literal("b|5")
CONDITIONS = {
    Compare: lambda one, other: [Compare("<", one, other), Compare("=", other, one)],
    Between: lambda one, other: [Between(one, other, Literal(7)), Between(other, one, one)],
    In: lambda one, other: [In(one, (other, Literal("x"))), In(other, (Literal(2), one))],
    Like: lambda one, _: [Like(one, PATTERN)],
    Affix: lambda one, other: [
        Affix(one, (other,), False),
        Affix(other, (Literal("b"), one), True),
    ],
    IsNull: lambda one, _: [IsNull(one)],
    IsNan: lambda one, _: [IsNan(one)],
    Not: lambda one, _: [Not(Compare("!=", one, Literal(0)))],
    And: lambda one, other: [And((IsNull(one), Compare("<", other, A)))],
    Or: lambda one, other: [Or((IsNull(one), Compare("<", other, A)))],
}
"""By class, conditions that take one operand and another one in each place."""
NEVER_EVALUATED = {Parameter, Slot}
"""What is put in as a literal, or handed in, before a filter is made."""


def node_classes(base: type[Node] = Node) -> set[type[Node]]:
    """All classes of nodes that there are, but for what they share as a base and those that filters
    are never made of."""
    if not base.__subclasses__():
        return {base} - NEVER_EVALUATED
    return set[type[Node]]().union(*map(node_classes, base.__subclasses__()))


def every_condition() -> Iterator[Node]:
    """Each class of conditions, with each kind of operand in each place, those that are the same
    for all records included."""
    for make in CONDITIONS.values():
        for one in OPERANDS:
            for other in (A, LITERALS[0]):
                yield from make(one, other)


def beside_fields(condition: Node) -> list[Node]:
    """The condition where one column answers nothing alone: below OR, and below AND and NOT."""
    return [
        Or((FIELDS_COMPARED, condition)),
        Not(And((FIELDS_COMPARED, condition))),
    ]
