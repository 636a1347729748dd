"""`order_by`: the sort order of a query's result, and how values rank.

An order is a list of values: fields, or expressions. Ascending, NULLs come first, then NaN, then
numbers (booleans are 1 and 0), then strings as text; a list ranks as its first element. With TEXT
every value ranks as its text. The caller sorts, with a stable sort and `reverse` for DESC.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sow.core.containers import ENTRY_WEIGHT, Cache
from sow.core.paths import Path, Scalar, Value
from sow.errors import BadFilter, TooLarge
from sow.expressions.builder import Term
from sow.expressions.codegen import SLOW_FUNCTIONS
from sow.expressions.filters import bound, compile_column, paths_in, traits_in
from sow.expressions.message_attributes import Trait
from sow.expressions.nodes import Call, Identifier, Literal, MessageTrait, Node, Source, walk
from sow.expressions.parser import parse_order
from sow.expressions.values import as_text

TERMS_MAX = 32
"""Terms of an order: the records are sorted once for each."""
CALCULATED_MAX = 8
"""Terms of an order that are calculated: each takes some 13 bytes for each record of the topic, as
long as its query is answered."""
SLOW_TERMS_MAX = 1
"""Calls in an order of what is slow: each is made for every record that is sorted, and a hundred
thousand of long texts take minutes."""
PARTS_MAX = 1_000
"""Paths, literals, operators and calls in such terms: what an order takes to read and compile, at
once, stays under 50 ms."""
ORDERS_KEPT_WEIGHT = 256 * 1024
"""Characters of the orders that are kept compiled, with `ENTRY_WEIGHT`: a thousand of usual ones.
Reading one takes a fifth of a millisecond."""
SAME_FOR_ALL = {Trait.AMPS_INSTANCE_NAME, Trait.BOOKMARK, Trait.TOPIC_NAME, Trait.UNIX_TIMESTAMP}
"""Traits that cannot order records of a topic: sorted records have no bookmark, and one time."""
SortKey = tuple[int] | tuple[int, str | int | float]
Calculate = Callable[[Sequence[Sequence[Value]], int], list[Value]]

_NULL: SortKey = (0,)
_NAN: SortKey = (1,)
_STRING = 3
"""The first item of a string's sort key."""


class ReversedText:
    """A text that sorts in reverse order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReversedText) and self.text == other.text

    def __lt__(self, other: "ReversedText") -> bool:
        return other.text < self.text

    def __hash__(self) -> int:
        return hash(self.text)


Rank = tuple[int] | tuple[int, str | int | float | ReversedText]


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One term of an `order_by`: its value, descending or not, ranked as text or by value.

    `calculate` gives the values of so many records, of columns for `paths` and then for `traits`.
    """

    value: Node
    descending: bool = False
    text: bool = False
    paths: tuple[Path, ...] = field(default=(), compare=False, repr=False)
    traits: tuple[Trait, ...] = field(default=(), compare=False, repr=False)
    calculate: Calculate = field(default=lambda _columns, _count: [], compare=False, repr=False)
    path: Path | None = field(init=False, compare=False, repr=False)
    """The field that it is the value of; None where it is calculated."""

    def __post_init__(self) -> None:
        path = self.value.path if isinstance(self.value, Identifier) else None
        object.__setattr__(self, "path", path)

    def key(self, value: Value) -> SortKey:
        """The ascending sort key of a record with this value."""
        return text_sort_key(value) if self.text else sort_key(value)

    def rank(self, value: Value) -> "Rank":
        """The sort key of a record with this value, ascending whatever the term's direction."""
        key = self.key(value)
        if not self.descending:
            return key
        if len(key) == 1:
            return (-key[0],)
        return (-key[0], ReversedText(key[1]) if isinstance(key[1], str) else -key[1])


def sort_key(value: Value) -> SortKey:
    """A key under which any values sort: NULL, NaN, numbers, strings."""
    first = _first(value)
    if first is None or first == "":
        return _NULL
    if isinstance(first, str):
        return (3, first)
    return (2, first) if first == first else _NAN


def text_sort_key(value: Value) -> SortKey:
    """A key under which values sort as their text, NULLs first."""
    first = _first(value)
    return _NULL if first is None or first == "" else (3, as_text(first))


