"""Row-level security: the rows and the fields of a topic that one user may see.

A row policy is a filter. Its rows are a condition ANDed to the user's own filter, so everything
that holds for filters holds for it: indexes, shared feeds, windows. Its fields are a select list
that is intersected with the user's own; a hidden field is NULL in the user's expressions. Users
with equal permissions have equal policies, so they share what equal subscriptions share.

A user's values are bound as literals of the expression, never as text. A policy knows nothing of
roles (`sow.security.authorization`) or of topics.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import cast
from weakref import WeakKeyDictionary

from sow.core.comma_lists import common, parse_select, united
from sow.core.paths import Path, Scalar, Value
from sow.expressions import (
    And,
    Compare,
    Filter,
    Identifier,
    In,
    Literal,
    Node,
    Or,
    OrderTerm,
    Source,
    Trait,
    bound,
    check_fields_alone,
    compile_term,
    masked_order,
    parameters_in,
    parse_grouped,
    parse_guard,
    parse_projected,
    paths_in,
    walk,
)

USER_PREFIX = "user."
"""Prefix of the parameters of a user: ``${user.desk}`` is the claim desk, ``${user.name}`` the
name."""
NO_FIELD = Path(("no field",))
"""A field to group by where there is none that may be seen."""
NOTHING = Compare("=", Literal(1), Literal(0))
"""The condition that no record meets."""


def read_condition(text: str) -> Node:
    """The condition of a Filter or Check, with parameters of the user; raises ClientError.

    It is about fields alone: the content of a record decides who may see it, not the time of its
    write.
    """
    node = parse_guard(text, USER_PREFIX)
    values: dict[Source, Scalar] = dict.fromkeys(parameters_in(node), "x")
    check_fields_alone(Filter(bound(node, values), text), "an entitlement")
    return node


class Condition:
    """A Filter or Check of roles: what they have in common for all users is found once."""

    def __init__(self, text: str) -> None:
        self._node = read_condition(text)
        self._parameters = parameters_in(self._node)

    def bind(self, claims: Mapping[str, str]) -> Node | None:
        """The condition for a user with these claims; None where one is missing."""
        values: dict[Source, Scalar] = {}
        for one in self._parameters:
            value = claims.get(one.name.removeprefix(USER_PREFIX))
            if not value:
                return None
            values[one] = value
        return bound(self._node, values) if values else self._node


class RowPolicy:
    """The rows and the fields of a topic that a user may see; None: all. Equal ones are alike in
    every place."""

    def __init__(
        self, rows: Node | None, select: tuple[str, ...] | None = None, written: str = ""
    ) -> None:
        """`written` is the text of the rows, where it is known."""
        self._condition = rows
        self.select = select
        self.text = f"{written or rows or ''}\n{','.join(select or ())}"
        self._shown = None if select is None else parse_select(select)
        self._joined: WeakKeyDictionary[Filter, Filter] = WeakKeyDictionary()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowPolicy) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"RowPolicy({self.text!r})"

    @cached_property
    def rows(self) -> Filter | None:
        """The condition of the rows, compiled at first use: many roles may make it very long."""
        return None if self._condition is None else compile_term(self._condition)

    @cached_property
    def needs_fields(self) -> bool:
        """Whether it applies only to messages that have fields."""
        condition = self._condition
        return self.select is not None or (condition is not None and bool(paths_in(condition)))

    def is_ready(self, own: Filter | None) -> bool:
        """Whether `condition` needs no compilation."""
        return "rows" in self.__dict__ and (own is None or own in self._joined)

    def holds(self, values: Sequence[Value]) -> bool:
        """Whether the user may see a record, by the values of `paths`."""
        return self.rows is None or self.rows.holds(values)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The fields that the condition reads."""
        return () if self.rows is None else self.rows.paths

    def hides(self, path: Path) -> bool:
        """Whether a field is NULL to the user."""
        return self._shown is not None and not self._shown.shows(path.steps)

    def masked(self, node: Node) -> Node:
        """The user's expression with hidden fields as NULL."""
        if self._shown is None:
            return node
        read = [part for part in walk(node) if isinstance(part, Identifier)]
        hidden: dict[Source, Scalar] = {one.source: None for one in read if self.hides(one.path)}
        # The size of a message would reveal something about its hidden fields.
        hidden[Trait.MESSAGE_SIZE] = None
        return bound(node, hidden)

    def condition(self, own: Filter | None) -> Filter | None:
        """The condition of a query or subscription with the user's `own` filter."""
        if own is None:
            return self.rows
        found = self._joined.get(own)
        if found is None:
            mine = self.masked(own.expression)
            if self.rows is not None:
                mine = And((self.rows.expression, mine))
            found = own if mine is own.expression else compile_term(mine)
            if found is not own:
                self._joined[own] = found
        return found

    def order(self, terms: Sequence[OrderTerm]) -> tuple[OrderTerm, ...]:
        """The user's order."""
        return tuple(terms) if self._shown is None else masked_order(terms, self.hides)

    def projection(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """The user's projection; its texts have been validated before."""
        if self._shown is None:
            return texts
        found = []
        for text in texts:
            value, target, hints = parse_projected(text)
            words = f" HINT {', '.join(sorted(hints))}" if hints else ""
            found.append(f"{self.masked(value)} AS {Identifier(target)}{words}")
        return tuple(found)

    def grouping(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """The user's grouping: a field that is NULL in all records separates none."""
        if self._shown is None:
            return texts
        read = [(text, parse_grouped(text)) for text in texts]
        left = [
            text
            for text, node in read
            if not (isinstance(node, Identifier) and self.hides(node.path))
        ]
        return tuple(left) or (str(Identifier(NO_FIELD)),)

    def shape(self, select: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The select list that a request for `select` is answered with."""
        if self.select is None or select is None:
            return select if self.select is None else self.select
        return common([self.select, select])


DENY_ALL = RowPolicy(NOTHING)
"""The policy of a user who may see nothing."""


def row_policy_of(
    rows: Sequence[Node | None], selects: Sequence[tuple[str, ...] | None]
) -> RowPolicy | None:
    """The policy of several entitlements together, by the rows and fields of each: their rows ORed
    and their fields united; None where that is everything, `DENY_ALL` where there are none."""
    if not rows:
        return DENY_ALL
    conditions = {one.written: one for one in rows if one is not None}
    texts = sorted(conditions)
    ordered = tuple([conditions[text] for text in texts])
    condition = None
    if all(one is not None for one in rows):
        condition = _any_of(ordered)
    select = united([one for one in selects if one]) if all(selects) else None
    if condition is None and select is None:
        return None
    return RowPolicy(condition, select, " OR ".join(texts) if condition is not None else "")


def _any_of(conditions: Sequence[Node]) -> Node:
    """Conditions ORed. Equalities of one field are one list, at the place of the first: a test of
    a thousand takes no longer than one of a few, and an index finds the rows of all."""
    alike: dict[Path | int, list[Node]] = {}
    for place, one in enumerate(conditions):
        match one:
            # '' is NULL, too, which nothing equals.
            case Compare("=", Identifier(path), Literal(value)) if value not in (None, ""):
                alike.setdefault(path, []).append(one)
            case _:
                alike[place] = [one]
    joined = [_one_test(same) for same in alike.values()]
    return joined[0] if len(joined) == 1 else Or(tuple(joined))


def _one_test(equalities: Sequence[Node]) -> Node:
    """One test for equalities of one field; a condition that stands alone is itself."""
    if len(equalities) == 1:
        return equalities[0]
    compared = cast(Sequence[Compare], equalities)
    return In(compared[0].left, tuple(one.right for one in compared))
