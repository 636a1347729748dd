"""The fields that are read of every message of a topic as it comes, because somebody wants them.

The keys are read always, and besides them what indexes and the filters of subscriptions and
conflated topics ask for, each field as long as one of them asks for it. Topics of which only the
keys are read, as most of a pattern are, share what is here. How fields are read is for message
types.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from sow.core.paths import Path
from sow.errors import TooLarge
from sow.expressions import Filter

WATCHED_MAX = 1024
"""Fields that filters of subscriptions may have read of every message: some two microseconds each
for a batch, at the cost of all who publish."""
NOTHING_WATCHED: Counter[Path] = Counter()
"""What all topics have of which no filter or index wants a field, and never added to."""


class ExtractedFields:
    """Which fields are read of a topic's messages: `keys`, and those that were added."""

    __slots__ = ("_counts", "_keys", "paths")

    def __init__(self, keys: tuple[Path, ...]) -> None:
        self._keys = keys
        self._counts = NOTHING_WATCHED
        self.paths = keys
        """All that are read. A thread may be reading, so they are replaced, never changed."""

    def add(self, paths: Iterable[Path]) -> None:
        """Read these fields of every message as it comes in, because a filter or index needs
        them."""
        if self._counts is NOTHING_WATCHED:
            self._counts = Counter()
        for path in paths:
            if path not in self._counts and path not in self._keys:
                # Not all of them anew: there may be a thousand.
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
        """Raise TooLarge if a subscription with this filter to the topic, whose `name` it is,
        would have too many fields read. `others` are fields that may be read besides: for patterns
        that have not been met."""
        known = len(self._counts)
        if known + len(condition.paths) + len(others) <= WATCHED_MAX:
            return
        watched = len({*self._counts, *condition.paths, *others})
        if watched > known:
            check_watched(name, watched)

    def check(self, wanted: Iterable[Path]) -> None:
        """Assert what is always true; `wanted` are fields that somebody is known to want."""
        assert set(self.paths) == {*self._keys, *self._counts}, "other fields are read than wanted"
        assert set(wanted) <= self._counts.keys()
        assert all(count > 0 for count in self._counts.values())


def check_watched(whose: str, count: int) -> None:
    """Raise TooLarge if the filters of subscriptions to `whose` may not have `count` fields
    read."""
    if count > WATCHED_MAX:
        raise TooLarge(
            f"the filters of all subscriptions to {whose} would name {count} fields, and "
            f"{WATCHED_MAX} are the most; name fewer, or such as others name"
        )
