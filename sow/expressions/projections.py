"""Projections: ``SUM(/px * /qty) / SUM(/qty) AS /vwap``, the row of a group.

A list of texts and the grouping fields are compiled, once, into what is kept of each record and
what is computed from that:

    inputs ──> arguments, a value a record ──> aggregates, a value a group ──> the row's document

`inputs` are the fields that are read from the records, `arguments` the distinct expressions inside
an aggregate, `aggregates` the distinct calls. A path outside of an aggregate is the value by which
records are grouped, or else that of the record that changed last. The caller passes the values of
aggregates: nothing here knows how they are maintained, nor where records are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from conflated_topics.user_texts import nearest
from sow.core.paths import Member, Path, TopicPath, Value
from sow.errors import BadFilter, ClientError, TooLarge, shown
from sow.expressions.builder import Construction
from sow.expressions.codegen import SourceText
from sow.expressions.filters import of_each, run_source
from sow.expressions.functions import AGGREGATES, DEFAULT_SEPARATOR, LAST
from sow.expressions.message_attributes import Trait
from sow.expressions.nodes import (
    Call,
    Identifier,
    Literal,
    MessageTrait,
    Node,
    Slot,
    walk,
    with_parts,
)
from sow.expressions.parser import parse_grouped, parse_projected

Columns = Sequence[Sequence[Value]]
Row = dict[str, Any]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Argument:
    """A value that is made of each record for an aggregate, `text` the expression that states it.

    `values` gives it of so many records, given a column for each of the projection's `inputs`.
    """

    text: str
    values: Callable[[Columns, int], Sequence[Value]]
    is_constant: bool = False
    """It is the same of all records."""


class Aggregate(NamedTuple):
    """An aggregate of a group: its `kind`, a key of AGGREGATES or LAST, the index of its argument
    among those of the projection, and the separator of values if it joins them to a text."""

    kind: str
    argument: int
    separator: str = DEFAULT_SEPARATOR


class Projection:
    """A compiled projection: the recipe of the rows of groups.

    `inputs` are the fields to read of each record, those that make the groups first, in the order
    in which they are given: so many are `grouping`. `targets` are the fields of a row. `texts` are
    what it was read from, the grouping last: equal texts over equal topics are equal projections.
    `keys` are the fields of a row that hold the grouping, in its order; none if one is left out.
    """

    def __init__(
        self,
        constructions: Sequence[Construction],
        grouping: Sequence[TopicPath],
        texts: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        self.texts = texts
        self.grouping = tuple(grouping)
        parts = _Parts(grouping)
        made = [one._replace(value=parts.outer(one.value)) for one in constructions]
        self.inputs: tuple[TopicPath, ...] = tuple(parts.inputs)
        places = {path: at for at, path in enumerate(self.inputs)}
        self.arguments: tuple[Argument, ...] = tuple(
            Argument(text, _argument(node, places), isinstance(node, Literal))
            for text, node in parts.arguments.items()
        )
        self.aggregates: tuple[Aggregate, ...] = tuple(parts.aggregates)
        self.targets: tuple[Path, ...] = tuple(one.target for one in made)
        shown = {one.value: one.target for one in reversed(made)}
        keys = [shown.get(Slot(number)) for number in range(len(self.grouping))]
        self.keys: tuple[Path, ...] = tuple([key for key in keys if key]) if all(keys) else ()
        self._rows = _rows_maker(made, len(self.grouping), len(self.aggregates))

    def documents(self, grouped: Sequence[Sequence[Value]], results: Columns) -> list[Row]:
        """The rows of groups, given for each group the values of its grouping fields, and for each
        of `aggregates` a column of what it comes to."""
        return self._rows(grouped, results)

    def document(self, grouped: Sequence[Value], results: Sequence[Value]) -> Row:
        """The row of one group."""
        return self._rows([grouped], [[result] for result in results])[0]


def compile_projection(
    projected: Sequence[str],
    grouping: Sequence[str],
    topics: Mapping[str, str],
    parts_max: int | None = None,
) -> Projection:
    """The projection that the texts state, over `topics`, each with its message type ("": any).

    A path may be qualified by its topic, `[orders]./qty`, and has to be where there are several.
    Raises BadFilter with the character of the text, TooLarge for what is too long, or has more than
    `parts_max` paths, literals, operators and calls in all.
    """
    constructions: list[Construction] = []
    parts = 0
    for text in projected:
        constructions.append(_placed(text, partial(_projected, topics=topics)))
        parts += sum(1 for _ in walk(constructions[-1].value))
        if parts_max is not None and parts > parts_max:
            raise TooLarge(
                f"there are more than {parts_max} parts (paths, literals, operators and calls); "
                "project fewer fields",
                position=text.position if isinstance(text, Member) else 0,
                expected=f"at most {parts_max} parts",
            )
    _check_targets(constructions)
    paths = [_placed(text, partial(_grouped, topics=topics)) for text in grouping]
    return Projection(
        constructions, list(dict.fromkeys(paths)), (tuple(projected), tuple(grouping))
    )


class _Parts:
    """Collects the parts of expressions. Equal parts, which have equal texts, are one."""

    def __init__(self, grouping: Sequence[TopicPath]) -> None:
        self._grouping = {path: number for number, path in enumerate(grouping)}
        self.inputs: dict[TopicPath, None] = dict.fromkeys(grouping)
        self.arguments: dict[str, Node] = {}
        self.aggregates: dict[Aggregate, int] = {}

    def outer(self, node: Node) -> Node:
        """The node with slots in place of the values of the group."""
        if isinstance(node, Call) and node.name in AGGREGATES:
            inner, *options = node.arguments
            words = [one.value for one in options if isinstance(one, Literal)]
            separator = str(words[0]) if words else DEFAULT_SEPARATOR
            return self._slot(node.name, inner, separator)
        if isinstance(node, Identifier):
            number = self._grouping.get(_source(node))
            return self._slot(LAST, node) if number is None else Slot(number)
        return with_parts(node, self.outer)

    def _slot(self, kind: str, argument: Node, separator: str = DEFAULT_SEPARATOR) -> Slot:
        for part in walk(argument):
            if isinstance(part, Identifier):
                self.inputs.setdefault(_source(part))
        # By its text: 1, 1.0 and TRUE_VALUE() are equal numbers, and not the same argument.
        self.arguments.setdefault(str(argument), argument)
        number = list(self.arguments).index(str(argument))
        found = self.aggregates.setdefault(Aggregate(kind, number, separator), len(self.aggregates))
        return Slot(len(self._grouping) + found)


def _source(node: Identifier) -> TopicPath:
    return TopicPath(node.topic, node.path)


def _argument(
    node: Node, places: Mapping[TopicPath, int]
) -> Callable[[Columns, int], Sequence[Value]]:
    """A function that gives the values of an argument, given a column for each input at its
    place."""
    if isinstance(node, Identifier):
        only = places[_source(node)]
        return lambda columns, _count: columns[only]
    read = tuple(dict.fromkeys(_source(one) for one in walk(node) if isinstance(one, Identifier)))
    source = SourceText([_bare(path) for path in read])
    calculate = of_each(source, source.value(node))
    wanted = [places[path] for path in read]

    def values(columns: Columns, count: int) -> Sequence[Value]:
        made: list[Value] = calculate([columns[at] for at in wanted], count)
        return made

    return values


def _bare(path: TopicPath) -> Path | TopicPath:
    """A field as an expression reads it."""
    return path if path.topic else path.path


def _rows_maker(
    made: Sequence[Construction], grouped: int, aggregated: int
) -> Callable[[Sequence[Sequence[Value]], Columns], list[Row]]:
    """A function that makes the rows of groups, field by field: it is called for every row that
    changes, so it is generated code. The client's text is reached by names, never written into
    it."""
    source = SourceText(())
    known = [f"v{number}" for number in range(grouped + aggregated)]
    one = ", ".join([f"[{', '.join(known[:grouped])}]", *known[grouped:]])
    lines = ["def result(grouped, results):", "    rows = []"]
    lines += [f"    for {one}, in zip(grouped, *results, strict=True):", "        row = {}"]
    for number, field in enumerate(made):
        *outer, last = (f"n{number}_{at}" for at in range(len(field.target.steps)))
        source.names.update(zip((*outer, last), field.target.steps, strict=True))
        value = _value(field.value, number, source)
        inner = "".join(f".setdefault({step}, {{}})" for step in outer)
        put = f"row{inner}[{last}] = "
        if _is_optional(field, grouped):
            # A field that is left out leaves no empty object around it.
            lines += [f"        value = {value}", f"        if value is not None: {put}value"]
        else:
            lines.append(f"        {put}{value}")
    function: Callable[[Sequence[Sequence[Value]], Columns], list[Row]] = run_source(
        source, "\n".join([*lines, "        rows.append(row)", "    return rows"]) + "\n"
    )
    return function


def _value(node: Node, number: int, source: SourceText) -> str:
    """Source of a field's value: what is known, or what a function of its own calculates of it."""
    if isinstance(node, Slot):
        return f"v{node.number}"
    read = list(dict.fromkeys(part for part in walk(node) if isinstance(part, Slot)))
    inner = SourceText(read)
    value = inner.value(node)
    text = f"def result(values):\n    [{inner.variables}] = values\n    return {value}\n"
    source.names[f"f{number}"] = run_source(inner, text)
    return f"f{number}([{', '.join(f'v{slot.number}' for slot in read)}])"


