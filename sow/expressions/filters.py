"""Compiled filters, as the rest of the server uses them.

A filter names the paths that it reads, evaluates a batch of records given as columns (one generated
loop), or one record with all three outcomes, and shows a planner its terms. It knows nothing of
records: the caller supplies the columns.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import CodeType
from typing import Any, TypeVar, cast

from sow.core.containers import kept
from sow.core.paths import Path, Scalar, Value
from sow.errors import BadFilter, TooLarge
from sow.expressions.codegen import TESTS_IN_PLACE_MAX, SourceText
from sow.expressions.functions import FUNCTIONS
from sow.expressions.message_attributes import NO_TRAITS, UNSTEADY, MessageColumns, Trait, seconds
from sow.expressions.nodes import (
    Arithmetic,
    Call,
    Compare,
    Identifier,
    In,
    Like,
    Literal,
    MessageTrait,
    Node,
    Parameter,
    Source,
    conjuncts,
    walk,
    with_parts,
)
from sow.expressions.parser import BYTES_MAX, EXPRESSION_DEPTH_MAX, parse
from sow.expressions.patterns import search_cost
from sow.expressions.values import Outcome

LiteralValue = str | int | float
Made = TypeVar("Made")
Matches = Callable[[Sequence[Sequence[Value]], int], list[bool]]
Truth = Callable[[Sequence[Value]], Outcome]
SHARED_CHARS_MAX, SHARED_PARTS_MAX = 4096, 32
"""Generated functions of up to so many characters have their code kept for the next filter of their
form, of filters with up to so many: a usual one has some hundred, and the longest would take
megabytes, and the place of all others."""
PLAIN_PARTS_MAX = 100
"""Nodes of a plain filter that is compiled at its first use: at most some milliseconds."""
MOMENT_CHARS_MAX = 4096
"""Length of a filter that reads the time: it is compiled again for each moment, at some 5 ms a KiB,
and blocks the server meanwhile."""
LITERAL_CHARS_MAX = 1024
"""Length of a folded constant: a usual one has some dozen, and `explain` shows it."""


def compile_filter(
    text: str,
    *,
    bytes_max: int = BYTES_MAX,
    depth_max: int = EXPRESSION_DEPTH_MAX,
    known: Mapping[Trait, Scalar] = NO_TRAITS,
) -> "Filter":
    """The filter that `text` states; raises BadFilter, NotAvailable or TooLarge. `known` are traits
    that all messages share, such as the instance's name."""
    node = parse(text, bytes_max=bytes_max, depth_max=depth_max)
    _check_moments(node, text)
    return Filter(with_known(node, known), text)


def compile_term(node: Node) -> "Filter":
    """A part of a filter, such as one of its `conjuncts`, as a filter of its own."""
    return Filter(node, str(node))


