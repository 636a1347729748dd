"""From nodes to Python source.

Three-valued logic costs nothing when the two questions are asked apart: *is it true?* and *is it
false?* are ordinary conditions, NOT turns one into the other, AND and OR follow De Morgan, and
unknown is neither. So the source of a filter is one Python condition over plain variables, a
test per operator: the common types are answered in place, everything else (lists, mixed types,
NULL) by `sow.expressions.compare`. Knows nothing of records or batches.
"""

from collections.abc import Iterable
from functools import partial

from sow.expressions.compare import MIRRORED, between, compare, is_null
from sow.expressions.membership import Members
from sow.expressions.nodes import (
    And,
    Between,
    Compare,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Operand,
    Or,
    walk,
)
from sow.expressions.patterns import Patterns, like
from sow.paths import Path

# Python's own parser gives up at 200 open parentheses; deeper parts become functions.
_LEVELS_PER_FUNCTION = 40
# Answering in place makes a test five times as quick, and its source five times as long to compile:
# in a filter of thousands of tests that would take Python half a second.
TESTS_IN_PLACE_MAX = 100
_GUARDS = {
    "number": "({0}.__class__ is float or {0}.__class__ is int or {0}.__class__ is bool)",
    "text": "{0}.__class__ is str",
}


class SourceText:
    """The source of conditions over the values of `paths`, and the names that it uses.

    The value of `paths[i]` is the variable ``v{i}``. `names` is what the source needs around it.
    `tests` is about how many tests there will be: the source of many is kept short.
    """

    def __init__(self, paths: Iterable[Path], tests: int = 1) -> None:
        self._variables = {path: f"v{i}" for i, path in enumerate(paths)}
        self.variables = ", ".join(self._variables.values())
        self.count = len(self._variables)
        self.names: dict[str, object] = {"str": str, "int": int, "float": float, "bool": bool}
        self._functions: list[str] = []
        self._patterns = Patterns()
        self._in_place = tests <= TESTS_IN_PLACE_MAX

    @property
    def functions(self) -> str:
        """Functions that the source calls."""
        return "".join(self._functions)

    def condition(self, node: Node, wanted: bool, level: int = 0) -> str:
        """Source that is True when `node` is `wanted`, and False otherwise, unknown included."""
        while isinstance(node, Not):
            node, wanted = node.operand, not wanted
        if not isinstance(node, And | Or):
            return f"({self._test(node, wanted)})"
        if level == _LEVELS_PER_FUNCTION:
            return self._function(node, wanted)
        parts = []
        # A loop, not a comprehension: one frame for each level of nesting.
        for operand in node.operands:
            parts.append(self.condition(operand, wanted, level + 1))
        word = " and " if isinstance(node, And) is wanted else " or "
        return f"({word.join(parts)})"

    def _function(self, node: Node, wanted: bool) -> str:
        condition = self.condition(node, wanted)
        # Only what it reads is handed on: all variables to all functions would be a square of both.
        paths = dict.fromkeys(part.path for part in walk(node) if isinstance(part, Identifier))
        variables = ", ".join([self._variables[path] for path in paths])
        name = f"part{len(self._functions)}"
        self._functions.append(f"def {name}({variables}):\n    return {condition}\n")
        return f"{name}({variables})"

    def _name(self, value: object) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def _operand(self, node: Operand) -> str:
        if isinstance(node, Identifier):
            return self._variables[node.path]
        return self._name(node.value)

    def _test(self, node: Node, wanted: bool) -> str:
        match node:
            case Compare(operator=operator, left=Literal() as left, right=Identifier() as right):
                return self._compare(MIRRORED[operator], right, left, wanted)
            case Compare(operator=operator, left=left, right=right):
                return self._compare(operator, left, right, wanted)
            case Between():
                return self._between(node, wanted)
            case In():
                return self._in(node, wanted)
            case Like(operand=operand, pattern=pattern):
                test = like(self._patterns.search(str(pattern.value), pattern.position))
                return f"{self._name(test)}({self._operand(operand)}) is {wanted}"
            case IsNull(operand=operand):
                value = self._operand(operand)
                null = f"({value} is None or {self._name(is_null)}({value}))"
                return null if wanted else f"not {null}"
        raise TypeError(f"{node!r} is not a condition")

    def _kind(self, operand: Operand, *literals: Operand) -> str | None:
        """What all `literals` are, "number" or "text", if a path is tested against just those and
        the answer may stand in place."""
        if not self._in_place or not isinstance(operand, Identifier):
            return None
        kinds = {_literal_kind(literal) for literal in literals}
        return kinds.pop() if len(kinds) == 1 else None

    def _compare(self, operator: str, left: Operand, right: Operand, wanted: bool) -> str:
        value, bound = self._operand(left), self._operand(right)
        general = f"{self._name(partial(compare, operator))}({value}, {bound})"
        kind = self._kind(left, right)
        if kind is None:
            return f"{general} is {wanted}"
        fast = f"{value} {'==' if operator == '=' else operator} {bound}"
        if kind == "number" and operator == "!=":
            fast = f"({fast} and {value} == {value})"
        null_passes = operator in ("!=", "<", "<=")
        return _choose(kind, value, fast, general, wanted, null_passes=null_passes)

    def _between(self, node: Between, wanted: bool) -> str:
        value, low, high = map(self._operand, (node.operand, node.low, node.high))
        general = f"{self._name(between)}({value}, {low}, {high})"
        kind = self._kind(node.operand, node.low, node.high)
        if kind is None:
            return f"{general} is {wanted}"
        return _choose(kind, value, f"{low} <= {value} <= {high}", general, wanted)

    def _in(self, node: In, wanted: bool) -> str:
        value = self._operand(node.operand)
        members = [member.value for member in node.members if isinstance(member, Literal)]
        if len(members) < len(node.members):
            equal = [Compare("=", node.operand, member) for member in node.members]
            return f" {'or' if wanted else 'and'} ".join(
                [f"({self._test(test, wanted)})" for test in equal]
            )
        literals = Members(members)
        general = f"{self._name(literals.contain)}({value})"
        kind = self._kind(node.operand, *node.members)
        if kind is None:
            return f"{general} is {wanted}"
        among = literals.texts if kind == "text" else literals.numbers
        return _choose(kind, value, f"{value} in {self._name(among)}", general, wanted)


def _literal_kind(node: Operand) -> str | None:
    if not isinstance(node, Literal) or node.value is None or node.value == "":
        return None
    return "text" if isinstance(node.value, str) else "number"


def _choose(
    kind: str, value: str, fast: str, general: str, wanted: bool, *, null_passes: bool = False
) -> str:
    """`fast` for values of that kind, else `general`; both turned to what is `wanted`.

    `null_passes` says that `fast` would be true of '', which is text to Python and NULL here.
    """
    if not wanted:
        fast, null_passes = f"not {fast}", not null_passes
    if null_passes and kind == "text":
        fast = f"({fast} and {value} != '')"
    guard = _GUARDS[kind].format(value)
    return f"{fast} if {guard} else {value} is not None and {general} is {wanted}"