def _is_optional(construction: Construction, grouped: int) -> bool:
    """Whether a field is left out when it is NULL: on demand, and where it is grouped by."""
    node = construction.value
    is_grouped = isinstance(node, Slot) and node.number < grouped
    return is_grouped or "OPTIONAL" in construction.hints


# What is refused.


def _qualified(node: Node, topics: Mapping[str, str], what: str) -> Node:
    """The node with the topic of each path filled in; raises BadFilter."""
    if isinstance(node, Identifier):
        return _of_topic(node, topics, what)
    return with_parts(node, _qualified, topics, what)


def _of_topic(node: Identifier, topics: Mapping[str, str], what: str) -> Identifier:
    if not node.topic:
        if len(topics) > 1:
            example = f"[{next(iter(topics))}].{node.path}"
            raise BadFilter(
                f"{node.path} at position {node.position} of the {what} names no topic. There "
                f"are {', '.join(topics)}; write for example {example}",
                position=node.position,
                expected="a path behind the topic that it is of",
            )
        return replace(node, topic=next(iter(topics), ""))
    if node.topic not in topics:
        near = nearest(node.topic, list(topics))
        hint = f"did you mean {near}?" if near else f"there are {', '.join(topics)}"
        raise BadFilter(
            f"[{node.topic}] at position {node.position} of the {what} is no topic that it is "
            f"made of; {hint}",
            position=node.position,
            expected=" or ".join(f"[{name}]" for name in topics),
        )
    if node.message_type and node.message_type != topics[node.topic] != "":
        raise BadFilter(
            f"[{node.message_type}] at position {node.position} of the {what}: the messages of "
            f"{node.topic} are {topics[node.topic]}",
            position=node.position,
            expected=f"[{topics[node.topic]}].[{node.topic}]",
        )
    return replace(node, message_type="")


