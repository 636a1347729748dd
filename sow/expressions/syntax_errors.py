"""Turns a parser's error into one that a person can act on.

Given the text, the position where parsing stopped and the terminals that could have followed: what
AMPS has and this version lacks is refused by name, common slips from other languages get the
spelling to use here, and for the rest the message names what was expected.
"""

import re
from collections.abc import Set

from sow.errors import BadFilter, ClientError, clipped, shown

_SLIPS = (
    (re.compile(r"&&?"), "write AND"),
    (re.compile(r"\|\|"), "write OR between conditions, and CONCAT(a, b) for texts in a row"),
    (re.compile(r"\|"), "write OR"),
    (re.compile(r"!"), "write NOT"),
    (re.compile(r"true\b", re.I), "write TRUE_VALUE(), after = and not after IS"),
    (re.compile(r"false\b", re.I), "write FALSE_VALUE(), after = and not after IS"),
    (
        re.compile(
            r"""r'[^']*\Z|r"[^"]*\Z|'(?:[^'\\]++|\\.)*+\\?\Z|"(?:[^"\\]++|\\.)*+\\?\Z""",
            re.I | re.S,
        ),
        "the string has no closing quote",
    ),
    (re.compile(r"/(?=/)"), "a path has one '/' before each name, as in /order/id"),
    (re.compile(r"\$[.\[]"), "a path is written like /order/id or $.order.id"),
    (re.compile(r"(?:BEGINS|ENDS)\b", re.I), "write BEGINS WITH ('text') or ENDS WITH ('text')"),
    (re.compile(r"CONTAINS\b", re.I), "write INSTR(/name, 'text') != 0"),
    (re.compile(r"ILIKE\b", re.I), "write LIKE '(?i)pattern'"),
    (re.compile(r"(?:RLIKE|REGEXP|SIMILAR|GLOB|MATCH)\b", re.I), "write LIKE 'pattern'"),
    (re.compile(r"ESCAPE\b", re.I), "a pattern is a regular expression; write '\\.' for a dot"),
    (re.compile(r"STARTS?\b", re.I), "write BEGINS WITH ('text')"),
    (re.compile(r"CURRENT_TIMESTAMP\b", re.I), "write UNIX_TIMESTAMP()"),
    (re.compile(r"CURRENT_DATE\b", re.I), "write TODAY()"),
    (re.compile(r"`"), "write a name with odd characters as [/odd name]"),
    (re.compile(r"(?:AS|HINT)\b", re.I), "only a field that is made has AS and HINT"),
    (re.compile(r"CASE\b", re.I), "write IF(condition, then, otherwise)"),
)

_COUNT = re.compile(r"\bcount\s*\(\s*\Z", re.I)
_COUNT_CHARS = 32
"""Characters before the error that are looked at: a name, a parenthesis and some blanks."""
_COUNTED = (
    (re.compile(r"\*"), "write COUNT(1), which counts every record"),
    (re.compile(r"DISTINCT\b", re.I), "write COUNT_DISTINCT(/field)"),
)

_VALUE = re.compile(
    r"""r?'(?:[^'\\]++|\\.)*+'|r?"(?:[^"\\]++|\\.)*+"|[\w/$.+-][^\s,(){}]*""", re.I | re.S
)
"""A string, a number or a path."""
_WORD = re.compile(r"[^\W\d][\w./]*")
_SHOWN = re.compile(r"\w+|\S|\Z")

_STARTS_OF_A_VALUE = frozenset(
    [
        "PATH",
        "BRACKETED",
        "JSONPATH",
        "NUMBER",
        "STRING",
        "RAW",
        "NULL",
        "FUNCTION",
        "LPAR",
        "NOT",
        "PLUS",
        "MINUS",
    ]
)
_OPERATORS = frozenset(
    [
        "COMPARISON",
        "_BETWEEN",
        "_IN",
        "_LIKE",
        "_BEGINS",
        "_ENDS",
        "_IS",
        "NOT",
        "PLUS",
        "MINUS",
        "TIMES",
        "DIVIDE",
        "MODULO",
    ]
)
_HUMAN = {
    "PATH": "a path, a literal or '('",
    "COMPARISON": "an operator (= != < <= > >= + - * / % IN, LIKE, BETWEEN, BEGINS WITH, "
    "ENDS WITH, IS)",
    "LPAR": "'('",
    "NOT": "NOT",
    "NULL": "NULL",
    "_AS": "AS",
    "_HINT": "HINT",
    "HINT": "OPTIONAL or SET_CURRENT",
    "DIRECTION": "ASC or DESC",
    "TEXT": "TEXT",
    "_NAN": "NAN",
    "_BETWEEN": "BETWEEN",
    "_IN": "IN",
    "_LIKE": "LIKE",
    "_BEGINS": "BEGINS WITH",
    "_ENDS": "ENDS WITH",
    "_AND": "AND",
    "_OR": "OR",
    "COMMA": "','",
    "RPAR": "')'",
    "$END": "the end of the {}",
}


def syntax_error(text: str, position: int, accepted: Set[str], kind: str = "filter") -> ClientError:
    """The error for `text`, which could not be read on at `position`.

    `accepted` names the terminals of the grammar that would have been understood there, `kind` what
    the text is.
    """
    expected = in_words(accepted, kind)
    found = _SHOWN.search(text, position)
    what = shown(found[0]) if found and found[0] else f"the end of the {kind}"
    hint = _hint(text, position, accepted)
    return BadFilter(
        f"{what} at position {position} is not understood: " + (hint or f"expected {expected}"),
        position=position,
        expected=expected,
    )


def _hint(text: str, position: int, accepted: Set[str]) -> str:
    if _COUNT.search(text, max(0, position - _COUNT_CHARS), position):
        for pattern, advice in _COUNTED:
            if pattern.match(text, position):
                return advice
    for pattern, advice in _SLIPS:
        if pattern.match(text, position):
            return advice
    value_wanted = "PATH" in accepted
    if "LITERALS" in accepted and not value_wanted and (value := _VALUE.match(text, position)):
        return f"IN, BEGINS WITH and ENDS WITH take parentheses; write ({clipped(value[0])})"
    word = _WORD.match(text, position)
    if value_wanted and word:
        path = clipped(word[0].replace(".", "/"))
        return f"it is not a path; write /{path}, or quote it as a string"
    return ""


def in_words(accepted: Set[str], kind: str = "filter") -> str:
    """The terminals in a reader's words: "a path, a literal or '('", "AND or OR"."""
    left = set(accepted)
    if "LITERALS" in left:
        left.add("LPAR")
    if "PATH" in left:
        left = left - _STARTS_OF_A_VALUE | {"PATH"}
    if "COMPARISON" in left:
        left = left - _OPERATORS | {"COMPARISON"}
    words = [word.format(kind) for terminal, word in _HUMAN.items() if terminal in left]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
