"""A compiled filter: the thing the rest of the server holds.

It names the paths it reads, answers for a batch of records given as columns (one generated
loop), or for one record with all three outcomes, and tells a planner what it is made of. It
knows nothing of records: whoever holds it supplies the columns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any

from sow.expressions.codegen import TESTS_IN_PLACE_MAX, SourceText
from sow.expressions.compare import Outcome
from sow.expressions.functions import FUNCTIONS
from sow.expressions.nodes import (
    Arithmetic,
    Call,
    Compare,
    Identifier,
    In,
    Like,
    Literal,
    Node,
    conjuncts,
    walk,
)
from sow.expressions.parser import BYTES_MAX, EXPRESSION_DEPTH_MAX, parse
from sow.expressions.pattern_costs import search_cost
from sow.paths import Path, Value

_TESTS = Identifier | Arithmetic | Call
"""What makes the generated text longer."""
LiteralValue = str | int | float
Matches = Callable[[Sequence[Sequence[Value]], int], list[bool]]
Truth = Callable[[Sequence[Value]], Outcome]
SHARED_CHARS_MAX = 4096
"""Generated texts of up to so many characters have their code kept for the next filter of their
form: a usual one has some hundred, and the longest would take megabytes."""


def compile_filter(
    text: str, *, bytes_max: int = BYTES_MAX, depth_max: int = EXPRESSION_DEPTH_MAX
) -> "Filter":
    """The filter that `text` states; raises BadFilter, NotAvailable or TooLarge."""
    return Filter(parse(text, bytes_max=bytes_max, depth_max=depth_max), text)


def compile_term(node: Node) -> "Filter":
    """A part of a filter, such as one of its `conjuncts`, as a filter of its own."""
    return Filter(node, str(node))


class Filter:
    """A condition over records. A record matches when it is true, not when it is unknown.

    `text` is what it was read from, `expression` its topmost node, `paths` the distinct paths
    whose values it needs, in the order of the columns it takes.
    """

    def __init__(self, expression: Node, text: str) -> None:
        self.text = text
        self.expression = expression
        self.paths: tuple[Path, ...] = paths_in(expression)
        self._tests = sum(isinstance(part, _TESTS) for part in walk(expression))
        self._matches = _compile_matches(expression, self._source())

    def _source(self) -> SourceText:
        return SourceText(self.paths, self._tests)

    def matches(self, columns: Sequence[Sequence[Value]], count: int) -> list[bool]:
        """Which of `count` records match; one column of `count` values for each of `paths`."""
        return self._matches(columns, count)

    def truth(self, values: Sequence[Value]) -> bool | None:
        """The outcome for one record, given the value of each of `paths`; None is unknown."""
        return self._truth(values)

    def holds(self, values: Sequence[Value]) -> bool:
        """Whether one record matches, given the value of each of `paths`."""
        if self._tests > TESTS_IN_PLACE_MAX:
            # What it takes to tell false from unknown as well is not compiled for such a filter.
            return self._matches([(value,) for value in values], 1)[0]
        return self._truth(values) is True

    @cached_property
    def _truth(self) -> Truth:
        return _compile_truth(self.expression, self._source())

    @cached_property
    def search_cost(self) -> int:
        """What searching for its patterns may cost (`sow.expressions.pattern_costs`)."""
        return sum(map(search_cost, _patterns_in(self.expression)))

    @cached_property
    def conjuncts(self) -> tuple[Node, ...]:
        """The conditions that must all be true, left to right."""
        return conjuncts(self.expression)

    @property
    def deterministic(self) -> bool:
        """Whether the outcome depends on the record alone; so it is of all that is built yet."""
        return True

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


def _patterns_in(expression: Node) -> Iterator[str]:
    """The regular expressions that are searched for."""
    for node in walk(expression):
        match node:
            case Like(_, pattern):
                yield str(pattern.value)
            case Call(name, arguments) if FUNCTIONS[name].searches:
                for at in FUNCTIONS[name].literals:
                    if isinstance(literal := arguments[at], Literal):
                        yield str(literal.value)


def equalities_of(terms: Iterable[Node]) -> Mapping[Path, tuple[LiteralValue, ...]]:
    """For each path that one of the terms, which must all hold, pins to literals, those literals.

    A matching record equals, by the rules of ``=``, at least one of them (an array: with at
    least one element). Booleans are given as 1 and 0. No literal left (the term compares
    with NULL) means that nothing matches. A path pinned twice keeps the shorter list.
    """
    found: dict[Path, tuple[LiteralValue, ...]] = {}
    for term in terms:
        if equality := pinned(term):
            path, values = equality
            if path not in found or len(values) < len(found[path]):
                found[path] = values
    return found


def pinned(term: Node) -> tuple[Path, tuple[LiteralValue, ...]] | None:
    """The path that one term pins to literals, and those literals, if it does; see
    `equalities_of`."""
    match term:
        case Compare("=", Identifier(path), Literal() as literal):
            return path, _distinct([literal])
        case Compare("=", Literal() as literal, Identifier(path)):
            return path, _distinct([literal])
        case In(Identifier(path), members):
            literals = [member for member in members if isinstance(member, Literal)]
            return (path, _distinct(literals)) if len(literals) == len(members) else None
    return None


def _distinct(literals: Sequence[Literal]) -> tuple[LiteralValue, ...]:
    values = [node.value for node in literals if node.value is not None and node.value != ""]
    # Adding 0 makes True 1 and -0.0 0.0.
    return tuple(dict.fromkeys(v if isinstance(v, str) else v + 0 for v in values))


def paths_in(node: Node, of_previous: bool = False) -> tuple[Path, ...]:
    """The distinct paths that an expression reads, in the order of the text: of the record, or of
    what there was before it."""
    read = [part for part in walk(node) if isinstance(part, Identifier)]
    return tuple(dict.fromkeys(p.path for p in read if (p.of == "PREVIOUS") is of_previous))


def compile_value(node: Node) -> Callable[[Sequence[Value]], Value]:
    """What gives the value of `node`, given those of the paths that it reads: of the record, then
    of what there was before it."""
    source = SourceText(paths_in(node), before=paths_in(node, of_previous=True))
    value = source.value(node)
    text = f"def result(values):\n    [{source.variables}] = values\n    return {value}\n"
    function: Callable[[Sequence[Value]], Value] = _run(source, text)
    return function


def compile_column(node: Node) -> Callable[[Sequence[Sequence[Value]], int], list[Value]]:
    """What gives the values of `node` for so many records, given a column for each of
    `paths_in(node)`."""
    source = SourceText(paths_in(node))
    function: Callable[..., list[Value]] = _of_each(source, source.value(node))
    return function


def _compile_matches(expression: Node, source: SourceText) -> Matches:
    function: Matches = _of_each(source, source.condition(expression, True))
    return function


def _of_each(source: SourceText, text: str) -> Any:
    """A function of (columns, count) that gives what `text` says of each record."""
    match source.count:
        case 0:
            result = f"[{text}] * count"
        case 1:
            result = f"[{text} for v0 in columns[0]]"
        case _:
            result = f"[{text} for {source.variables} in zip(*columns)]"
    return _run(source, f"def result(columns, count):\n    return {result}\n")


def _compile_truth(expression: Node, source: SourceText) -> Truth:
    lines = [
        "def result(values):",
        f"    [{source.variables}] = values",
        f"    if {source.condition(expression, True)}: return True",
        f"    return False if {source.condition(expression, False)} else None",
    ]
    function: Truth = _run(source, "\n".join(lines) + "\n")
    return function


def _run(source: SourceText, function: str) -> Any:
    """The function named `result` of the generated text.

    The text consists of operators and of names made here: literals and paths of the client are
    reached through `source.names`, never written into it.
    """
    names = dict(source.names)
    parts = [*source.functions, function]
    text = "".join(parts)
    if len(text) <= SHARED_CHARS_MAX:
        exec(_code(text), names)
    else:
        # One by one: while Python compiles a text, no other thread runs.
        for part in parts:
            exec(_compiled(part), names)
    return names["result"]


def _compiled(text: str) -> CodeType:
    return compile(text, "<filter>", "exec")


_code = lru_cache(maxsize=256)(_compiled)
"""The code of a text. Filters that differ in their literals only have the same text."""
