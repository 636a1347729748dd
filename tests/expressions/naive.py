"""A second, slow reading of expressions: plain three-valued rules, straight from the reference.

Shares nothing with the product but the nodes, so that the two can be held against each other.
"""

import math
import re
from fractions import Fraction
from itertools import product

from sow.core.paths import Path, Value
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
    MessageTrait,
    Node,
    Not,
    Or,
    Trait,
)

Record = dict[Path | Trait, Value]


def truth(node: Node, record: Record) -> bool | None:
    match node:
        case And(operands):
            return negation(or_all([negation(truth(operand, record)) for operand in operands]))
        case Or(operands):
            return or_all([truth(operand, record) for operand in operands])
        case Not(operand):
            return negation(truth(operand, record))
        case Compare(operator, left, right):
            pairs = product(values(left, record), values(right, record))
            return or_all([holds(operator, a, b) for a, b in pairs])
        case In(operand, members):
            return or_all([truth(Compare("=", operand, member), record) for member in members])
        case Between(operand, low, high):
            triples = product(*[values(part, record) for part in (operand, low, high)])
            return or_all([within(*triple) for triple in triples])
        case Like(operand, pattern):
            return or_all([found(pattern.value, value) for value in values(operand, record)])
        case IsNull(operand):
            return all(value in (None, "") for value in values(operand, record))
        case IsNan(operand):
            return any(value != value for value in values(operand, record))
        case Affix(operand, members, at_end):
            affixes = [value for member in members for value in values(member, record)]
            pairs = product(values(operand, record), affixes)
            return or_all([borders(a, b, at_end) for a, b in pairs])
    raise TypeError(node)


def or_all(outcomes: list[bool | None]) -> bool | None:
    if True in outcomes:
        return True
    return None if None in outcomes or not outcomes else False


def negation(outcome: bool | None) -> bool | None:
    return None if outcome is None else not outcome


def values(node: Node, record: Record) -> list:
    value = value_of(node, record)
    return value if isinstance(value, list) else [value]


def value_of(node: Node, record: Record) -> Value:
    match node:
        case Literal(value):
            return value
        case Identifier(source) | MessageTrait(source):
            return record[source]
        case Arithmetic(operator, left, right):
            return calculated(operator, scalar(left, record), scalar(right, record))
        case Call("IF", (condition, then, otherwise)):
            holds_here = truth(as_test(condition), record)
            return value_of(then if holds_here else otherwise, record)
        case Call("COALESCE", arguments):
            found = [scalar(argument, record) for argument in arguments]
            return next((value for value in found if value is not None), None)
        case Call("ABS", (one,)):
            number = as_number(scalar(one, record))
            return None if number is None else -number if number < 0 else number
        case Call("CONCAT", arguments):
            return "".join(as_text(scalar(argument, record)) for argument in arguments)
        case Call("LENGTH", (one,)):
            text = as_text(scalar(one, record))
            return len(bytes(text, "utf-8")) if text else None
        case Call("ARRAY_COUNT", (one,)):
            return len([value for value in values(one, record) if value not in (None, "")])
    return truth(node, record)


def as_test(node: Node) -> Node:
    is_value = isinstance(node, Literal | Identifier | MessageTrait | Arithmetic | Call)
    return Compare("!=", node, Literal(0)) if is_value else node


def scalar(node: Node, record: Record) -> object:
    value = values(node, record)
    return value[0] if value and value[0] != "" else None


def as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value + 0)


def as_number(value: object) -> int | float | None:
    if not isinstance(value, str):
        return None if value is None else value + 0
    for kind in (int, float):
        try:
            # Python knows more spellings of numbers than the language: "1_0", "inf", blanks.
            return kind(value) if re.fullmatch(r"[-+0-9.eE]+", value) else None
        except ValueError:
            pass
    return None


def calculated(operator: str, left: object, right: object) -> int | float | None:
    a, b = as_number(left), as_number(right)
    if a is None or b is None:
        return None
    if any(isinstance(number, float) and not math.isfinite(number) for number in (a, b)):
        return with_infinity(operator, float(a), float(b))
    if isinstance(a, float) or isinstance(b, float):
        if operator in "/%" and not b:
            return math.nan
        exact = math.fmod(a, b) if operator == "%" else eval(f"a {operator} b", {"a": a, "b": b})
        return float(exact)
    if operator in "/%":
        if not b:
            return None
        quotient = math.floor(Fraction(abs(a), abs(b))) * (1 if a * b > 0 else -1)
        return quotient if operator == "/" else a - quotient * b
    return eval(f"a {operator} b", {"a": a, "b": b})


def with_infinity(operator: str, a: float, b: float) -> float:
    if operator == "%":
        return math.nan if math.isnan(b) or not math.isfinite(a) or not b else a
    if operator == "/" and not b:
        return math.nan
    return eval(f"a {operator} b", {"a": a, "b": b})


def borders(value: object, affix: object, at_end: bool) -> bool | None:
    if value in (None, "") or affix in (None, ""):
        return None
    text, part = as_text(value), as_text(affix)
    return part == (text[-len(part) :] if at_end else text[: len(part)])


def within(value: object, low: object, high: object) -> bool | None:
    above, below = holds(">=", value, low), holds("<=", value, high)
    return negation(or_all([negation(above), negation(below)]))


def found(pattern: str, value: object) -> bool | None:
    if value in (None, ""):
        return None
    # Adding 0 makes True 1 and -0.0 0.0.
    text = value if isinstance(value, str) else str(value + 0)
    return re.search(pattern, text) is not None


def holds(operator: str, a: object, b: object) -> bool | None:
    if a in (None, "") or b in (None, ""):
        return None
    if any(isinstance(value, float) and math.isnan(value) for value in (a, b)):
        return False
    if not (isinstance(a, str) and isinstance(b, str)):
        a, b = rank(a), rank(b)
    order = (a > b) - (a < b)
    signs = {"=": [0], "!=": [-1, 1], "<": [-1], "<=": [-1, 0], ">": [1], ">=": [0, 1]}
    return order in signs[operator]


def rank(value: object) -> tuple[int, int | float]:
    # Not as doubles: whole numbers compare exactly.
    number = as_number(value)
    return (1, 0) if number is None else (0, number)
