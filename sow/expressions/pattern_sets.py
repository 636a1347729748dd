"""Pattern sets: which of many regular expressions match a text.

RE2 compiles many patterns into one automaton, which reads a text once however many there are.
Compiling takes some 5 us a pattern, so there are several sets of moderate size. New patterns go
into a small one, which is compiled again at the first text after a change; when it is full they
move to a large one. Removed patterns are filtered from results, and the few that are left of a
large set move to the small one again.

An automaton that exceeds its memory gives no result. A sentinel pattern that matches every text
detects that; all patterns of the set are then returned, so a result may contain patterns that do
not match, and never lacks one that does.

Patterns of plain characters have few states together: how much of one of them was just read. With
*restless* ones, which have a free part such as `.*`, the automaton tracks all that have begun, and
creates a new state at nearly every character of a text. They have sets of their own, and are not
searched together in texts of more than `RESTLESS_CHARS_MAX`.
"""

from collections.abc import Iterable, Iterator

import re2

from sow.core.cache import kept
from sow.expressions.patterns import engine_options, free_positions, is_simple, steps_of

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