class Filter:
    """A condition over records. A record matches when it is true, not when it is unknown.

    `text` is its source, `expression` its topmost node, `paths` and `traits` the distinct ones that
    it reads. `sources` are both, paths first: the order of the columns that it takes.
    """

    def __init__(self, expression: Node, text: str) -> None:
        self.text = text
        self.expression = expression
        self.paths: tuple[Path, ...] = paths_in(expression)
        self.traits: tuple[Trait, ...] = traits_in(expression)
        self.sources: tuple[Source, ...] = (*self.paths, *self.traits)
        contents = expression.contents
        self._tests = contents.tests
        if not contents.is_plain or contents.parts > PLAIN_PARTS_MAX:
            self._compile()

    def _compile(self) -> Matches:
        """Compile it now: where that takes long, or what it has may be refused, and not at its
        first use."""
        return self._matches

    @cached_property
    def _matches(self) -> Matches:
        # Indexes and columns answer many a query without it.
        return _compile_matches(self.expression, self._source())

    def _source(self) -> SourceText:
        return SourceText(self.sources, self._tests)

    def matches(self, columns: Sequence[Sequence[Value]], count: int) -> list[bool]:
        """Which of `count` records match; one column of `count` values for each of `sources`."""
        return self._matches(columns, count)

    def matches_messages(
        self, columns: Sequence[Sequence[Value]], messages: MessageColumns
    ) -> list[bool]:
        """Which of these messages match; one column for each of `paths`."""
        if self.traits:
            columns = [*columns, *messages.columns(self.traits)]
        return self._matches(columns, len(messages.bodies))

    def holds(self, values: Sequence[Value]) -> bool:
        """Whether one record matches, given the value of each of `sources`."""
        if self._tests > TESTS_IN_PLACE_MAX:
            # The function that separates false from unknown is not compiled for such a filter.
            return self._matches([(value,) for value in values], 1)[0]
        return self.truth(values) is True

    @cached_property
    def truth(self) -> Truth:
        """The outcome for one record, given the value of each of `sources`; None is unknown."""
        return _compile_truth(self.expression, self._source())

    @cached_property
    def search_cost(self) -> int:
        """The cost of searching for its patterns (`sow.expressions.patterns`)."""
        return sum(map(search_cost, _patterns_in(self.expression)))

    @cached_property
    def conjuncts(self) -> tuple[Node, ...]:
        """The conditions that must all be true, left to right."""
        return conjuncts(self.expression)

    def planned(self, make: Callable[["Filter"], Made]) -> Made:
        """What `make` makes of it: made once, and kept as long as the filter. It must not refer to
        the filter."""
        if make not in self._plans:
            self._plans[make] = make(self)
        plan: Made = self._plans[make]
        return plan

    @cached_property
    def _plans(self) -> dict[Callable[..., Any], Any]:
        return {}

    @property
    def deterministic(self) -> bool:
        """Whether the outcome depends on the message alone, and not on the time of evaluation."""
        return Trait.UNIX_TIMESTAMP not in self.traits

    @property
    def steady(self) -> bool:
        """Whether a record's body and key determine the outcome, also that of earlier states."""
        return UNSTEADY.isdisjoint(self.traits)

    def at(self, now_us: int) -> "Filter":
        """The filter as of one moment, so that all records of an answer see the same."""
        if self.deterministic:
            return self
        known = {Trait.UNIX_TIMESTAMP: seconds(now_us)}
        return Filter(with_known(self.expression, known), self.text)

    def position_of(self, traits: Container[Trait]) -> int:
        """The position of the first of these traits."""
        return next(
            part.position
            for part in walk(self.expression)
            if isinstance(part, MessageTrait) and part.trait in traits
        )

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


def check_deterministic(condition: Filter, where: str) -> None:
    """Refuse a filter that reads the time where it may not; raises BadFilter."""
    if not condition.deterministic:
        position = condition.position_of({Trait.UNIX_TIMESTAMP})
        raise BadFilter(
            f"{where} cannot read the time (position {position}): a record would enter or leave "
            "it without being published; compare with a field or a number",
            position=position,
            expected="a condition over the record alone",
        )


def check_fields_alone(condition: Filter, where: str) -> None:
    """Refuse a filter that reads more than fields, where only fields exist; raises BadFilter."""
    if condition.traits:
        trait = condition.traits[0]
        position = condition.position_of({trait})
        raise BadFilter(
            f"{where} cannot use {trait}() (position {position}): it reads fields only; "
            "compare fields",
            position=position,
            expected="a condition over fields alone",
        )


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


def pinned(term: Node) -> tuple[Path, tuple[LiteralValue, ...]] | None:
    """The path that a term pins to literals, and those literals, if it does.

    A matching record equals, by the rules of ``=``, at least one of them (an array: with at
    least one element). Booleans are given as 1 and 0. No literal left (the term compares
    with NULL) means that nothing matches.
    """
    match term:
        case Compare("=", Identifier(path), Literal() as literal):
            return path, _distinct([literal])
        case Compare("=", Literal() as literal, Identifier(path)):
            return path, _distinct([literal])
        case In(Identifier(path), members):
            literals = [member for member in members if isinstance(member, Literal)]
            return (path, _distinct(literals)) if len(literals) == len(members) else None
    return None


