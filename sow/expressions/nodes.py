"""The parts of an expression: what a filter says, without how it is read or run.

A node is a value (Identifier, Literal) or a condition (all others). Conditions have three
outcomes: true, false and unknown. Synonyms are gone: ``==`` is ``=``, ``<>`` is ``!=``, ``NOT IN``
is a Not around an In, a chain of ANDs is one And. A node knows its 0-based character `position`
in the text it was read from; equality ignores it. `str(node)` is text that parses to the same
node again.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sow.paths import Path, Scalar

PLAIN_NAME = r"[^\s/\[\](){},;=<>!'\"*+%&|^~?\\]+"
_PLAIN_STEP = re.compile(PLAIN_NAME + r"\Z")


@dataclass(frozen=True)
class Node:
    """Any part of an expression."""

    position: int = field(default=0, compare=False, repr=False, kw_only=True)

    @property
    def children(self) -> tuple["Node", ...]:
        """The parts this one is made of, in the order of the text."""
        return ()


@dataclass(frozen=True)
class Identifier(Node):
    """The value of a field of the record."""

    path: Path

    def __str__(self) -> str:
        text = "/" + "/".join(self.path.steps)
        if not all(_PLAIN_STEP.match(step) for step in self.path.steps):
            text = f"[{text}]"
        return text if self.path.index is None else f"{text}[{self.path.index}]"


@dataclass(frozen=True)
class Literal(Node):
    """A value written in the expression; None and '' are both NULL."""

    value: Scalar

    def __str__(self) -> str:
        match self.value:
            case None:
                return "NULL"
            case bool():
                return "TRUE_VALUE()" if self.value else "FALSE_VALUE()"
            case str():
                escaped = self.value.replace("\\", "\\\\").replace("'", "\\'")
                return f"'{escaped}'"
            case float() if math.isinf(self.value):
                return "1e999" if self.value > 0 else "-1e999"
        return repr(self.value)


Operand = Identifier | Literal


@dataclass(frozen=True)
class Compare(Node):
    """`left operator right`, the operator being one of ``= != < <= > >=``."""

    operator: str
    left: Operand
    right: Operand

    @property
    def children(self) -> tuple[Node, ...]:
        """The two sides."""
        return self.left, self.right

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True)
class Between(Node):
    """`operand` lies from `low` to `high`, both included."""

    operand: Operand
    low: Operand
    high: Operand

    @property
    def children(self) -> tuple[Node, ...]:
        """The operand and its bounds."""
        return self.operand, self.low, self.high

    def __str__(self) -> str:
        return f"{self.operand} BETWEEN {self.low} AND {self.high}"


@dataclass(frozen=True)
class In(Node):
    """`operand` equals one of `members`."""

    operand: Operand
    members: tuple[Operand, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The operand and the members."""
        return self.operand, *self.members

    def __str__(self) -> str:
        return f"{self.operand} IN ({', '.join(map(str, self.members))})"


@dataclass(frozen=True)
class Like(Node):
    """The regular expression `pattern`, a string literal, is found in `operand`."""

    operand: Operand
    pattern: Literal

    @property
    def children(self) -> tuple[Node, ...]:
        """The operand and the pattern."""
        return self.operand, self.pattern

    def __str__(self) -> str:
        return f"{self.operand} LIKE {self.pattern}"


@dataclass(frozen=True)
class IsNull(Node):
    """`operand` has no value. Never unknown."""

    operand: Operand

    @property
    def children(self) -> tuple[Node, ...]:
        """The operand."""
        return (self.operand,)

    def __str__(self) -> str:
        return f"{self.operand} IS NULL"


@dataclass(frozen=True)
class Not(Node):
    """The opposite; unknown stays unknown."""

    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """The condition that is turned round."""
        return (self.operand,)

    def __str__(self) -> str:
        return "NOT " + _joined((self.operand,), "")


@dataclass(frozen=True)
class And(Node):
    """Every operand is true."""

    operands: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The conditions."""
        return self.operands

    def __str__(self) -> str:
        return _joined(self.operands, " AND ")


@dataclass(frozen=True)
class Or(Node):
    """Some operand is true."""

    operands: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The conditions."""
        return self.operands

    def __str__(self) -> str:
        return _joined(self.operands, " OR ")


def _joined(operands: tuple[Node, ...], word: str) -> str:
    """The parts in a row, in parentheses where they would otherwise fall apart."""
    parts = []
    # A loop, not a comprehension: fewer frames for each level of nesting.
    for operand in operands:
        parts.append(f"({operand})" if isinstance(operand, And | Or) else str(operand))
    return word.join(parts)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything in it, in the order of the text; not recursive."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(current.children))


def below(node: Node, levels: int) -> Node | None:
    """The first condition that lies under more than so many others, if any; not recursive."""
    layer: list[Node] = [node]
    for _ in range(levels):
        layer = [
            child
            for parent in layer
            for child in parent.children
            if not isinstance(child, Identifier | Literal)
        ]
        if not layer:
            return None
    return layer[0]


def conjuncts(node: Node) -> tuple[Node, ...]:
    """The conditions that must all hold: the terms of the topmost ANDs."""
    found: list[Node] = []
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, And):
            waiting.extend(reversed(current.operands))
        else:
            found.append(current)
    return tuple(found)
