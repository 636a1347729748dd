"""The nodes of an expression: its syntax tree, without parsing or evaluation.

A node is a value (Identifier, Literal, MessageTrait, Arithmetic, Call) or a condition (all others),
and either may be used as the other: a condition as a value is true, false or NULL, a value as a
condition is that it differs from 0. Conditions have three outcomes: true, false and unknown.
Synonyms are normalized: ``==`` is ``=``, ``<>`` is ``!=``, ``NOT IN`` is a Not around an In, a
chain of ANDs is one And. A node has its 0-based character `position` in the text; equality ignores
it. `str(node)` is text that parses to the same node again.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from sow.core.paths import Path, Scalar, TopicPath
from sow.expressions.message_attributes import Trait

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

    @cached_property
    def contents(self) -> "Contents":
        """What it consists of; kept in this node, and not in its parts."""
        return _contents_of(self)

    @cached_property
    def written(self) -> str:
        """Its text; kept in the same way, where it is needed again and again."""
        return str(self)


class Contents(NamedTuple):
    """What a node and everything in it read and are, found in one walk. Distinct paths and traits
    are in the order of the text. None of it refers to a node."""

    paths: tuple[Path, ...]
    before: tuple[Path, ...]
    """Paths of the state that there was before the message."""
    traits: tuple[Trait, ...]
    parts: int
    """How many nodes there are."""
    tests: int
    """Nodes that make the generated text longer."""
    is_flat: bool
    """Nothing is calculated: conditions test fields, traits and literals as they are."""
    is_everywhere: bool
    """It may stand in any expression: nothing depends on what an expression is about."""
    is_plain: bool
    """It compares fields, traits and literals, and has no pattern or function: nothing of what was
    read is refused later."""


@dataclass(frozen=True)
class Identifier(Node):
    """The value of a field of the record; with several topics, of the record of `topic`, which has
    the `message_type` if that was given too.

    In a field construction, `of` is the state of the record: PREVIOUS is the one before the
    message, CURRENT, the default, the message itself. It is at `of_position`.
    """

    path: Path
    of: str = ""
    of_position: int = field(default=0, compare=False, repr=False, kw_only=True)
    topic: str = ""
    message_type: str = ""

    @property
    def source(self) -> "Source":
        """Its source."""
        return TopicPath(self.topic, self.path) if self.topic else self.path

    def __str__(self) -> str:
        name = self._qualifiers + self._name
        return f"{name} OF {self.of}" if self.of else name

    @property
    def _qualifiers(self) -> str:
        named = [one for one in (self.message_type, self.topic) if one]
        return "".join([f"[{one}]." for one in named])

    @property
    def _name(self) -> str:
        return self.path.written(_PLAIN_STEP)


@dataclass(frozen=True)
class Literal(Node):
    """A value written in the expression; None and '' are both NULL.

    Literals are equal if they are written alike: 1 and 1.0 are not, since ``5 / 2`` is 2, and
    ``1.0 LIKE '1[.]0'`` is true.
    """

    value: Scalar

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._written == other._written

    def __hash__(self) -> int:
        return hash(self._written)

    @property
    def _written(self) -> object:
        value = self.value
        return value if value.__class__ is str else (value.__class__, repr(value))

    def __str__(self) -> str:
        match self.value:
            case None:
                return "NULL"
            case bool():
                return "TRUE_VALUE()" if self.value else "FALSE_VALUE()"
            case float() if math.isnan(self.value):
                return "NAN_VALUE()"
            case str():
                escaped = self.value.replace("\\", "\\\\").replace("'", "\\'")
                return f"'{escaped}'"
            case float() if math.isinf(self.value):
                return "1e999" if self.value > 0 else "-1e999"
        return repr(self.value)


@dataclass(frozen=True)
class MessageTrait(Node):
    """A trait of the message."""

    trait: Trait

    @property
    def source(self) -> "Source":
        """Its source."""
        return self.trait

    def __str__(self) -> str:
        return f"{self.trait}()"


@dataclass(frozen=True)
class Slot(Node):
    """A value that is known otherwise, the one of this `number`: what an aggregate came to."""

    number: int

    @property
    def source(self) -> "Source":
        """Its source."""
        return self

    def __str__(self) -> str:
        return f"#{self.number}"


@dataclass(frozen=True)
class Parameter(Node):
    """A value that the evaluator binds as a literal (`bound`), such as ``${user.desk}``. Its text
    is never parsed as a part of the expression."""

    name: str

    @property
    def source(self) -> "Parameter":
        """Its value."""
        return self

    def __str__(self) -> str:
        return f"${{{self.name}}}"


@dataclass(frozen=True)
class _Operation(Node):
    """`left operator right`."""

    operator: str
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """The two sides."""
        return self.left, self.right

    def __str__(self) -> str:
        return f"{_operand(self.left)} {self.operator} {_operand(self.right)}"


@dataclass(frozen=True)
class Arithmetic(_Operation):
    """A value: the operator is one of ``+ - * / %``."""

    def __str__(self) -> str:
        return f"({_operand(self.left)} {self.operator} {_operand(self.right)})"


@dataclass(frozen=True)
class Call(Node):
    """A call of the function with the upper-case name `name`."""

    name: str
    arguments: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The arguments."""
        return self.arguments

    def __str__(self) -> str:
        return f"{self.name}({_listed(self.arguments)})"


