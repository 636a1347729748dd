"""The fields that are extracted from every message of a topic as it comes.

The keys are always extracted, and the fields that indexes and the filters of subscriptions and
conflated topics use, each field as long as one of them uses it. Topics with nothing but keys, as
most of a pattern are, share their state. How fields are extracted is up to the message types.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from sow.core.paths import Path
from sow.errors import TooLarge
from sow.expressions import Filter

WATCHED_MAX = 1024
"""Fields that filters of subscriptions may have extracted from every message: some two microseconds
each for a batch, which all publishers pay for."""
NOTHING_WATCHED: Counter[Path] = Counter()
"""Shared by all topics without extracted fields beside the keys, and never added to."""


class ExtractedFields:
    """The fields that are extracted from a topic's messages: `keys`, and those that were added."""

    __slots__ = ("_counts", "_keys", "paths")

    def __init__(self, keys: tuple[Path, ...]) -> None:
        self._keys = keys
        self._counts = NOTHING_WATCHED
        self.paths = keys
        """All extracted fields. A thread may be reading, so they are replaced, never changed."""

    def add(self, paths: Iterable[Path]) -> None:
        """Extract these fields of every message as it comes in, because a filter or index needs
        them."""
        if self._counts is NOTHING_WATCHED:
            self._counts = Counter()
        for path in paths:
            if path not in self._counts and path not in self._keys:
                # Not rebuilt from scratch: there may be a thousand.
                self.paths += (path,)
            self._counts[path] += 1

    def remove(self, paths: Iterable[Path]) -> None:
        """Undo one `add` of the same paths."""
        known = len(self._counts)
        for path in paths:
            self._counts[path] -= 1
            if not self._counts[path]:
                del self._counts[path]
        if len(self._counts) < known:
            self.paths = tuple(dict.fromkeys((*self._keys, *self._counts)))

    def check_room(self, name: str, condition: Filter, others: Collection[Path] = ()) -> None:
        """Raise TooLarge if a subscription with this filter to the topic `name` would extract too
        many fields. `others` are fields that may be extracted besides: for patterns that have not
        been met."""
        known = len(self._counts)
        if known + len(condition.paths) + len(others) <= WATCHED_MAX:
            return
        watched = len({*self._counts, *condition.paths, *others})
        if watched > known:
            check_watched(name, watched)

    def check(self, wanted: Iterable[Path]) -> None:
        """Assert what is always true; `wanted` are fields that are known to be needed."""
        assert set(self.paths) == {*self._keys, *self._counts}, "other fields than those needed"
        assert set(wanted) <= self._counts.keys()
        assert all(count > 0 for count in self._counts.values())


def check_watched(whose: str, count: int) -> None:
    """Raise TooLarge if the filters of subscriptions to `whose` may not have `count` fields
    extracted."""
    if count > WATCHED_MAX:
        raise TooLarge(
            f"the filters of all subscriptions to {whose} would name {count} fields, and "
            f"{WATCHED_MAX} are the most; name fewer, or such as others name"
        )