def sow_keys_in(term: Node) -> tuple[str, ...] | None:
    """The SowKeys that a term requires of matching records, one for each record; None if it is no
    such term."""
    match term:
        case Compare("=", MessageTrait(Trait.SOW_KEY), Literal() as literal):
            members: tuple[Node, ...] = (literal,)
        case Compare("=", Literal() as literal, MessageTrait(Trait.SOW_KEY)):
            members = (literal,)
        case In(MessageTrait(Trait.SOW_KEY), members):
            pass
        case _:
            return None
    # A number equals every text that spells it, of records with keys of their own several.
    keys = [member.value for member in members if isinstance(member, Literal)]
    texts = tuple(key for key in keys if isinstance(key, str) and key)
    return texts if len(texts) == len(members) else None


def _distinct(literals: Sequence[Literal]) -> tuple[LiteralValue, ...]:
    values = [node.value for node in literals if node.value is not None and node.value != ""]
    # Adding 0 makes True 1 and -0.0 0.0.
    return tuple(dict.fromkeys(v if isinstance(v, str) else v + 0 for v in values))


def paths_in(node: Node, of_previous: bool = False) -> tuple[Path, ...]:
    """The distinct paths that an expression reads, in the order of the text: of the record, or of
    what there was before it."""
    return node.contents.before if of_previous else node.contents.paths


def traits_in(node: Node) -> tuple[Trait, ...]:
    """The distinct traits of the message that a condition reads, in the order of the text."""
    return node.contents.traits


def with_known(node: Node, known: Mapping[Trait, Scalar]) -> Node:
    """The node with traits that are known put in as literals, and what is calculated of literals
    alone calculated: so it may be found by an index."""
    return node if known.keys().isdisjoint(traits_in(node)) else _with_known(node, known)


def bound(node: Node, values: Mapping[Source, Scalar]) -> Node:
    """The node with the values of parameters, and those of fields that are known for all records,
    put in as literals."""
    return _with_known(node, values)


def with_texts(node: Node, change: Callable[[str, bool], str], is_pattern: bool = False) -> Node:
    """The node with each of its texts changed, by `change(text, is_pattern)`: that of LIKE is a
    pattern. Those from which functions are made, as patterns and formats, stay as they are."""
    if isinstance(node, Literal):
        text = node.value
        return replace(node, value=change(text, is_pattern)) if isinstance(text, str) else node
    if isinstance(node, Like):
        operand = with_texts(node.operand, change)
        pattern = with_texts(node.pattern, change, is_pattern=True)
        return Like(operand, cast("Literal", pattern), position=node.position)
    if isinstance(node, Call) and node.name in FUNCTIONS and FUNCTIONS[node.name].literals:
        return node
    return with_parts(node, with_texts, change)


def parameters_in(node: Node) -> tuple[Parameter, ...]:
    """The distinct parameters of an expression, in the order of the text."""
    return tuple(dict.fromkeys(part for part in walk(node) if isinstance(part, Parameter)))


def _with_known(node: Node, known: Mapping[Any, Scalar]) -> Node:
    if isinstance(node, MessageTrait | Identifier | Parameter):
        is_known = node.source in known
        return Literal(known[node.source], position=node.position) if is_known else node
    made = with_parts(node, _with_known, known)
    return node if made is node else _calculated(made)


def _calculated(node: Node) -> Node:
    """The literal that a node of literals alone evaluates to; else the node."""
    if not isinstance(node, Arithmetic | Call):
        return node
    if not all(isinstance(part, Literal) for part in node.children):
        return node
    if isinstance(node, Call) and node.name not in FUNCTIONS:
        return node  # an aggregate: what it comes to depends on how many records there are
    value = compile_value(node)(())
    if isinstance(value, list) or (isinstance(value, str) and len(value) > LITERAL_CHARS_MAX):
        return node
    return Literal(value, position=node.position)