def _first(value: Value) -> Scalar:
    if isinstance(value, list):
        return value[0] if value else None
    return value


_kept: Cache[str, tuple[OrderTerm, ...]] = Cache(ORDERS_KEPT_WEIGHT)


def parse_order_by(text: str) -> tuple[OrderTerm, ...]:
    """Read ``/px * /qty DESC, /id``: values, each with ASC or DESC and TEXT as wanted.

    Raises BadFilter with the position of the mistake, TooLarge for more than TERMS_MAX terms or
    what is too long or nests too deeply, NotAvailable for what is not built.
    """
    found = _kept.get(text)
    if found is None:
        found = _read(text)
        _kept.keep(text, found, len(text) + ENTRY_WEIGHT)
    return found


def _read(text: str) -> tuple[OrderTerm, ...]:
    try:
        terms = parse_order(text)
        _check(terms)
        return tuple(map(_compiled, terms))
    except BadFilter as error:
        raise BadFilter(
            f"order_by: {error.detail}; write for example /px DESC, /id",
            position=error.position or 0,
            expected=error.expected or "",
            reason="bad orderby",
        ) from None


def _compiled(term: Term) -> OrderTerm:
    paths, traits = paths_in(term.value), traits_in(term.value)
    return OrderTerm(*term, paths, traits, compile_column(term.value))


def masked_order(
    terms: Sequence[OrderTerm], is_hidden: Callable[[Path], bool]
) -> tuple[OrderTerm, ...]:
    """The same order for records without these fields and with an unknown size: a term that reads
    only those orders nothing."""
    found = []
    for term in terms:
        hidden: dict[Source, Scalar] = {p: None for p in term.paths if is_hidden(p)}
        if Trait.MESSAGE_SIZE in term.traits:
            hidden[Trait.MESSAGE_SIZE] = None
        if hidden:
            value = bound(term.value, hidden)
            if isinstance(value, Literal):
                continue
            term = _compiled(Term(value, term.descending, term.text))
        found.append(term)
    return tuple(found)


def _check(terms: Sequence[Term]) -> None:
    """Refuse orders that are too large, and terms that cannot order records."""
    if len(terms) > TERMS_MAX:
        raise TooLarge(
            f"order_by has more than {TERMS_MAX} terms; name fewer",
            position=terms[TERMS_MAX].value.position,
            expected=f"at most {TERMS_MAX} terms",
        )
    calculated = [term.value for term in terms if not isinstance(term.value, Identifier)]
    if len(calculated) > CALCULATED_MAX:
        raise TooLarge(
            f"order_by has more than {CALCULATED_MAX} terms that are calculated; write fewer",
            position=calculated[CALCULATED_MAX].position,
            expected=f"at most {CALCULATED_MAX} terms that are no paths",
        )
    parts = [part for value in calculated for part in walk(value)]
    if len(parts) > PARTS_MAX:
        raise TooLarge(
            f"what is calculated in order_by has {len(parts):,} parts (paths, literals, operators "
            f"and calls), and {PARTS_MAX:,} are the most; write fewer",
            position=parts[PARTS_MAX].position,
            expected=f"at most {PARTS_MAX:,} parts",
        )
    for part in parts:
        if isinstance(part, MessageTrait) and part.trait in SAME_FOR_ALL:
            raise BadFilter(
                f"{part} is the same for all records that are sorted",
                position=part.position,
                expected="a path, or what is calculated of what each record has",
            )
    slow = [part for part in parts if isinstance(part, Call) and part.name in SLOW_FUNCTIONS]
    if len(slow) > SLOW_TERMS_MAX:
        raise TooLarge(
            f"order_by has more than {SLOW_TERMS_MAX} call of {', '.join(SLOW_FUNCTIONS)}, and "
            "each is made for every record that is sorted; have Enrichment make such a field, and "
            "order by that",
            position=slow[SLOW_TERMS_MAX].position,
            expected=f"at most {SLOW_TERMS_MAX} such call",
        )
    for term in terms:
        if isinstance(term.value, Literal):
            raise BadFilter(
                f"{term.value} is the same for all records",
                position=term.value.position,
                expected="a path, or what is calculated of one",
            )
