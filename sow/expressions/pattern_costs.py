"""Pattern costs: the worst case of a search for a regular expression.

RE2 reads a text with an automaton that creates its states lazily and caches them: most patterns
have few. A pattern that must remember its progress at each of the last characters has as many
states as these have combinations, `a[ab]{20}c` a million; then nearly every character creates a
state, from each step of the pattern's program. So the cost is the number of *free positions*: those
that match more than one character, or are counted. Few of them mean few states, also in a set with
hundreds of other patterns.
"""

import re
import sys

from sow.core.cache import kept
from sow.expressions.patterns import is_plain, steps_of

FREE_MAX = 8
"""Free positions that a simple pattern has at most: 256 states of a thousand bytes."""
SLOW_FACTOR = 20
"""A step of a pattern that is not simple counts for so many: at worst it takes 5 to 10 ns for each
character searched, and one of the others next to nothing."""
SEARCHED_CHARS_MAX = 64 * 1024
"""Length of a text in which a pattern is searched: some 65 us, and a filter may have 500 patterns.
LIKE of a longer text is unknown; INSTR, and patterns that are plain text, have no such limit."""
SLOWLY_SEARCHED_CHARS_MAX = 4096
"""The same for a pattern that is not simple."""
SLOW_STEPS_MAX = 1000
"""Steps of all patterns of a filter that are not simple: 40 ms for the longest text, at worst."""
ENDLESS = 1_000_000
"""More free positions than any pattern has that is short enough to be made."""
_TOKEN = re.compile(
    r"(?P<free>\\p\{[^}]*\}|\\[pP].|\\[dDsSwWC]|\[\^?\]?(?:\\.|\[:[^]]*:\]|[^]\\])*\]|\.)"
    r"|(?P<open>\((?:\?[^():]*:|\?P?<\w*>)?)|(?P<close>\))|(?P<arm>\|)"
    r"|\{(?P<least>\d+)(?P<range>,(?P<most>\d*))?\}|(?P<many>[*+?])|(?P<plain>\\?.)",
    re.DOTALL | re.IGNORECASE,
)


def free_positions(pattern: str) -> int:
    """The approximate number of free positions, each as often as it is repeated."""
    # By level of brackets: what was counted of it, and its last part, which may be repeated.
    levels = [[0, 0]]
    for token in _TOKEN.finditer(pattern):
        level = levels[-1]
        if token["open"]:
            levels.append([0, 0])
        elif token["close"]:
            inner = levels.pop() if len(levels) > 1 else [0, 0]
            _add(levels[-1], sum(inner))
        elif token["least"]:
            level[1] = min(max(1, level[1]) * max(int(token["most"] or token["least"]), 1), ENDLESS)
        elif token["free"] or token["plain"]:
            _add(level, 1 if token["free"] else 0)
        elif token["arm"] and len(levels) > 1 and not sum(level):
            _add(level, 1)  # a choice, which may be repeated
    return min(sum(map(sum, levels)), ENDLESS)


def _add(level: list[int], free: int) -> None:
    level[0], level[1] = min(level[0] + level[1], ENDLESS), free


@kept(4096)
def is_simple(pattern: str) -> bool:
    """Whether a search takes a time that depends on the text alone, once its states are made."""
    return free_positions(pattern) <= FREE_MAX


def search_cost(pattern: str) -> int:
    """The cost of a search for each character, in steps of simple programs."""
    return steps_of(pattern) * (1 if is_simple(pattern) else SLOW_FACTOR)


def searched_chars_max(pattern: str) -> int:
    """The longest text in which a pattern is searched."""
    if is_plain(pattern):
        return sys.maxsize
    return SEARCHED_CHARS_MAX if is_simple(pattern) else SLOWLY_SEARCHED_CHARS_MAX


def slow_steps(pattern: str) -> int:
    """The number of a pattern's steps that are not simple."""
    return 0 if is_simple(pattern) else steps_of(pattern)