@dataclass(frozen=True)
class Compare(_Operation):
    """A condition: the operator is one of ``= != < <= > >=``."""


@dataclass(frozen=True)
class Between(Node):
    """`operand` lies from `low` to `high`, both included."""

    operand: Node
    low: Node
    high: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """The operand and its bounds."""
        return self.operand, self.low, self.high

    def __str__(self) -> str:
        low, high = _operand(self.low), _operand(self.high)
        return f"{_operand(self.operand)} BETWEEN {low} AND {high}"


@dataclass(frozen=True)
class _Membership(Node):
    """A test of `operand` against `members`."""

    operand: Node
    members: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The operand and the members."""
        return self.operand, *self.members


@dataclass(frozen=True)
class In(_Membership):
    """`operand` equals one of `members`."""

    def __str__(self) -> str:
        return f"{_operand(self.operand)} IN ({_listed(self.members)})"


@dataclass(frozen=True)
class Like(Node):
    """The regular expression `pattern`, a string literal, is found in `operand`."""

    operand: Node
    pattern: Literal

    @property
    def children(self) -> tuple[Node, ...]:
        """The operand and the pattern."""
        return self.operand, self.pattern

    def __str__(self) -> str:
        return f"{_operand(self.operand)} LIKE {self.pattern}"


@dataclass(frozen=True)
class Affix(_Membership):
    """`operand` as text begins, or with `at_end` ends, with one of `members`."""

    at_end: bool

    def __str__(self) -> str:
        word = "ENDS" if self.at_end else "BEGINS"
        return f"{_operand(self.operand)} {word} WITH ({_listed(self.members)})"


@dataclass(frozen=True)
class _Test(Node):
    """A condition of `operand` alone."""

    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """The operand."""
        return (self.operand,)


@dataclass(frozen=True)
class IsNull(_Test):
    """`operand` has no value. Never unknown."""

    def __str__(self) -> str:
        return f"{_operand(self.operand)} IS NULL"


@dataclass(frozen=True)
class IsNan(_Test):
    """`operand` is the number that is none. Never unknown."""

    def __str__(self) -> str:
        return f"{_operand(self.operand)} IS NAN"


@dataclass(frozen=True)
class Not(_Test):
    """The opposite; unknown stays unknown."""

    def __str__(self) -> str:
        return "NOT " + _joined((self.operand,), "")


@dataclass(frozen=True)
class _Junction(Node):
    """A chain of conditions."""

    operands: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        """The conditions."""
        return self.operands


@dataclass(frozen=True)
class And(_Junction):
    """Every operand is true."""

    def __str__(self) -> str:
        return _joined(self.operands, " AND ")


@dataclass(frozen=True)
class Or(_Junction):
    """Some operand is true."""

    def __str__(self) -> str:
        return _joined(self.operands, " OR ")


Source = Path | TopicPath | Trait | Slot | Parameter
"""The source of a value in a record: a field, or a trait."""
HANDED_IN = Identifier | MessageTrait | Slot
"""Nodes whose value is supplied from outside."""
VALUES = HANDED_IN | Parameter | Literal | Arithmetic | Call
"""Kinds of nodes that are values; all others are conditions."""


def as_condition(node: Node) -> Node:
    """The node itself, or for a value the condition that it is neither 0 nor NULL."""
    if isinstance(node, VALUES):
        return Compare("!=", node, Literal(0, position=node.position), position=node.position)
    return node


def _operand(node: Node) -> str:
    """A part that is used as a value, in parentheses if it is a condition."""
    return str(node) if isinstance(node, VALUES) else f"({node})"


def _listed(nodes: tuple[Node, ...]) -> str:
    parts = []
    # A loop, not a comprehension: fewer frames for each level of nesting.
    for node in nodes:
        parts.append(str(node))
    return ", ".join(parts)


def _joined(operands: tuple[Node, ...], word: str) -> str:
    """The parts in a row, in parentheses where they would otherwise fall apart."""
    parts = []
    # A loop, not a comprehension: fewer frames for each level of nesting.
    for operand in operands:
        parts.append(f"({operand})" if isinstance(operand, And | Or) else str(operand))
    return word.join(parts)


_JUNCTIONS = frozenset({And, Or, Not})
_LEAVES = frozenset({Identifier, Literal, MessageTrait, Slot, Parameter})
_COMPARISONS = frozenset({Compare, Between, In, IsNull, IsNan})
_PLAIN = _JUNCTIONS | _COMPARISONS | {Identifier, Literal, MessageTrait}


def walk(node: Node) -> list[Node]:
    """The node and everything in it, in the order of the text; not recursive."""
    found: list[Node] = []
    waiting = [node]
    while waiting:
        current = waiting.pop()
        found.append(current)
        if current.__class__ not in _LEAVES:
            waiting += current.children[::-1]
    return found


def _contents_of(node: Node) -> Contents:
    paths: dict[Path, None] = {}
    before: dict[Path, None] = {}
    traits: dict[Trait, None] = {}
    tests, is_flat, is_everywhere = 0, True, True
    parts = walk(node)
    for part in parts:
        match part:
            case Literal():
                continue
            case Identifier(path, of):
                tests += 1
                (before if of == "PREVIOUS" else paths)[path] = None
                is_everywhere = is_everywhere and not of and not part.topic
            case MessageTrait(trait):
                tests += 1
                traits[trait] = None
            case Arithmetic():
                tests, is_flat = tests + 1, False
            case Call():
                tests, is_flat, is_everywhere = tests + 1, False, False
            case Parameter():
                is_everywhere = False
            case _ if part.__class__ not in _JUNCTIONS and is_flat:
                is_flat = _LEAVES.issuperset([one.__class__ for one in part.children])
    found = tuple(paths), tuple(before), tuple(traits)
    is_plain = _PLAIN.issuperset([part.__class__ for part in parts])
    return Contents(*found, len(parts), tests, is_flat, is_everywhere, is_plain)


def with_parts(node: Node, change: Callable[..., Node], *given: object) -> Node:
    """The node with each of its parts changed, by `change(part, *given)`; the node itself where
    that changes nothing."""
    parts: dict[str, Any] = {}
    for attribute in fields(node):
        part = getattr(node, attribute.name)
        if isinstance(part, Node):
            made: Any = change(part, *given)
            is_new = made is not part
        elif isinstance(part, tuple) and part and isinstance(part[0], Node):
            made, is_new = [], False
            # A loop, not a comprehension: fewer frames for each level of nesting.
            for one in part:
                made.append(change(one, *given))
                is_new = is_new or made[-1] is not one
            made = tuple(made)
        else:
            continue
        if is_new:
            parts[attribute.name] = made
    return replace(node, **parts) if parts else node


def below(node: Node, levels: int) -> Node | None:
    """The first part that lies under more than so many others, but for paths, traits and
    literals; not recursive."""
    layer: list[Node] = [node]
    for _ in range(levels):
        layer = [
            child
            for parent in layer
            for child in parent.children
            if not isinstance(child, HANDED_IN | Parameter | Literal)
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
