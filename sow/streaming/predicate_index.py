"""The predicate index: feeds, and others with filters, by the terms of these filters.

Each one is filed in the places of its access terms (`sow.expressions.predicate_terms`): a value of
a field, a range, a pattern. A record's values lead to places, and whatever is filed there may
match. Where many are filed in one place, the rest of their filters separates them: the place gets a
predicate index of its own. So thousands of filters on one region, each with its own bounds, are
found by region and then by bounds, whichever of the two is the selective one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sow.core.paths import Path
from sow.expressions import Access
from sow.messages.base import Column
from sow.streaming.term_buckets import TermBuckets, keys_of, kind_of

Kind = tuple[Path, type[TermBuckets[Any]]]
"""A field, and how it is looked up."""
ColumnOf = Callable[[Path], Column]
CROWD_MIN = 16
"""Feeds in one place from which on it has an index of its own: a look-up takes about as long as
evaluating so many filters."""


class Findable(Protocol):
    """Anything with a filter: a feed, or the copies with one filter."""

    wants_old: bool
    """Records that were in focus matter, whether they still are or not."""


Sought = TypeVar("Sought", bound=Findable)
Found = dict[Sought, list[int]]
"""The places in a batch of the records that may match; one may occur twice."""


class PredicateIndex(Generic[Sought]):
    """Feeds by the access terms that must hold for each."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, TermBuckets[Place[Sought]]] = {}
        self._wants_old: Counter[Kind] = Counter()
        """How many of those in each also need old states."""
        self._paths: Counter[Path] = Counter()
        self._old_paths: Counter[Path] = Counter()
        """The fields that are looked up in new and in old states, and how many places need each."""

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, feed: Sought, access: Access | None) -> bool:
        """File a feed; False when it has no access terms."""
        if access is None:
            return False
        for kind, key in _places_of(access):
            places = self._kinds.get(kind)
            if places is None:
                places = self._kinds[kind] = kind[1]()
            place = places.held.get(key)
            if place is None:
                place = Place()
                places.hold(key, place)
            place.add(feed, access)
            self._paths[kind[0]] += 1
            self._wants_old[kind] += feed.wants_old
            if feed.wants_old:
                self._old_paths[kind[0]] += 1
        return True

    def remove(self, feed: Sought, access: Access | None) -> None:
        """Remove a feed that was filed with `access`."""
        assert access is not None
        for kind, key in _places_of(access):
            places = self._kinds[kind]
            place = places.held[key]
            place.remove(feed, access)
            _take(self._paths, kind[0])
            self._wants_old[kind] -= feed.wants_old
            if feed.wants_old:
                _take(self._old_paths, kind[0])
            if not place:
                places.release(key)
            if not places.held:
                del self._kinds[kind], self._wants_old[kind]

    def paths(self, *, old: bool) -> Collection[Path]:
        """The fields that are looked up; only those in old states if `old`."""
        return self._old_paths if old else self._paths

    def find(
        self, column_of: ColumnOf, at: Sequence[int], found: Found[Sought], *, old: bool
    ) -> None:
        """Add to `found` the candidates for some records of a batch, by their new or, if `old`,
        their old values.

        `at` are the places of the records in the columns that `column_of` gives.
        """
        for kind, places in self._kinds.items():
            if old and not self._wants_old[kind]:
                continue
            column = column_of(kind[0])
            if column.count(None) == len(column):
                continue
            crowds: dict[Place[Sought], list[int]] = {}
            for number, place in places.find(column, at):
                for feed in place.feeds:
                    found.setdefault(feed, []).append(number)
                if place.index is not None:
                    crowds.setdefault(place, []).append(number)
            for place, numbers in crowds.items():
                assert place.index is not None
                place.index.find(column_of, numbers, found, old=old)

    def check(self, filed: Mapping[Sought, Access | None]) -> None:
        """Assert that exactly these feeds are filed, each in all places of its terms."""
        expected: dict[tuple[Kind, Hashable], dict[Sought, Access]] = {}
        wants_old: Counter[Kind] = Counter()
        for feed, access in filed.items():
            assert access is not None
            for kind, key in _places_of(access):
                expected.setdefault((kind, key), {})[feed] = access
                wants_old[kind] += feed.wants_old
        there = {(kind, key) for kind, places in self._kinds.items() for key in places.held}
        assert there == expected.keys(), "a feed is filed under other terms than it has"
        assert wants_old == self._wants_old
        counted = Counter(kind[0] for (kind, _), feeds in expected.items() for _ in feeds)
        assert counted == self._paths
        assert {kind[0] for kind in +wants_old} == self._old_paths.keys()
        for kind, places in self._kinds.items():
            places.check()
            for key, place in places.held.items():
                place.check(expected[kind, key])


class Place(Generic[Sought]):
    """Feeds that are filed in one place; `index` has those that more terms separate."""

    def __init__(self) -> None:
        self.feeds: dict[Sought, Access] = {}
        self.index: PredicateIndex[Sought] | None = None

    def __bool__(self) -> bool:
        return bool(self.feeds or self.index)

    def add(self, feed: Sought, access: Access) -> None:
        """File a feed by the rest of its terms."""
        if self.index is not None and self.index.add(feed, access.further):
            return
        self.feeds[feed] = access
        if self.index is None and len(self.feeds) == CROWD_MIN:
            index: PredicateIndex[Sought] = PredicateIndex()
            self.index = index
            self.feeds = {
                one: its for one, its in self.feeds.items() if not index.add(one, its.further)
            }

    def remove(self, feed: Sought, access: Access) -> None:
        """Undo `add`."""
        if self.feeds.pop(feed, None) is None:
            assert self.index is not None
            self.index.remove(feed, access.further)

    def check(self, filed: Mapping[Sought, Access]) -> None:
        """Assert that exactly these feeds are filed here."""
        assert self.feeds.keys() <= filed.keys(), "a feed is filed where it does not belong"
        apart = {one: its.further for one, its in filed.items() if one not in self.feeds}
        assert self.index is not None or not apart, "a feed is not where it belongs"
        if self.index is not None:
            self.index.check(apart)


def _take(counts: Counter[Path], path: Path) -> None:
    """Decrement a count, and drop it at zero."""
    counts[path] -= 1
    if not counts[path]:
        del counts[path]


def _places_of(access: Access) -> Iterator[tuple[Kind, Hashable]]:
    """The places of an access's terms, each once: terms differ in their fields, kinds or keys."""
    for term in access.terms:
        for key in keys_of(term):
            yield (term.path, kind_of(term)), key
