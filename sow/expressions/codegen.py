"""Generates Python source from nodes.

Three-valued logic costs nothing if it is split in two: *is it true?* and *is it false?* are
ordinary conditions, NOT swaps them, AND and OR follow De Morgan, and unknown is neither. So the
source of a filter is one Python condition over plain variables, with a test for each operator: the
common types are tested inline, everything else (lists, mixed types, NULL) by
`sow.expressions.values`. A value is a Python expression with inline arithmetic between doubles. A
condition as a value is evaluated once, for its outcome: two tests would double at each level of
nested conditions.

Values are generated from the innermost out, each once: one that is used again has a name, ``t{n}``
or ``part{n}``. So neither the source nor Python's stack grows faster than the expression. Knows
nothing of records or batches.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from sow.core.paths import Path, Value
from sow.errors import TooLarge, shown
from sow.expressions.function import Function
from sow.expressions.functions import FUNCTIONS
from sow.expressions.nodes import (
    HANDED_IN,
    VALUES,
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
    Slot,
    Source,
    as_condition,
    walk,
)
from sow.expressions.patterns import (
    FREE_MAX,
    SLOW_STEPS_MAX,
    Patterns,
    Search,
    like,
    searched_chars_max,
    slow_steps,
)
from sow.expressions.values import (
    ARITHMETIC,
    CALCULATIONS,
    COMPARISONS,
    Members,
    Outcome,
    affixed,
    any_of,
    between,
    compare,
    first,
    is_nan,
    is_null,
)

# Python's own parser gives up at 200 open parentheses; deeper parts become functions.
_LEVELS_PER_FUNCTION = 40
# Answering in place makes a test five times as quick, and its source five times as long to compile:
# in a filter of thousands of tests that would take Python half a second.
TESTS_IN_PLACE_MAX = 100
TOGETHER_MAX = 64
"""Operands of AND or OR that stand in one function, where there are very many: Python compiles one
function at a time, a millisecond for so many, and no other thread runs meanwhile."""
SLOW_MAX = 8
"""Calls of REGEXP_REPLACE, STRPTIME, STRFTIME and CRC64 in a filter: at worst each costs some 15
milliseconds a record, hundreds of times as much as all other functions."""
SLOW_FUNCTIONS = [name for name, one in FUNCTIONS.items() if one.is_slow]
"""Their names."""
_EXACT = 2**53
"""Integers up to here are doubles too."""
_GUARDS = {
    "number": "({0}.__class__ is float or {1}.__class__ is int or {1}.__class__ is bool)",
    "text": "{0}.__class__ is str",
}


class SourceText:
    """The source of conditions and values over the values of `read`, and the names that it uses.

    The value of `read[i]`, a path or a trait, is the variable ``v{i}``; those of `before`, paths of
    the state that there was before, follow. `names` is what the source needs around it. `tests` is
    about how many tests there will be: the source of many is kept short.
    """

    def __init__(self, read: Sequence[Source], tests: int = 1, before: Sequence[Path] = ()) -> None:
        self.count = len(read) + len(before)
        variables = [f"v{i}" for i in range(self.count)]
        self._variables: dict[Source, str] = dict(zip(read, variables, strict=False))
        self._before = dict(zip(before, variables[len(read) :], strict=True))
        self.variables = ", ".join(variables)
        self.names: dict[str, object] = {"str": str, "int": int, "float": float, "bool": bool}
        self._functions: list[str] = []
        self._runs: dict[Callable[..., object], str] = {}
        self._values: dict[int, str] = {}
        self._heights: dict[int, int] = {}
        self._reads: dict[int, dict[str, None]] = {}
        self._temporaries = self._slow = 0
        self._patterns = Patterns()
        self._slow_patterns: dict[str, int] = {}
        self._in_place = tests <= TESTS_IN_PLACE_MAX

    @property
    def functions(self) -> Sequence[str]:
        """Functions that the source calls, each after those that it calls itself."""
        return self._functions

    def condition(self, node: Node, wanted: bool) -> str:
        """Source that is True when `node` is `wanted`, and False otherwise, unknown included."""
        if not (node.contents.is_flat and node.contents.parts < _LEVELS_PER_FUNCTION):
            self._write_values(node)
        return self._condition(node, wanted)

    def value(self, node: Node) -> str:
        """Source of the value of `node`; of a condition True, False or None."""
        self._write_values(node, as_value=True)
        return self._value(node)

    # Conditions.

    def _condition(self, node: Node, wanted: bool, level: int = 0) -> str:
        while isinstance(node, Not):
            node, wanted = node.operand, not wanted
        if not isinstance(node, And | Or):
            return f"({self._test(node, wanted)})"
        if level == _LEVELS_PER_FUNCTION:
            return self._define(node, [f"return {self._condition(node, wanted)}"])
        parts = []
        # A loop, not a comprehension: one frame for each level of nesting.
        for operand in node.operands:
            parts.append(self._condition(operand, wanted, level + 1))
        word = " and " if isinstance(node, And) is wanted else " or "
        if len(parts) > TESTS_IN_PLACE_MAX:
            parts = self._in_groups(node.operands, parts, word)
        return f"({word.join(parts)})"

    def _in_groups(self, operands: Sequence[Node], parts: Sequence[str], word: str) -> list[str]:
        """Very many conditions, as calls of functions that have some of them each."""
        groups = []
        for start in range(0, len(parts), TOGETHER_MAX):
            some = slice(start, start + TOGETHER_MAX)
            read = {one: None for node in operands[some] for one in self._reads[id(node)]}
            groups.append(self._function(read, [f"return {word.join(parts[some])}"]))
        return groups

    def _test(self, node: Node, wanted: bool) -> str:
        match node:
            case Compare(operator, Literal() as left, right) if not isinstance(right, Literal):
                return self._compare(COMPARISONS[operator].mirrored, right, left, wanted)
            case Compare(operator, left, right):
                return self._compare(operator, left, right, wanted)
            case Between():
                return self._between(node, wanted)
            case In():
                return self._in(node, wanted)
            case IsNull(operand):
                value, again = self._twice(operand)
                null = f"({value} is None or {self._shared(is_null)}({again}))"
                return null if wanted else f"not {null}"
        return f"{self._requested(node)} is {wanted}"

    def _requested(self, node: Node) -> str:
        """The outcome of a test, of values of any type."""
        match node:
            case Compare(operator, left, right):
                return self._calling(partial(compare, operator), left, right)
            case Between(operand, low, high):
                return f"{self._shared(between)}({self._listed(operand, low, high)})"
            case In(operand, members):
                if all(isinstance(one, Literal) for one in members):
                    return self._calling(_members(members).contain, operand)
                return f"{self._shared(_equals_one)}({self._listed(operand, *members)})"
            case Like(operand, pattern):
                text = str(pattern.value)
                search = self._search(text, pattern.position)
                return self._calling(like(search, searched_chars_max(text)), operand)
            case Affix(operand, members, at_end):
                return self._calling(partial(affixed, at_end), operand, *members)
            case IsNull(operand):
                return f"{self._shared(is_null)}({self._value(operand)})"
            case IsNan(operand):
                return f"{self._shared(is_nan)}({self._value(operand)})"
        raise TypeError(f"{node!r} is not a condition")

    def _calling(self, run: Callable[..., object], *operands: Node) -> str:
        return f"{self._name(run)}({self._listed(*operands)})"

    def _listed(self, *operands: Node) -> str:
        return ", ".join(map(self._value, operands))

    def _compare(self, operator: str, left: Node, right: Node, wanted: bool) -> str:
        kind = self._kind(left, right)
        if kind is None:
            return f"{self._calling(partial(compare, operator), left, right)} is {wanted}"
        bound, run = self._value(right), self._name(partial(compare, operator))
        value = self._twice(left)
        again = value[1]
        comparison = COMPARISONS[operator]
        fast = f"{again} {comparison.source} {bound}"
        if kind == "number" and operator == "!=":
            fast = f"({fast} and {again} == {again})"
        general = f"{run}({again}, {bound})"
        return _choose(kind, value, fast, general, wanted, null_passes=comparison.of_lesser)

    def _between(self, node: Between, wanted: bool) -> str:
        kind = self._kind(node.operand, node.low, node.high)
        if kind is None:
            return f"{self._requested(node)} is {wanted}"
        low, high, run = self._value(node.low), self._value(node.high), self._shared(between)
        value = self._twice(node.operand)
        fast, general = f"{low} <= {value[1]} <= {high}", f"{run}({value[1]}, {low}, {high})"
        return _choose(kind, value, fast, general, wanted)

    def _in(self, node: In, wanted: bool) -> str:
        kind = self._kind(node.operand, *node.members)
        if kind is None:
            return f"{self._requested(node)} is {wanted}"
        literals = _members(node.members)
        run = self._name(literals.contain)
        value = self._twice(node.operand)
        among = literals.texts if kind == "text" else literals.numbers
        fast, general = f"{value[1]} in {self._name(among)}", f"{run}({value[1]})"
        return _choose(kind, value, fast, general, wanted)

    def _kind(self, operand: Node, *literals: Node) -> str | None:
        """The type of all `literals`, "number" or "text", if a value is tested against just those
        and the test may be inline."""
        if not self._in_place or isinstance(operand, Literal):
            return None
        kinds = {_literal_kind(literal) for literal in literals}
        return kinds.pop() if len(kinds) == 1 else None

    # Values.

    def _write_values(self, root: Node, as_value: bool = False) -> None:
        """Generate the source of all values in `root`, the innermost first: each part is there
        when it is used, and nothing recurs with the depth of the expression."""
        # Literals are read nowhere and written when they are wanted: a list may hold thousands.
        nodes = [node for node in walk(root) if not isinstance(node, Literal)]
        outcomes = _outcomes_among(nodes, as_value)
        for node in reversed(nodes):
            if id(node) not in self._reads:
                self._reads[id(node)] = self._read_by(node)
                below = [self._heights.get(id(part), 0) for part in node.children]
                self._heights[id(node)] = 1 + max(below, default=-1)
                if isinstance(node, Arithmetic):
                    self._write(node, self._arithmetic(node))
                elif isinstance(node, Call):
                    self._write(node, self._call(node))
            written = isinstance(node, VALUES) or id(node) in self._values
            if id(node) in outcomes and not written:
                self._write(node, self._outcome(node))

    def _read_by(self, node: Node) -> dict[str, None]:
        """The variables that a node reads; those of its parts are known already."""
        if isinstance(node, HANDED_IN):
            return {self._variable(node): None}
        found: dict[str, None] = {}
        for part in node.children:
            if not isinstance(part, Literal):
                found.update(self._reads[id(part)])
        return found

    def _value(self, node: Node) -> str:
        match node:
            case Identifier() | MessageTrait() | Slot():
                return self._variable(node)
            case Literal(value):
                return self._name(value)
        return self._values[id(node)]

    def _variable(self, node: HANDED_IN) -> str:
        if isinstance(node, Identifier) and node.of == "PREVIOUS":
            return self._before[node.path]
        return self._variables[node.source]

    def _write(self, node: Node, source: str) -> None:
        if self._heights[id(node)] >= _LEVELS_PER_FUNCTION:
            source, self._heights[id(node)] = self._define(node, [f"return {source}"]), 0
        self._values[id(node)] = source

    def _arithmetic(self, node: Arithmetic) -> str:
        run = self._shared(ARITHMETIC[node.operator])
        if not self._in_place or not CALCULATIONS[node.operator].is_elementwise:
            return f"{run}({self._value(node.left)}, {self._value(node.right)})"
        (left, left_again), (right, right_again) = map(self._twice, (node.left, node.right))
        doubles = f"{left}.__class__ is {right}.__class__ is float"
        if _is_exact(node.right):
            doubles = f"{left}.__class__ is float"
        elif _is_exact(node.left):
            doubles = f"{right}.__class__ is float"
        general = f"{run}({left_again}, {right_again})"
        return f"({left_again} {node.operator} {right_again} if {doubles} else {general})"

    def _call(self, node: Call) -> str:
        match node.name, node.arguments:
            case "IF", (condition, then, otherwise):
                chosen = self._condition(as_condition(condition), True)
                return f"({self._value(then)} if {chosen} else {self._value(otherwise)})"
            case "COALESCE", arguments:
                return self._coalesce(node, arguments)
        run, taken = self._run_of(node)
        return f"{run}({', '.join(map(self._value, taken))})"

    def _coalesce(self, node: Call, arguments: Sequence[Node]) -> str:
        run = self._shared(first)
        lines = []
        for argument in arguments:
            lines += [f"one = {run}({self._value(argument)})", "if one is not None: return one"]
        return self._define(node, lines)

    def _run_of(self, node: Call) -> tuple[str, Sequence[Node]]:
        """The function of a call, and the arguments that it takes."""
        function = FUNCTIONS[node.name]
        self._count_slow(function, node)
        if function.scans:
            self._patterns.scan(node.name, node.position)
        if function.prepare is None:
            assert function.run is not None
            return self._shared(function.run), node.arguments
        fixed = [node.arguments[at] for at in function.literals]
        texts = [str(literal.value) for literal in fixed if isinstance(literal, Literal)]
        if function.searches:
            self._search(texts[0], fixed[0].position)
        run = function.prepare(*texts, fixed[0].position)
        return self._name(run), [
            one for at, one in enumerate(node.arguments) if at not in function.literals
        ]

    def _count_slow(self, function: Function, node: Call) -> None:
        if not function.is_slow:
            return
        self._slow += 1
        if self._slow > SLOW_MAX:
            raise TooLarge(
                f"{node.name}: an expression has at most {SLOW_MAX} calls of "
                f"{', '.join(SLOW_FUNCTIONS)}; write fewer",
                position=node.position,
                expected=f"at most {SLOW_MAX} such calls",
            )

    def _outcome(self, node: Node) -> str:
        """A condition as a value; the outcomes of its parts are generated already."""
        match node:
            case Not(operand):
                return f"{self._shared(_opposite)}({self._value(operand)})"
            case And(operands):
                return self._joined(node, operands, False)
            case Or(operands):
                return self._joined(node, operands, True)
        return self._requested(node)

    def _joined(self, node: Node, operands: Sequence[Node], decisive: bool) -> str:
        """The outcome of AND, which one false operand decides, or of OR, which a true one does."""
        lines = [f"joined = {not decisive}"]
        for operand in operands:
            lines += [
                f"one = {self._value(operand)}",
                f"if one is {decisive}: return {decisive}",
                "if one is None: joined = None",
            ]
        return self._define(node, [*lines, "return joined"])

    def _search(self, pattern: str, position: int) -> Search:
        search = self._patterns.search(pattern, position)
        if steps := slow_steps(pattern):
            self._slow_patterns[pattern] = steps
        if steps and (steps := sum(self._slow_patterns.values())) > SLOW_STEPS_MAX:
            raise TooLarge(
                f"LIKE pattern {shown(pattern)}: with it the patterns that have more than "
                f"{FREE_MAX} classes, dots or counted characters have {steps} steps, and the limit "
                f"is {SLOW_STEPS_MAX}; write fewer, or smaller numbers in braces",
                position=position,
                expected=f"such patterns of at most {SLOW_STEPS_MAX} steps",
            )
        return search

    # Names.

    def _define(self, node: Node, lines: Iterable[str]) -> str:
        """The call of a function that consists of `lines`, which compute something of `node`."""
        return self._function(self._reads[id(node)], lines)

    def _function(self, read: Iterable[str], lines: Iterable[str]) -> str:
        # Only what it reads is handed on: all variables to all functions would be a square of both.
        variables = ", ".join(read)
        name = f"part{len(self._functions)}"
        body = "".join([f"    {line}\n" for line in lines])
        self._functions.append(f"def {name}({variables}):\n{body}")
        return f"{name}({variables})"

    def _name(self, value: object) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def _shared(self, run: Callable[..., object]) -> str:
        """The name of a function, one for all its calls."""
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = self._name(run)
        return found

    def _twice(self, node: Node) -> tuple[str, str]:
        """Source of a value where it is needed first, and where it is needed again."""
        source = self._value(node)
        if isinstance(node, HANDED_IN | Literal):
            return source, source
        name = f"t{self._temporaries}"
        self._temporaries += 1
        return f"({name} := {source})", name


def _outcomes_among(nodes: Iterable[Node], of_first: bool) -> set[int]:
    """The `nodes` whose value is used; each node comes before its parts. The first one's is if
    `of_first`."""
    found: set[int] = set()
    for node in nodes:
        if of_first:
            found.add(id(node))
            of_first = False
        joins = isinstance(node, And | Or | Not)
        parts = node.children if joins and id(node) in found else _values_of(node)
        found.update(id(part) for part in parts)
    return found


def _opposite(outcome: Outcome) -> Outcome:
    return None if outcome is None else not outcome


def _members(literals: Iterable[Node]) -> Members:
    return Members([one.value for one in literals if isinstance(one, Literal)])


def _values_of(node: Node) -> Sequence[Node]:
    """The parts of a node that it takes as values."""
    match node:
        case And() | Or() | Not():
            return ()
        case Call("IF", (_, *branches)):
            return branches
    return node.children


def _equals_one(value: Value, *members: Value) -> Outcome:
    """Whether a value equals one of others that are not known before."""
    return any_of(compare("=", value, member) for member in members)


def _literal_kind(node: Node) -> str | None:
    if not isinstance(node, Literal) or node.value is None or node.value == "":
        return None
    if isinstance(node.value, str):
        return "text"
    return "number" if node.value == node.value else None


def _is_exact(node: Node) -> bool:
    """Whether it is a number that a double holds."""
    if not isinstance(node, Literal) or node.value.__class__ not in (int, float):
        return False
    return node.value.__class__ is float or -_EXACT < node.value < _EXACT


def _choose(
    kind: str,
    value: tuple[str, str],
    fast: str,
    general: str,
    wanted: bool,
    *,
    null_passes: bool = False,
) -> str:
    """`fast` for values of that kind, else `general`; both negated unless `wanted`.

    `value` is its source at its first use, and at later ones. `null_passes`: `fast` would be true
    of '', which is text to Python and NULL here.
    """
    again = value[1]
    if not wanted:
        fast, null_passes = f"not {fast}", not null_passes
    if null_passes and kind == "text":
        fast = f"({fast} and {again} != '')"
    guard = _GUARDS[kind].format(*value)
    return f"{fast} if {guard} else {again} is not None and {general} is {wanted}"
