"""A second, slow reading of expressions: plain three-valued rules, straight from the reference.

Shares nothing with the product but the nodes, so that the two can be held against each other.
"""

import math
import re
from itertools import product

from sow.expressions import And, Between, Compare, In, IsNull, Like, Literal, Node, Not, Or
from sow.paths import Path, Value

Record = dict[Path, Value]


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
    raise TypeError(node)


def or_all(outcomes: list[bool | None]) -> bool | None:
    if True in outcomes:
        return True
    return None if None in outcomes or not outcomes else False


def negation(outcome: bool | None) -> bool | None:
    return None if outcome is None else not outcome


def values(node: Node, record: Record) -> list:
    value = node.value if isinstance(node, Literal) else record[node.path]
    return value if isinstance(value, list) else [value]


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


def rank(value: object) -> tuple[int, float]:
    try:
        return 0, float(value)
    except ValueError:
        return 1, 0.0
