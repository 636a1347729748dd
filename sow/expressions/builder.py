"""Builds nodes: one method for each rule of the grammar, called while the text is parsed.

Synonyms are normalized (``==``, ``<>``, ``NOT IN``), string escapes are resolved, a number with its
sign becomes one literal, and a value in place of a condition, such as ``/active AND ...``, becomes
"differs from 0".
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

from lark import Token, Transformer

from sow.core.paths import INDEX_DIGITS_MAX, Path, parse_path
from sow.errors import BadFilter, clipped, shown
from sow.expressions.functions import called
from sow.expressions.nodes import (
    Affix,
    And,
    Arithmetic,
    Between,
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
    Parameter,
    as_condition,
)
from sow.expressions.values import as_number

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.S)
_JSON_STEP = re.compile(
    r"""\.([\w@-]+)|\['((?:[^'\\]++|\\.)*+)'\]|\["((?:[^"\\]++|\\.)*+)"\]""", re.S
)
_JSON_ESCAPE = re.compile(r"\\(.)", re.S)
_QUALIFIER = re.compile(r"\[([^\]]+)\]")
_INDEX = re.compile(r"\[([0-9]+)\]\Z")
_LITERAL = re.compile(
    r"""(?P<raw>r(?:'[^']*'|"[^"]*"))|(?P<null>null)"""
    r"""|(?P<string>'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+")|(?P<number>(?:[-+]\s*)?[0-9.][0-9.e]*(?:(?<=e)[-+][0-9]+)?)""",
    re.I | re.S,
)
"""A literal of a list that has only literals, by the grammar."""
_CONTROL = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"f": b"\f", b"r": b"\r"}


class Construction(NamedTuple):
    """A parsed field construction: a value, its target, and its hints in capitals."""

    value: Node
    target: Path
    hints: frozenset[str]


class Term(NamedTuple):
    """A parsed term of an order: a value, whether it is descending, and whether it ranks as
    text."""

    value: Node
    descending: bool
    text: bool


