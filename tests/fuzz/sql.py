"""The part of the language that SQL has too: our nodes as text of SQLite, and random questions.

The rules that differ by definition are translated: LIKE is a regular expression, so a function of
SQLite searches; arithmetic takes numbers alone; LENGTH counts bytes; what makes an empty text makes
NULL. The rest is SQLite's own: three outcomes, comparisons of mixed types, BETWEEN, IN, integer
division, order. No question makes a NaN or an integer of 64 bits, and no text spells a number: SQL
has no rule for these.
"""

import random
import re
import sqlite3
from itertools import accumulate
from typing import NamedTuple

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
    Node,
    Not,
    Or,
)

INTEGERS = (None, 0, 1, 2, 3, 7, -5, 30, 2**31, -(2**40), 2**53, 2**53 + 1, True, False)
DOUBLES = (None, 0.0, 0.5, -2.25, 3.0, 1e10, 7, 2**40 + 1, 0.1, 30)
TEXTS = (None, "A", "ab", "abc", "B", "x y", " pad ", "it's", "éa", "zz", "a\\b", "ab\nc")
FIELDS = {
    "i": INTEGERS,
    "j": INTEGERS[:9],
    "f": DOUBLES,
    "s": TEXTS,
    "t": TEXTS,
    "m": (*INTEGERS[:8], *DOUBLES[:5], *TEXTS),
}
"""By field, what records have there. In `m` anything, and a record may lack any of them."""
PATTERNS = ("a", "^a", "b$", "^$|y", "[0-9]", r"\.", "A|z+", "(?i)AB", "t's", ".")
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
SMALL = (1, 2, -3, 7)
NESTED_MAX = 20
"""Parentheses in parentheses of a question: SQLite's parser holds a hundred symbols."""


class Question(NamedTuple):
    """A filter, an order and a page."""

    filter: Node
    order: tuple[tuple[Node, bool, bool], ...]
    """Each a value, whether descending, whether as text."""
    top_n: int
    skip_n: int

    @property
    def options(self) -> dict[str, object]:
        """The fields of our command."""
        order = [
            str(value) + " DESC" * descending + " TEXT" * as_text
            for value, descending, as_text in self.order
        ]
        more = {"order_by": ", ".join(order)} if order else {}
        return {"filter": str(self.filter), **more, "top_n": self.top_n, "skip_n": self.skip_n}

    @property
    def sql(self) -> str:
        """The condition, order and page of SQLite."""
        order = [
            (f"astext({sql(value)})" if as_text else sql(value)) + " DESC" * descending
            for value, descending, as_text in self.order
        ]
        page = f"LIMIT {self.top_n} OFFSET {self.skip_n}"
        return f"{sql(self.filter)} ORDER BY {', '.join([*order, 'rowid'])} {page}"


def sql(node: Node) -> str:
    """The node as SQLite reads it."""
    match node:
        case Literal(None | ""):
            return "NULL"
        case Literal(str(value)):
            return "'" + value.replace("'", "''") + "'"
        case Literal(value):
            return repr(value + 0)
        case Identifier(path):
            return path.steps[0]
        case Arithmetic(operator, left, right):
            return f"(number({sql(left)}) {operator} number({sql(right)}))"
        case Call(name, arguments):
            return CALLS[name](*map(sql, arguments))
        case Affix():
            return affix(node)
    return CONDITIONS[type(node)](node, *map(sql, node.children))


def affix(node: Affix) -> str:
    """BEGINS WITH and ENDS WITH by the part of the text that is compared."""
    start = "-" if node.at_end else "1, "
    text, *parts = [f"astext({sql(one)})" for one in node.children]
    tests = [f"SUBSTR({text}, {start}LENGTH({part})) = {part}" for part in parts]
    return f"({' OR '.join(tests)})"


CONDITIONS = {
    Compare: lambda node, left, right: f"({left} {node.operator} {right})",
    Between: lambda _, value, low, high: f"({value} BETWEEN {low} AND {high})",
    In: lambda _, value, *members: f"({value} IN ({', '.join(members)}))",
    Like: lambda _, value, pattern: f"found({pattern}, astext({value}))",
    IsNull: lambda _, value: f"({value} IS NULL)",
    IsNan: lambda _, value: f"({value} IS NULL AND 0)",
    Not: lambda _, part: f"(NOT {part})",
    And: lambda _, *parts: f"({' AND '.join(parts)})",
    Or: lambda _, *parts: f"({' OR '.join(parts)})",
}
CALLS = {
    "ABS": "ABS(number({}))".format,
    "COALESCE": "COALESCE({}, {})".format,
    "CONCAT": "NULLIF(COALESCE(astext({}), '') || COALESCE(astext({}), ''), '')".format,
    "IF": "CASE WHEN {} THEN {} ELSE {} END".format,
    "INSTR": "INSTR(astext({}), astext({}))".format,
    "LENGTH": "LENGTH(CAST(astext({}) AS BLOB))".format,
    "LOWER": "LOWER(astext({}))".format,
    "REPLACE": "NULLIF(REPLACE(astext({}), {}, {}), '')".format,
    "SUBSTR": "NULLIF(SUBSTR(astext({}), {}, {}), '')".format,
    "UPPER": "UPPER(astext({}))".format,
}


