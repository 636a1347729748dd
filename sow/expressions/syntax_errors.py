"""From a parser's complaint to one a person can act on.

Given the text, the character where reading stopped and the terminals that could have followed,
this finds the words: what AMPS has and this version does not is refused by name, common slips
from other languages get the spelling to use here, and the rest is told what was expected.
"""

import re
from collections.abc import Set

from sow.errors import BadFilter, ClientError, NotAvailable, clipped, shown

_NOT_BUILT = (
    (re.compile(r"[-+*%]|/(?=[\s(]|\Z)|MOD\b", re.I), "arithmetic {!r}"),
    (re.compile(r"(?:BEGINS|ENDS)\s+WITH\b", re.I), "{}"),
    (re.compile(r"NAN\b", re.I), "IS {}"),
    (re.compile(r"OF\s+(?:CURRENT|PREVIOUS)\b", re.I), "{}"),
    (re.compile(r"(?:AS|HINT)\b", re.I), "{}"),
    (re.compile(r"\[(?!/)[^\]]*\]"), "the topic qualifier {}"),
)

_SLIPS = (
    (re.compile(r"&&?"), "write AND"),
    (re.compile(r"\|\|?"), "write OR"),
    (re.compile(r"!"), "write NOT"),
    (re.compile(r"true\b", re.I), "write TRUE_VALUE()"),
    (re.compile(r"false\b", re.I), "write FALSE_VALUE()"),
    (re.compile(r"r?['\"]", re.I), "the string has no closing quote"),
    (re.compile(r"/(?=/)"), "a path has one '/' before each name, as in /order/id"),
    (re.compile(r"\$[.\[]"), "a filter names fields like /order/id"),
)

_WORD = re.compile(r"[^\W\d][\w./]*")
_SHOWN = re.compile(r"\w+|\S|\Z")

_STARTS_OF_A_VALUE = frozenset(
    ["PATH", "BRACKETED", "NUMBER", "STRING", "RAW", "NULL", "FUNCTION", "LPAR", "NOT"]
)
_OPERATORS = frozenset(["COMPARISON", "_BETWEEN", "_IN", "_LIKE", "_IS", "NOT"])
_HUMAN = {
    "PATH": "a path, a literal or '('",
    "COMPARISON": "an operator (= != < <= > >= IN, LIKE, BETWEEN, IS)",
    "LPAR": "'('",
    "NOT": "NOT",
    "NULL": "NULL",
    "_BETWEEN": "BETWEEN",
    "_IN": "IN",
    "_LIKE": "LIKE",
    "_AND": "AND",
    "_OR": "OR",
    "COMMA": "','",
    "RPAR": "')'",
    "$END": "the end of the filter",
}


def syntax_error(text: str, position: int, accepted: Set[str]) -> ClientError:
    """The error for `text`, which could not be read on at `position`.

    `accepted` names the terminals of the grammar that would have been understood there.
    """
    expected = in_words(accepted)
    for pattern, name in _NOT_BUILT:
        if found := pattern.match(text, position):
            named = clipped(" ".join(found[0].split()))
            return NotAvailable(
                f"{name.format(named)} is not available yet (position {position} of the filter)",
                position=position,
                expected=expected,
            )
    found = _SHOWN.search(text, position)
    what = shown(found[0]) if found and found[0] else "the end of the filter"
    hint = _hint(text, position, "PATH" in accepted)
    return BadFilter(
        f"{what} at position {position} is not understood: " + (hint or f"expected {expected}"),
        position=position,
        expected=expected,
    )


def _hint(text: str, position: int, value_wanted: bool) -> str:
    for pattern, advice in _SLIPS:
        if pattern.match(text, position):
            return advice
    word = _WORD.match(text, position)
    if value_wanted and word:
        path = clipped(word[0].replace(".", "/"))
        return f"it is not a path; write /{path}, or quote it as a string"
    return ""


def in_words(accepted: Set[str]) -> str:
    """What the terminals mean to a reader: "a path, a literal or '('", "AND or OR"."""
    left = set(accepted)
    if "PATH" in left:
        left = left - _STARTS_OF_A_VALUE | {"PATH"}
    if "COMPARISON" in left:
        left = left - _OPERATORS | {"COMPARISON"}
    words = [word for terminal, word in _HUMAN.items() if terminal in left]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