class Builder(Transformer[Token, Node | Construction | Term]):
    """Makes nodes, one method for each alternative of the grammar."""

    def either(self, operands: list[Node]) -> Node:
        """`a OR b OR c`."""
        return Or(_conditions(operands), position=operands[0].position)

    def both(self, operands: list[Node]) -> Node:
        """`a AND b AND c`."""
        return And(_conditions(operands), position=operands[0].position)

    def negated(self, parts: tuple[Token, Node]) -> Node:
        """`NOT a`."""
        word, operand = parts
        return Not(as_condition(operand), position=_start(word))

    def compare(self, parts: tuple[Node, Token, Node]) -> Node:
        """`a = b` and the other five."""
        left, symbol, right = parts
        canonical = {"==": "=", "<>": "!="}.get(symbol, str(symbol))
        return Compare(canonical, left, right, position=left.position)

    def between(self, parts: tuple[Node, Token | None, Node, Node]) -> Node:
        """`a [NOT] BETWEEN low AND high`."""
        operand, negation, low, high = parts
        at = operand.position
        return _unless(negation, Between(operand, low, high, position=at))

    def member(self, parts: "tuple[Node, Token | None, *tuple[Node | Token, ...]]") -> Node:
        """`a [NOT] IN (b, c)`."""
        operand, negation, *members = parts
        return _unless(negation, In(operand, _members(members), position=operand.position))

    def begins(self, parts: "tuple[Node, Token | None, *tuple[Node | Token, ...]]") -> Node:
        """`a [NOT] BEGINS WITH ('b', 'c')`."""
        return _affix(parts, at_end=False)

    def ends(self, parts: "tuple[Node, Token | None, *tuple[Node | Token, ...]]") -> Node:
        """`a [NOT] ENDS WITH ('b', 'c')`."""
        return _affix(parts, at_end=True)

    def like(self, parts: tuple[Node, Token | None, Node]) -> Node:
        """`a [NOT] LIKE 'pattern'`."""
        operand, negation, pattern = parts
        if not (isinstance(pattern, Literal) and isinstance(pattern.value, str) and pattern.value):
            raise BadFilter(
                "LIKE needs a regular expression as a quoted string that is not empty; "
                r"write /name LIKE 'son$' or /code LIKE r'\d+'",
                position=pattern.position,
                expected="a quoted regular expression",
            )
        return _unless(negation, Like(operand, pattern, position=operand.position))

    def is_null(self, parts: tuple[Node, Token | None, Token]) -> Node:
        """`a IS [NOT] NULL`."""
        operand, negation, _ = parts
        return _unless(negation, IsNull(operand, position=operand.position))

    def is_nan(self, parts: tuple[Node, Token | None]) -> Node:
        """`a IS [NOT] NAN`."""
        operand, negation = parts
        return _unless(negation, IsNan(operand, position=operand.position))

    def arithmetic(self, parts: tuple[Node, Token, Node]) -> Node:
        """`a + b` and the other four."""
        left, symbol, right = parts
        canonical = "%" if symbol.upper() == "MOD" else str(symbol)
        return Arithmetic(canonical, left, right, position=left.position)

    def signed(self, parts: tuple[Token, Node]) -> Node:
        """`-a` or `+a`: of a number the number, of all else a product."""
        sign, operand = parts
        factor = -1 if sign == "-" else 1
        if isinstance(operand, Literal) and operand.value.__class__ in (int, float):
            assert isinstance(operand.value, int | float)
            return Literal(operand.value * factor, position=_start(sign))
        one = Literal(factor, position=_start(sign))
        return Arithmetic("*", one, operand, position=_start(sign))

    def path(self, parts: tuple[Token]) -> Node:
        """`/a/b` or `/a/b[0]`."""
        return Identifier(_path(parts[0]), position=_start(parts[0]))

    def bracketed(self, parts: tuple[Token]) -> Node:
        """`[/odd name]` or `[/odd name][0]`."""
        name, _, index = parts[0].rpartition("]")[0].partition("][")
        if len(index) > INDEX_DIGITS_MAX:
            raise _bad_index(parts[0])
        steps = tuple(name[2:].split("/"))
        return Identifier(Path(steps, int(index) if index else None), position=_start(parts[0]))

    def number(self, parts: tuple[Token]) -> Node:
        """`42`, `-1.5` or `6.022E23`."""
        return Literal(as_number(parts[0]), position=_start(parts[0]))

    def string(self, parts: tuple[Token]) -> Node:
        """`'text'` or the same in double quotes."""
        return Literal(_unescaped(parts[0], _start(parts[0])), position=_start(parts[0]))

    def raw(self, parts: tuple[Token]) -> Node:
        """`r'text'`, in which a backslash is a backslash."""
        return Literal(parts[0][2:-1], position=_start(parts[0]))

    def null(self, parts: tuple[Token]) -> Node:
        """`NULL`."""
        return Literal(None, position=_start(parts[0]))

    def parameter(self, parts: tuple[Token]) -> Node:
        """`${user.desk}`."""
        return Parameter(parts[0][2:-1].strip(), position=_start(parts[0]))

    def jsonpath(self, parts: tuple[Token]) -> Node:
        """`$.a.b`, `$['odd name'][0]`."""
        return Identifier(_json_path(parts[0]), position=_start(parts[0]))

    def of_state(self, parts: tuple[Node, Token]) -> Node:
        """`/a OF PREVIOUS`, `/a OF CURRENT`."""
        name, words = parts
        assert isinstance(name, Identifier)
        state = words.split()[1].upper()
        return replace(name, of=state, of_position=_start(words))

    def qualified(self, parts: tuple[Token, Node]) -> Node:
        """`[topic]./a`, `[type].[topic]./a`."""
        words, name = parts
        assert isinstance(name, Identifier)
        *types, topic = [word.strip() for word in _QUALIFIER.findall(words)]
        return replace(name, topic=topic, message_type="".join(types), position=_start(words))

    def call(self, parts: list[Token | Node | None]) -> Node:
        """`NAME(arguments)`."""
        name, *arguments = parts
        assert isinstance(name, Token)
        given = [argument for argument in arguments if isinstance(argument, Node)]
        return called(str(name), given, _start(name))

    # Orders: `/px * /qty DESC, /id TEXT`.

    def order(self, terms: list[Term]) -> tuple[Term, ...]:
        """A whole order."""
        return tuple(terms)

    def term(self, parts: tuple[Node, Token | None, Token | None]) -> Term:
        """One value to sort by."""
        value, direction, text = parts
        return Term(value, direction is not None and direction.upper() == "DESC", text is not None)

    # Field constructions: `value AS /path HINT ...`.

    def field(self, parts: tuple[Node, Node, list[Token] | None]) -> Construction:
        """A whole construction."""
        value, target, hints = parts
        assert isinstance(target, Identifier)
        if target.path.index is not None:
            raise BadFilter(
                f"{target.path} has an index; a field is made at a path of names",
                position=target.position,
                expected="a path without an index",
            )
        return Construction(
            value, target.path, frozenset(str(hint).upper() for hint in hints or ())
        )

    def projected(self, parts: tuple[Node, Node | None, list[Token] | None]) -> Construction:
        """A field of a row: a whole construction, or a path that stays where it is."""
        value, target, hints = parts
        if target is None:
            target = value
            if not isinstance(target, Identifier):
                raise BadFilter(
                    f"{clipped(str(value))} has no place in the row; write {clipped(str(value))} "
                    "AS /name",
                    position=value.position,
                    expected="AS and a path behind it",
                )
        return self.field((value, target, hints))

    def hints(self, parts: list[Token]) -> list[Token]:
        """The words after HINT."""
        return parts


