"""LIKE: regular expressions of linear time.

RE2 is the engine, so no pattern a client sends can stall the server. What RE2 cannot do
(back-references, look-around) is refused when the filter is compiled. A search is unanchored and
case-sensitive; numbers are searched as their decimal text. Patterns that are plain text, perhaps
anchored, are answered without the engine.
"""

import re
from collections.abc import Callable

import re2

from sow.errors import BadFilter, clipped, shown
from sow.expressions.compare import Outcome, any_of, as_text
from sow.paths import Scalar, Value

_BEYOND_RE2 = (
    (re.compile(r"\(\?<?[=!]"), "look-ahead and look-behind are not supported"),
    (re.compile(r"(?<!\\)(?:\\\\)*\\[1-9kg]"), "back-references are not supported"),
    (re.compile(r"[*+?}]\+|\(\?>"), "possessive and atomic groups are not supported"),
)


# ^text, text, text$ and ^text$, where nothing in the text means anything to a regular expression.
_PLAIN = re.compile(r"(?P<start>\^?)(?P<text>[\w \-:,;/@#%&=<>'\"!~`]+)(?P<end>\$?)\Z")

Search = Callable[[str], bool]


def searcher(pattern: str, position: int) -> Search:
    """Whether a text contains `pattern`; raises BadFilter at `position`."""
    if plain := _PLAIN.match(pattern):
        return _plain_searcher(plain["text"], bool(plain["start"]), bool(plain["end"]))
    options = re2.Options()
    options.log_errors = False
    try:
        # As bytes: for str the library would also compute character offsets, at thrice the cost.
        search = re2.compile(pattern.encode(), options).search
    except re2.error as error:
        raise BadFilter(
            f"LIKE pattern {shown(pattern)}: {clipped(_explain(pattern, error))}; "
            "patterns are regular expressions in RE2 syntax",
            position=position,
            expected="a regular expression in RE2 syntax",
        ) from None
    return lambda text: search(text.encode(errors="replace")) is not None


def _plain_searcher(plain: str, start: bool, end: bool) -> Search:
    match start, end:
        case True, True:
            return lambda text: text == plain
        case True, False:
            return lambda text: text.startswith(plain)
        case False, True:
            return lambda text: text.endswith(plain)
    return lambda text: plain in text


def like(search: Search) -> Callable[[Value], Outcome]:
    """The LIKE test of one pattern, for any value."""

    def scalar(value: Scalar) -> Outcome:
        if value is None or value == "":
            return None
        return search(as_text(value))

    def test(value: Value) -> Outcome:
        return any_of(map(scalar, value)) if isinstance(value, list) else scalar(value)

    return test


def _explain(pattern: str, error: Exception) -> str:
    for symptom, reason in _BEYOND_RE2:
        if symptom.search(pattern):
            return reason
    said = error.args[0] if error.args else "it cannot be compiled"
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