_MADE_BY: dict[Trait, str] = {
    trait: f", such as one that an Enrichment of the topic makes: {trait}() AS /name"
    for trait in Trait
    if trait != Trait.BOOKMARK  # which is not known yet where fields are made
}


def _check_value(node: Node) -> None:
    """Refuse an aggregate inside another one, and what is known of no group."""
    for part in walk(node):
        if isinstance(part, MessageTrait):
            made_by = _MADE_BY.get(part.trait, "")
            raise BadFilter(
                f"{part} at position {part.position} has no place in a projection: it is known of "
                f"a message, and a row is made of many; project a field{made_by}",
                position=part.position,
                expected="a path, a literal or an aggregate",
            )
        if isinstance(part, Call) and part.name in AGGREGATES:
            for inner in walk(part.arguments[0]):
                if isinstance(inner, Call) and inner.name in AGGREGATES:
                    raise BadFilter(
                        f"{inner.name} at position {inner.position} is inside {part.name}: an "
                        "aggregate is of records, and what it gives is of the group; write a view "
                        "over this one for aggregates of aggregates",
                        position=inner.position,
                        expected="an expression over fields alone",
                    )


def _check_targets(constructions: Sequence[Construction]) -> None:
    """Refuse two fields at one place, or one inside another."""
    seen: list[tuple[str, ...]] = []
    for one in constructions:
        steps = one.target.steps
        for other in seen:
            size = min(len(steps), len(other))
            if steps[:size] == other[:size]:
                twice = "twice" if steps == other else f"inside {Path(min(steps, other, key=len))}"
                raise BadFilter(
                    f"{one.target} is projected {twice}; give each field of the row a place of its "
                    "own: AS /another",
                    position=0,
                    expected="a path that no other field has",
                )
        seen.append(steps)


def _placed(text: str, read: Callable[[str], Made]) -> Made:
    """`text` parsed by `read`; an error in a member of a list is reported at its place there."""
    try:
        return read(text)
    except ClientError as error:
        if isinstance(text, Member) and error.position is not None:
            error.position += text.position
        raise


def _projected(text: str, topics: Mapping[str, str]) -> Construction:
    made = parse_projected(text)
    value = _qualified(made.value, topics, "projection")
    _check_value(value)
    return made._replace(value=value)


def _grouped(text: str, topics: Mapping[str, str]) -> TopicPath:
    node = parse_grouped(text)
    if not isinstance(node, Identifier):
        raise BadFilter(
            f"grouping {shown(text)} is no field: records are grouped by fields; write for example "
            "/desk",
            position=node.position,
            expected="a path",
        )
    return _source(_of_topic(node, topics, "grouping"))