def _check_moments(node: Node, text: str) -> None:
    """Refuse a long filter that has to be compiled again for each query."""
    if len(text) <= MOMENT_CHARS_MAX:
        return
    for part in walk(node):
        if isinstance(part, MessageTrait) and part.trait is Trait.UNIX_TIMESTAMP:
            raise TooLarge(
                f"a filter that reads the time has at most {MOMENT_CHARS_MAX} characters, since "
                f"it is compiled again for each query, and this one has {len(text)}; write the "
                "time as a number",
                position=part.position,
                expected=f"at most {MOMENT_CHARS_MAX} characters",
            )


def compile_value(node: Node) -> Callable[[Sequence[Value]], Value]:
    """A function that gives the value of `node`, given those of `paths_in(node)`, of
    `traits_in(node)`, and of the paths that it reads from the previous state of the record."""
    read: tuple[Source, ...] = (*paths_in(node), *traits_in(node))
    source = SourceText(read, before=paths_in(node, of_previous=True))
    value = source.value(node)
    text = f"def result(values):\n    [{source.variables}] = values\n    return {value}\n"
    function: Callable[[Sequence[Value]], Value] = run_source(source, text)
    return function


def compile_column(node: Node) -> Callable[[Sequence[Sequence[Value]], int], list[Value]]:
    """A function that gives the values of `node` for many records, given a column for each of
    `paths_in(node)` and then of `traits_in(node)`."""
    source = SourceText((*paths_in(node), *traits_in(node)))
    function: Callable[..., list[Value]] = of_each(source, source.value(node))
    return function


def _compile_matches(expression: Node, source: SourceText) -> Matches:
    function: Matches = of_each(source, source.condition(expression, True))
    return function


def of_each(source: SourceText, text: str) -> Any:
    """A function of (columns, count) that evaluates `text` for each record."""
    match source.count:
        case 0:
            result = f"[{text}] * count"
        case 1:
            result = f"[{text} for v0 in columns[0]]"
        case _:
            result = f"[{text} for {source.variables} in zip(*columns)]"
    return run_source(source, f"def result(columns, count):\n    return {result}\n")


def _compile_truth(expression: Node, source: SourceText) -> Truth:
    lines = [
        "def result(values):",
        f"    [{source.variables}] = values",
        f"    if {source.condition(expression, True)}: return True",
        f"    return False if {source.condition(expression, False)} else None",
    ]
    function: Truth = run_source(source, "\n".join(lines) + "\n")
    return function


def run_source(source: SourceText, function: str) -> Any:
    """The function named `result` of the generated text.

    The text consists of operators and of names made here: the client's literals and paths are
    reached through `source.names`, never written into it. Each function has only the names that it
    reads, so none of them refers to itself, and each is freed with its last reference.
    """
    names = dict(source.names)
    parts = (*source.functions, function)
    are_few = len(parts) <= SHARED_PARTS_MAX
    # One by one: while Python compiles a text, no other thread runs.
    for part in parts:
        is_shared = are_few and len(part) <= SHARED_CHARS_MAX
        name, code, read = _shared(part) if is_shared else _compiled(part)
        known = {one: names[one] for one in read if one in names}
        exec(code, known)
        names[name] = known.pop(name)
    return names["result"]


Compiled = tuple[str, CodeType, frozenset[str]]
"""The name of a function, what makes it, and the names that it reads."""


def _compiled(text: str) -> Compiled:
    made = compile(text, "<filter>", "exec")
    [name] = made.co_names
    return name, made, frozenset(_names_in(made))


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names_in(part)


@kept(256)
def _shared(text: str) -> Compiled:
    """The code of a text. Filters that differ in their literals only have the same text, and those
    with the conditions of one role begin with the same functions."""
    return _compiled(text)
