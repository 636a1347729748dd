"""What each rule of the grammar becomes: one method a rule, called while the text is read.

Here synonyms disappear (``==``, ``<>``, ``NOT IN``), string escapes are resolved, and a value
that stands where a condition should, such as ``/active AND ...``, becomes "differs from 0".
"""

import re

from lark import Token, Transformer

from sow.errors import BadFilter, NotAvailable, clipped, shown
from sow.expressions.compare import as_number
from sow.expressions.functions import constant_value
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
)
from sow.paths import INDEX_DIGITS_MAX, Path, parse_path

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.S)
_CONTROL = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"f": b"\f", b"r": b"\r"}


class Builder(Transformer[Token, Node]):
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
        return Compare(canonical, _value(left), _value(right), position=left.position)

    def between(self, parts: tuple[Node, Token | None, Node, Node]) -> Node:
        """`a [NOT] BETWEEN low AND high`."""
        operand, negation, low, high = parts
        at = operand.position
        return _unless(negation, Between(_value(operand), _value(low), _value(high), position=at))

    def member(self, parts: tuple[Node, Token | None, *tuple[Node, ...]]) -> Node:
        """`a [NOT] IN (b, c)`."""
        operand, negation, *members = parts
        values = tuple([_value(member) for member in members])
        return _unless(negation, In(_value(operand), values, position=operand.position))

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
        return _unless(negation, Like(_value(operand), pattern, position=operand.position))

    def is_null(self, parts: tuple[Node, Token | None, Token]) -> Node:
        """`a IS [NOT] NULL`."""
        operand, negation, _ = parts
        return _unless(negation, IsNull(_value(operand), position=operand.position))

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
        return Literal(_unescaped(parts[0]), position=_start(parts[0]))

    def raw(self, parts: tuple[Token]) -> Node:
        """`r'text'`, in which a backslash is a backslash."""
        return Literal(parts[0][2:-1], position=_start(parts[0]))

    def null(self, parts: tuple[Token]) -> Node:
        """`NULL`."""
        return Literal(None, position=_start(parts[0]))

    def call(self, parts: list[Token | Node | None]) -> Node:
        """`NAME(arguments)`."""
        name, *arguments = parts
        assert isinstance(name, Token)
        count = sum(argument is not None for argument in arguments)
        return Literal(constant_value(str(name), count, _start(name)), position=_start(name))


def as_condition(node: Node) -> Node:
    """The node itself, or for a value the condition that it is neither 0 nor NULL."""
    if isinstance(node, Identifier | Literal):
        return Compare("!=", node, Literal(0, position=node.position), position=node.position)
    return node


def _conditions(nodes: list[Node]) -> tuple[Node, ...]:
    return tuple([as_condition(node) for node in nodes])


def _value(node: Node) -> Operand:
    if isinstance(node, Identifier | Literal):
        return node
    raise NotAvailable(
        f"a condition as a value (position {node.position} of the filter) is not available yet; "
        "combine conditions with AND, OR and NOT",
        position=node.position,
        expected="a path or a literal",
    )


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


def _unescaped(token: Token) -> str:
    """The text of a quoted string. Escapes name bytes, so ``\\xc3\\xa9`` is one letter."""
    try:
        return _ESCAPE.sub(_escaped_bytes, token[1:-1].encode()).decode()
    except UnicodeError:
        raise BadFilter(
            f"the string {clipped(token)} is not UTF-8 text; write \\xHH for the bytes of UTF-8",
            position=_start(token),
            expected="UTF-8 text",
        ) from None


def _escaped_bytes(found: re.Match[bytes]) -> bytes:
    hexadecimal, octal, character = found.groups()
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    return _CONTROL.get(character, character)