def _conditions(nodes: list[Node]) -> tuple[Node, ...]:
    return tuple([as_condition(node) for node in nodes])


def _affix(parts: tuple[Node, Token | None, *tuple[Node | Token, ...]], *, at_end: bool) -> Node:
    operand, negation, *members = parts
    affix = Affix(operand, _members(members), at_end, position=operand.position)
    return _unless(negation, affix)


def _members(parts: Sequence[Node | Token]) -> tuple[Node, ...]:
    """The members of a list: its nodes, or those of the one word that it is if all are literals."""
    if isinstance(parts[0], Token):
        return tuple(map(_literal, _LITERAL.finditer(parts[0]), repeat(_start(parts[0]))))
    return tuple([part for part in parts if isinstance(part, Node)])


def _literal(found: re.Match[str], start: int) -> Literal:
    """A literal of a list that begins at `start`."""
    text, position = found[0], start + found.start()
    match found.lastgroup:
        case "string":
            return Literal(_unescaped(text, position), position=position)
        case "raw":
            return Literal(text[2:-1], position=position)
        case "null":
            return Literal(None, position=position)
    factor = -1 if text[0] == "-" else 1
    number = as_number(text.lstrip("+- \t\r\n\f\v"))
    assert number is not None
    return Literal(number * factor, position=position)


def _json_path(token: Token) -> Path:
    """The path of a token that is one, by the grammar."""
    text, index = str(token), None
    if found := _INDEX.search(text):
        if len(found[1]) > INDEX_DIGITS_MAX:
            raise _bad_index(token)
        text, index = text[: found.start()], int(found[1])
    steps = [
        plain or _JSON_ESCAPE.sub(r"\1", quoted or other)
        for plain, quoted, other in _JSON_STEP.findall(text)
    ]
    return Path(tuple(steps), index)


def _path(token: Token) -> Path:
    try:
        return parse_path(token)
    except BadFilter:
        # The grammar has seen that it is a path: only its index can be too long.
        raise _bad_index(token) from None


def _bad_index(token: Token) -> BadFilter:
    position = _start(token) + token.rindex("[") + 1
    return BadFilter(
        f"the index of {shown(token)} is too large: it has more than {INDEX_DIGITS_MAX} digits",
        position=position,
        expected=f"an index of at most {INDEX_DIGITS_MAX} digits",
    )


def _unless(negation: Token | None, node: Node) -> Node:
    return node if negation is None else Not(node, position=node.position)


def _start(token: Token) -> int:
    return token.start_pos or 0


def _unescaped(token: str, position: int) -> str:
    """The text of a quoted string. Escapes name bytes, so ``\\xc3\\xa9`` is one letter."""
    if token.isascii() and "\\" not in token:
        return token[1:-1]
    try:
        return _ESCAPE.sub(_escaped_bytes, token[1:-1].encode()).decode()
    except UnicodeError:
        raise BadFilter(
            f"the string {clipped(token)} is not UTF-8 text; write \\xHH for the bytes of UTF-8",
            position=position,
            expected="UTF-8 text",
        ) from None


def _escaped_bytes(found: re.Match[bytes]) -> bytes:
    hexadecimal, octal, character = found.groups()
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    return _CONTROL.get(character, character)