def connected() -> sqlite3.Connection:
    """A table of records, and the functions that SQLite does not have."""
    made = sqlite3.connect(":memory:")
    made.create_function("found", 2, found, deterministic=True)
    made.create_function("astext", 1, as_text, deterministic=True)
    made.create_function("number", 1, as_number, deterministic=True)
    made.execute(f"CREATE TABLE records (id UNIQUE, {', '.join(FIELDS)})")
    return made


def found(pattern: str, text: str | None) -> bool | None:
    return None if text is None else re.search(pattern, text) is not None


def as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else repr(value + 0)


def as_number(value: object) -> object:
    return None if isinstance(value, str) else value


def nested(question: Question) -> int:
    """How many parentheses are open at once in its text for SQLite, at most."""
    steps = ({"(": 1, ")": -1}.get(character, 0) for character in question.sql)
    return max(accumulate(steps), default=0)


class Questions:
    """Random questions, and records that they are about."""

    def __init__(self, rng: random.Random) -> None:
        self._choose = rng.choice
        self._below = rng.randrange

    def record(self) -> dict[str, object]:
        """The fields of a record."""
        fields = {name: self._choose(values) for name, values in FIELDS.items()}
        return {name: value for name, value in fields.items() if self._below(8)}

    def question(self) -> Question:
        """One of them that SQLite can read."""
        while nested(question := self._question()) > NESTED_MAX:
            pass
        return question

    def _question(self) -> Question:
        """One of them; its page is mostly all there is."""
        order = [
            (self.value(1, of_field=True), bool(self._below(2)), not self._below(4))
            for _ in range(self._below(3))
        ]
        paged = not self._below(4)
        return Question(
            self.condition(self._below(3)),
            tuple(order),
            self._below(6) if paged else 1_000,
            self._below(4) if paged else 0,
        )

    def condition(self, depth: int) -> Node:
        """Up to so many levels of AND, OR and NOT over a test."""
        if depth:
            parts = (self.condition(self._below(depth)), self.condition(self._below(depth)))
            return self._choose((Not(parts[0]), And(parts), Or(parts)))
        return self._test()

    def _test(self) -> Node:
        value, any_value = self.value, self.any_value
        match self._below(10):
            case 0 | 1:
                return Compare(self._choose(OPERATORS), any_value(), any_value())
            case 2:
                return Compare(self._choose(OPERATORS), self.field(), self.literal())
            case 3:
                return Between(any_value(), value(1), any_value())
            case 4:
                return In(any_value(), tuple([any_value() for _ in range(1 + self._below(3))]))
            case 5:
                return In(self.field(), tuple([self.literal() for _ in range(1 + self._below(3))]))
            case 6:
                return Like(any_value(), Literal(self._choose(PATTERNS)))
            case 7:
                members = tuple([any_value() for _ in range(1 + self._below(2))])
                return Affix(any_value(), members, bool(self._below(2)))
            case 8:
                return IsNull(any_value())
        return IsNan(any_value())

    def field(self) -> Node:
        """A field of any kind."""
        return Identifier(Path((self._choose([*FIELDS]),)))

    def literal(self) -> Node:
        """A literal of any kind."""
        return Literal(self._choose(FIELDS["m"]))

    def any_value(self) -> Node:
        """A value of any kind: a literal one time in four."""
        match self._below(8):
            case 0 | 1:
                return self.literal()
            case 2 | 3:
                return self.field()
            case 4:
                return self._text()
            case 5:
                return self.condition(self._below(2))
        return self.value(2)

    def value(self, depth: int, of_field: bool = False) -> Node:
        """A number, of calculations of so many levels."""
        if not depth or not self._below(3):
            return self.field() if of_field else self._choose((self.field(), self.literal()))
        one = self.value(depth - 1, of_field)
        match self._below(8):
            case 0 | 1:
                return Arithmetic(self._choose("+-"), one, self.value(depth - 1))
            case 2:
                return Arithmetic("*", one, Literal(self._choose(SMALL)))
            case 3:
                return Arithmetic("/", one, Literal(self._choose((2, -3, 0.5))))
            case 4:
                return Arithmetic(self._choose("/%"), self._whole(), self._whole())
            case 5:
                return Call("ABS", (one,))
            case 6:
                return Call("COALESCE", (one, self.value(depth - 1)))
        return Call("IF", (self.condition(0), one, self.value(depth - 1)))

    def _whole(self) -> Node:
        """An integer."""
        chosen = (
            Identifier(Path(("i",))),
            Identifier(Path(("j",))),
            Literal(self._choose(SMALL)),
            Call("LENGTH", (self._text(),)),
            Call("INSTR", (self._text(), self._text())),
        )
        return self._choose(chosen)

    def _text(self) -> Node:
        """A text that spells no number."""
        one, other = self._letters(), self._letters()
        match self._below(6):
            case 0:
                return Call(self._choose(("UPPER", "LOWER")), (one,))
            case 1:
                return Call("CONCAT", (one, other))
            case 2:
                return Call("REPLACE", (one, Literal("a"), Literal("q")))
            case 3:
                start, count = self._choose((1, 2, -1)), self._choose((0, 1, 3))
                return Call("SUBSTR", (one, Literal(start), Literal(count)))
        return one

    def _letters(self) -> Node:
        fields = [Identifier(Path((name,))) for name in ("s", "t")]
        return self._choose((*fields, Literal(self._choose(TEXTS))))
