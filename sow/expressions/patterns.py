"""Patterns: regular expressions of linear time, of LIKE and of names of topics.

RE2 is the engine, so a search takes a time that is linear in the text; at worst it is the text's
length times that of the program which the pattern becomes, so programs are bounded too. What RE2
cannot do (back-references, look-around) is refused when the filter is compiled. A search is
unanchored and case-sensitive; numbers are searched as their decimal text. Patterns that are plain
text, perhaps anchored, are answered without the engine.

RE2 reads a text with an automaton that creates its states lazily and caches them: most patterns
have few. A pattern that must remember its progress at each of the last characters has as many
states as these have combinations, `a[ab]{20}c` a million; then nearly every character creates a
state, from each step of the pattern's program. So its cost is the number of *free positions*: those
that match more than one character, or are counted. Few of them mean few states, also in a set with
hundreds of other patterns.

Names of topics are patterns, too, searched for in the same way. A name is taken for one when it
holds a character that means something to a regular expression; the caller first checks whether a
topic of exactly that name exists. The format of copies' names has the name of the underlying topic
in the place of each ``%n``, and is read in both directions.
"""

import re
import sys
from collections.abc import Callable

import re2

from sow.core.cache import clear_at_sweeps, kept
from sow.core.paths import Scalar, Value
from sow.errors import BadFilter, ClientError, TooLarge, clipped, shown
from sow.expressions.values import Outcome, any_of, as_text

clear_at_sweeps(re2.purge)  # the library keeps a hundred of the last patterns

_BEYOND_RE2 = (
    (re.compile(r"\(\?<?[=!]"), "look-ahead and look-behind are not supported"),
    (re.compile(r"(?<!\\)(?:\\\\)*\\[1-9kg]"), "back-references are not supported"),
    (re.compile(r"[*+?}]\+|\(\?>"), "possessive and atomic groups are not supported"),
)


# ^text, text, text$ and ^text$, where nothing in the text means anything to a regular expression.
_PLAIN = re.compile(r"(?P<start>\^?)(?P<text>[\w \-:,;/@#%&=<>'\"!~`]+)(?P<end>\$?)\Z")

Search = Callable[[str], bool]
SCAN_STEPS = 100
"""The cost of a search for plain text, anywhere in a text: it takes less than a step of a
program for each character, but in texts of any length. A hundred in one of 1 MiB take 60 ms."""
STEPS_MAX = 10_000
"""Steps in the programs of all patterns of a filter: at worst 10 us for each character searched."""
ENGINE_BYTES_MAX = 1024**2
"""Memory of RE2 for a pattern; it creates states lazily, and caches them."""
ENGINE_BYTES_SHORT = 64 * 1024
"""The same for short ones: enough for the states of those that have few; of others it gives up
making some sooner, and searches without, three to six times as fast."""
SHORT_STEPS_MAX = 500
"""Steps of a program that is short."""
PATTERN_CHARS_MAX = 2048
"""Length of a pattern: RE2 compiles a longer one for tens of milliseconds, 25,000 times `a?` for a
second, before it reports the size of its program."""
UNICODE_CLASS_CHARS = 100
r"""The cost of a class such as \pL, which expands to hundreds of ranges."""
_UNICODE_CLASS = re.compile(r"\\[pP]")


def searcher(pattern: str, position: int) -> Search:
    """Whether a text contains `pattern`; raises BadFilter or TooLarge at `position`."""
    return Patterns().search(pattern, position)


