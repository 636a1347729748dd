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

Pattern sets find which of many regular expressions match a text. RE2 compiles many patterns into
one automaton, which reads a text once however many there are. Compiling takes some 5 us a pattern,
so there are several sets of moderate size. New patterns go into a small one, which is compiled
again at the first text after a change; when it is full they move to a large one. Removed patterns
are filtered from results, and the few that are left of a large set move to the small one again.

An automaton that exceeds its memory gives no result. A sentinel pattern that matches every text
detects that; all patterns of the set are then returned, so a result may contain patterns that do
not match, and never lacks one that does.

Patterns of plain characters have few states together: how much of one of them was just read. With
*restless* ones, which have a free part such as `.*`, the automaton tracks all that have begun, and
creates a new state at nearly every character of a text. They have sets of their own, and are not
searched together in texts of more than `RESTLESS_CHARS_MAX`.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator

import re2

from sow.core.containers import clear_at_sweeps, kept
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


SMALL_SET_MAX = 64
"""Patterns of the small set: a third of a millisecond to make."""
LARGE_SET_MAX = 512
"""Patterns of a large set, which is made again whenever as many as gather have come: 2 to 4 ms to
make, and a microsecond for each text."""
EVERYWHERE = ""
"""A pattern that matches every text; clients cannot use it."""
SET_STEPS_MAX = 16_000
"""Steps in the programs of a set from which on it takes no more."""
SUITED_STEPS_MAX = 500
"""Size of a pattern's program; longer ones may take milliseconds to compile."""
SET_BYTES_MAX = 4 * 1024**2
"""Memory of RE2 for a set; it creates states lazily, and caches them."""
RESTLESS_CHARS_MAX = 32
"""Length of a text in which restless patterns are searched together: symbols and accounts are not
longer. Ten thousand patterns create states at 20 to 40 ns a pattern and character, a third of a
second for a thousand characters, while each one by itself reads these in two microseconds."""
KNOWN_PART = 8
"""Texts whose matches are cached, for each pattern: values of fields repeat, and the cache is a
small multiple of the patterns."""
KNOWN_CHARS_MAX = 64
"""Texts that are longer are seldom the same."""
KNOWN_FOUND_MAX = 16
"""Patterns that may be remembered of one text."""


_steps_of = kept(1024)(steps_of)


def suits_a_set(pattern: str) -> bool:
    """Whether a pattern is short and simple enough to share an automaton with others, in which it
    would keep all of them waiting."""
    if len(pattern) > SUITED_STEPS_MAX or not is_simple(pattern):
        return False
    return _steps_of(pattern) <= SUITED_STEPS_MAX


@kept(4096)
def is_restless(pattern: str) -> bool:
    """Whether an automaton of many such patterns would make states all the time."""
    return free_positions(pattern) > 0


class PatternSets:
    """Distinct patterns that suit a set, and the automata that look for them."""

    def __init__(self) -> None:
        self._gathering = PatternSet()
        self._growing = PatternSet()
        """The large set that takes what has gathered."""
        self._sets: dict[PatternSet, None] = {}
        """All large sets that have patterns."""
        self._homes: dict[str, PatternSet] = {}
        self._known: dict[str, list[str]] = {}
        """The matches of texts since the patterns last changed; read-only."""

    def __len__(self) -> int:
        return len(self._homes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def add(self, pattern: str) -> None:
        """Look for one pattern more."""
        self._known = {}
        self._move((pattern,), self._gathering)
        if not self._gathering.has_room(SMALL_SET_MAX):
            if not self._growing.has_room(LARGE_SET_MAX):
                self._growing = PatternSet()
            self._sets[self._growing] = None
            self._move(self._gathering.patterns, self._growing)
            self._growing.make()
            self._gathering = PatternSet()

    def _move(self, patterns: Iterable[str], home: "PatternSet") -> None:
        for pattern in patterns:
            home.add(pattern)
            self._homes[pattern] = home

    def remove(self, pattern: str) -> None:
        """Do not look for a pattern any more."""
        self._known = {}
        home = self._homes.pop(pattern)
        home.remove(pattern)
        if home in self._sets and home.is_sparse:
            del self._sets[home]
            if home is self._growing:
                self._growing = PatternSet()
            for other in home.patterns:
                self.add(other)

    def found_in(self, text: str) -> list[str]:
        """The patterns that may be found in a text, and all that are; only to be looked at."""
        found = self._known.get(text)
        if found is None:
            found = self._looked_for_in(text)
            if len(text) <= KNOWN_CHARS_MAX and len(found) <= KNOWN_FOUND_MAX:
                if len(self._known) >= KNOWN_PART * len(self._homes):
                    self._known = {}
                self._known[text] = found
        return found

    def _looked_for_in(self, text: str) -> list[str]:
        encoded = text.encode(errors="replace")
        if not self._gathering.is_made:
            self._gathering.make()
        found = self._gathering.found_in(encoded)
        for one in self._sets:
            found += one.found_in(encoded)
        return found

    def check(self) -> None:
        """Assert that each pattern is looked for in one set."""
        every = [*self._sets, self._gathering]
        homes = [(pattern, one) for one in every for pattern in one.patterns]
        assert dict(homes) == self._homes
        assert len(homes) == len(self._homes)
        assert all(one.is_made and not one.is_sparse for one in self._sets)


class PatternSet:
    """Some patterns with one automaton."""

    def __init__(self) -> None:
        self.patterns: dict[str, None] = {}
        self.is_made = False
        """The automaton looks for all patterns."""
        self._made: list[str] = []
        """The patterns of the automaton: first the one that is found in every text, and among the
        others those that were taken out since."""
        self._automaton: re2.Set | None = None
        self._steps = 0

    def has_room(self, patterns_max: int) -> bool:
        """Whether it may take more, being of this size."""
        return len(self.patterns) < patterns_max and self._steps < SET_STEPS_MAX

    @property
    def is_sparse(self) -> bool:
        """Most of what it looks for is not wanted any more, and the rest does not take long to look
        for elsewhere."""
        return 8 * len(self.patterns) < len(self._made)

    def add(self, pattern: str) -> None:
        """Look for one pattern more, once it is made."""
        self.patterns[pattern] = None
        self._steps += _steps_of(pattern)
        self.is_made = False

    def remove(self, pattern: str) -> None:
        """Do not look for a pattern any more."""
        del self.patterns[pattern]
        self._steps -= _steps_of(pattern)

    def make(self) -> None:
        """Make the automaton of the patterns there are."""
        self._made = [EVERYWHERE, *self.patterns]
        self._automaton = _automaton(self._made) if self.patterns else None
        self.is_made = True

    def found_in(self, text: bytes) -> list[str]:
        """The patterns that may match a text; all of them if the automaton fails."""
        found = None if self._automaton is None else self._automaton.Match(text)
        if found is None:
            return list(self.patterns)
        if len(found) == 1:  # only EVERYWHERE
            return []
        made, patterns = self._made, self.patterns
        return [pattern for at in found if (pattern := made[at]) in patterns]


def _automaton(patterns: list[str]) -> re2.Set | None:
    """An automaton that gives the places of the patterns it finds; None if it would take too
    much."""
    automaton = re2.Set.SearchSet(engine_options(SET_BYTES_MAX))
    try:
        for pattern in patterns:
            automaton.Add(pattern.encode(errors="replace"))
        automaton.Compile()
    except re2.error:
        return None
    return automaton