class Patterns:
    """The patterns of one filter, each made once."""

    def __init__(self) -> None:
        self._searches: dict[str, Search] = {}
        self._steps = 0

    def search(self, pattern: str, position: int) -> Search:
        """Whether a text contains `pattern`; raises BadFilter or TooLarge at `position`."""
        found = self._searches.get(pattern)
        if found is None:
            found, steps = _compile(pattern, position)
            self._count(f"LIKE pattern {shown(pattern)}", steps, position)
            self._searches[pattern] = found
        return found

    def scan(self, name: str, position: int) -> None:
        """A call of the function `name` looks for plain text; raises TooLarge at `position`."""
        self._count(name, SCAN_STEPS, position)

    def _count(self, what: str, steps: int, position: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise _too_long(what, self._steps, position)


def _too_long(what: str, steps: int, position: int) -> TooLarge:
    return TooLarge(
        f"{what}: with it the patterns have {steps} steps, where plain text counts for "
        f"{SCAN_STEPS}, and the limit is {STEPS_MAX}; write fewer, smaller numbers in braces, or "
        "one pattern for several texts: 'one|another'",
        position=position,
        expected=f"patterns of at most {STEPS_MAX} steps",
    )


def is_plain(pattern: str) -> bool:
    """Whether a pattern is text that is looked for as it is, without the engine."""
    return _PLAIN.match(pattern) is not None


def steps_of(pattern: str) -> int:
    """The approximate size of a pattern's program; raises BadFilter."""
    return len(pattern) if is_plain(pattern) else _compile(pattern, 0)[1]


def engine_options(bytes_max: int) -> re2.Options:
    """The options of patterns, with the memory for one program."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = bytes_max
    # The text of a group is never used, and thousands of groups would take seconds to capture.
    options.never_capture = True
    return options


def _compile(pattern: str, position: int) -> tuple[Search, int]:
    """The search for a pattern, and how many steps its program has."""
    if plain := _PLAIN.match(pattern):
        start, end = bool(plain["start"]), bool(plain["end"])
        return _plain_searcher(plain["text"], start, end), 0 if start or end else SCAN_STEPS
    chars = len(pattern) + UNICODE_CLASS_CHARS * len(_UNICODE_CLASS.findall(pattern))
    if chars > PATTERN_CHARS_MAX:
        raise TooLarge(
            f"LIKE pattern {shown(pattern)}: it has {chars} characters, where a class such as "
            f"\\pL counts as {UNICODE_CLASS_CHARS}, and the limit is {PATTERN_CHARS_MAX}; "
            "write it shorter, or several",
            position=position,
            expected=f"a pattern of at most {PATTERN_CHARS_MAX} characters",
        )
    try:
        # As bytes: for str the library would also compute character offsets, at thrice the cost.
        encoded = pattern.encode(errors="replace")
        compiled = re2.compile(encoded, engine_options(ENGINE_BYTES_MAX))
        if compiled.programsize <= SHORT_STEPS_MAX:
            compiled = re2.compile(encoded, engine_options(ENGINE_BYTES_SHORT))
    except re2.error as error:
        raise BadFilter(
            f"LIKE pattern {shown(pattern)}: {clipped(_explain(pattern, error))}; "
            "patterns are regular expressions in RE2 syntax",
            position=position,
            expected="a regular expression in RE2 syntax",
        ) from None
    search = compiled.search
    return lambda text: search(text.encode(errors="replace")) is not None, compiled.programsize


def _plain_searcher(plain: str, start: bool, end: bool) -> Search:
    match start, end:
        case True, True:
            return lambda text: text == plain
        case True, False:
            return lambda text: text.startswith(plain)
        case False, True:
            return lambda text: text.endswith(plain)
    return lambda text: plain in text


def like(search: Search, chars_max: int) -> Callable[[Value], Outcome]:
    """The LIKE test of one pattern, for any value; unknown of texts of more than `chars_max`."""

    def scalar(value: Scalar) -> Outcome:
        if value is None or value == "":
            return None
        text = as_text(value)
        return search(text) if len(text) <= chars_max else None

    def test(value: Value) -> Outcome:
        return any_of(map(scalar, value)) if isinstance(value, list) else scalar(value)

    return test


def _explain(pattern: str, error: Exception) -> str:
    for symptom, reason in _BEYOND_RE2:
        if symptom.search(pattern):
            return reason
    detail = error.args[0] if error.args else "it cannot be compiled"
    return detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)


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


# Names of topics.

METACHARACTERS = frozenset("^$.*+?()[]{}|\\")


def is_pattern(name: str) -> bool:
    """Whether a name may be meant as a pattern."""
    return not METACHARACTERS.isdisjoint(name)


def is_meant_as_pattern(name: str) -> bool:
    """Whether a name was probably meant as one: it has metacharacters other than dots."""
    return not METACHARACTERS.isdisjoint(name.replace(".", ""))


def topic_search(pattern: str) -> Search:
    """Whether a topic's name matches; raises ClientError."""
    try:
        return searcher(pattern, 0)
    except BadFilter as error:
        detail = error.detail.removeprefix("LIKE ")
        raise ClientError(f"topic {detail}", reason="bad regex topic") from None
    except TooLarge as error:
        raise TooLarge(f"topic {error.detail.removeprefix('LIKE ')}") from None


def copy_name(topic_format: str, underlying: str) -> str:
    """What the copy of a topic is called: the format, with the topic's name for each %n."""
    return topic_format.replace("%n", underlying)


def copy_ends(topic_format: str) -> tuple[str, str]:
    """How the names of all copies begin and end."""
    parts = topic_format.split("%n")
    return parts[0], parts[-1]


def copied_from(topic_format: str, copy: str) -> str | None:
    """The topic whose copy has the name `copy` by this format; None if no copy has it."""
    parts = topic_format.split("%n")
    left, times = len(copy) - sum(map(len, parts)), len(parts) - 1
    start = len(parts[0])
    source = copy[start : start + left // times]
    return source if source and copy_name(topic_format, source) == copy else None
