"""The predicate index: feeds and conflated copies, found by the terms of their filters.

Each one is filed in the places of its access terms (`sow.expressions.predicate_terms`): a value of
a field, a range, a pattern. A record's values lead to places, and whatever is filed there may
match. Where many are filed in one place, the rest of their filters separates them: the place gets a
predicate index of its own. So thousands of filters on one region, each with its own bounds, are
found by region and then by bounds, whichever of the two is the selective one.

The conflated copies of a topic with one filter are evaluated together (`SharedFilter`): whether a
record passes is decided once for all of them, and what is offered to them is made once; each then
folds it into windows of its own. A shared filter gets whole batches, or, where the index found it,
the records of a batch that may concern its copies: those that may pass, and those that one of them
holds or has waiting. A few filters are all evaluated on every batch, column by column. Of many,
those that a record may pass are looked up by its values, and evaluated on such records only. A copy
that holds a record has to process every change of it, so each copy also checks which records of the
batch it holds: a few microseconds for a hundred records.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set
from typing import Any, Generic, Protocol, TypeVar

from conflated_topics import Offered
from sow.core.paths import Path
from sow.expressions import Access, Filter, access_of
from sow.messages.base import Column
from sow.streaming.term_buckets import TermBuckets, keys_of, kind_of
from sow.topic.batch import Batch
from sow.topic.conflated_topic import ConflatedCopy, CopyUpdate

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


class SharedFilter:
    """A filter, None for none, and the copies that have it."""

    __slots__ = ("condition", "copies")

    wants_old = False
    """A copy knows which records it holds; their old states do not matter."""

    def __init__(self, condition: Filter | None) -> None:
        self.condition = condition
        self.copies: tuple[ConflatedCopy, ...] = ()

    def add(self, copy: ConflatedCopy) -> None:
        """Add a copy, after the present ones."""
        self.copies += (copy,)

    def remove(self, copy: ConflatedCopy) -> None:
        """Remove a copy."""
        self.copies = tuple(one for one in self.copies if one is not copy)

    def on_batch(self, batch: Batch, now_us: int) -> list[ConflatedCopy]:
        """Offer a batch to all copies; returns those that have something to release now, and had
        nothing."""
        passes: Sequence[bool] | None = None
        if self.condition is not None or batch.changes.news is None:
            if self._has_stopped:
                return []
            try:
                passes = batch.new_focus(self.condition)
            except Exception as error:
                return self._stop_for(error)
        return self._offer(batch, batch.changes.identities, batch.states(), passes, now_us)

    @property
    def _has_stopped(self) -> bool:
        return all(copy.stopped for copy in self.copies)

    def _stop_for(self, error: Exception) -> list[ConflatedCopy]:
        """The filter has failed, which all copies share; nothing else notices."""
        return [copy for copy in self.copies if copy.stop_for(error)]

    def on_some(
        self,
        batch: Batch,
        found: Sequence[int],
        identities: Set[str],
        places: Mapping[str, Sequence[int]],
        now_us: int,
    ) -> list[ConflatedCopy]:
        """Offer to all copies the records of a batch that concern them.

        `found` are places of records that may pass. `identities` are those of the batch, and
        `places` has the places of each: of a record that occurs several times, all changes count.
        """
        if self._has_stopped:
            return []
        concerned = {batch.changes.identities[at] for at in found}
        for copy in self.copies:
            concerned |= copy.those_there(identities)
        if not concerned:
            return []
        if len(concerned) == len(identities):
            return self.on_batch(batch, now_us)
        some = sorted(at for identity in concerned for at in places[identity])
        states, may_pass = batch.states(), set(found)
        try:
            passes = [at in may_pass and batch.is_in_focus(self.condition, at) for at in some]
        except Exception as error:
            return self._stop_for(error)
        return self._offer(
            batch,
            [batch.changes.identities[at] for at in some],
            [states[at] for at in some],
            passes,
            now_us,
        )

    def _offer(
        self,
        batch: Batch,
        identities: Sequence[str],
        states: Sequence[CopyUpdate],
        passes: Sequence[bool] | None,
        now_us: int,
    ) -> list[ConflatedCopy]:
        changes = batch.changes
        offered = Offered(identities, states, passes, changes.reason or "match")
        are_messages = changes.news is not None
        woken: list[ConflatedCopy] = []
        for copy in self.copies:
            if copy.take_in(offered, are_messages, now_us):
                woken.append(copy)
        return woken


COPIES_INDEXED_MIN = 16
"""Filters of copies from which on they are indexed: evaluating one on a batch costs some ten
microseconds, an index look-up as much as a dozen."""


class FilteredCopies:
    """The copies of one topic, with each distinct filter evaluated once."""

    __slots__ = ("_filed", "_index", "_requested")

    def __init__(self) -> None:
        self._requested: tuple[SharedFilter, ...] = ()
        self._filed: dict[str | None, SharedFilter] | None = None
        """The indexed ones by text; made when there are many, since a topic of a pattern has one
        copy, and a dictionary takes as much as that."""
        self._index: PredicateIndex[SharedFilter] | None = None

    def __iter__(self) -> Iterator[SharedFilter]:
        yield from self._requested
        yield from (self._filed or {}).values()

    def copies(self) -> Iterator[ConflatedCopy]:
        """All copies."""
        for focus in self:
            yield from focus.copies

    def alike(self, copy: ConflatedCopy) -> ConflatedCopy | None:
        """One that has the same content from now on."""
        focus = self._find(_text_of(copy))
        return next((one for one in focus.copies if one.is_like(copy)), None) if focus else None

    def add(self, copy: ConflatedCopy) -> None:
        """Route changes of the topic to a copy from now on."""
        text = _text_of(copy)
        focus = self._find(text)
        if focus is None:
            focus = SharedFilter(copy.condition)
            self._requested += (focus,)
            if len(self._requested) >= COPIES_INDEXED_MIN or self._index is not None:
                self._file_all()
        focus.add(copy)

    def _find(self, text: str | None) -> SharedFilter | None:
        """The filter of this text."""
        found = None if self._filed is None else self._filed.get(text)
        return found or next((one for one in self._requested if _text_of(one) == text), None)

    def remove(self, copy: ConflatedCopy) -> None:
        """Stop routing to a copy; its filter is the one that it had when it was added."""
        text = _text_of(copy)
        focus = self._find(text)
        assert focus is not None
        focus.remove(copy)
        if focus.copies:
            return
        if self._filed is not None and text in self._filed:
            del self._filed[text]
            assert self._index is not None
            assert focus.condition is not None
            self._index.remove(focus, access_of(focus.condition))
        else:
            self._requested = tuple(one for one in self._requested if one is not focus)

    def _file_all(self) -> None:
        """Index all that can be indexed."""
        index = self._index = self._index or PredicateIndex()
        filed = self._filed = self._filed or {}
        for focus in self._requested:
            if focus.condition is not None and index.add(focus, access_of(focus.condition)):
                filed[_text_of(focus)] = focus
        self._requested = tuple(one for one in self._requested if _text_of(one) not in filed)

    def on_batch(self, batch: Batch, now_us: int) -> list[ConflatedCopy]:
        """Route a batch to all copies it concerns; returns those that have something to release
        now, and had nothing. What copies have released opens windows when it was due, however late
        they are."""
        if batch.turn_us is not None:
            now_us = batch.turn_us
        woken: list[ConflatedCopy] = []
        for focus in self._requested:
            woken += focus.on_batch(batch, now_us)
        if self._filed:
            found = self._found(batch)
            places: dict[str, list[int]] = {}
            for at, identity in enumerate(batch.changes.identities):
                places.setdefault(identity, []).append(at)
            identities = places.keys()
            for focus in self._filed.values():
                woken += focus.on_some(batch, found.get(focus, ()), identities, places, now_us)
        return woken

    def _found(self, batch: Batch) -> Found[SharedFilter]:
        """The places of the records of a batch that may pass each filter."""
        found: Found[SharedFilter] = {}
        if batch.changes.news is not None:
            assert self._index is not None
            try:
                batch.read(self._index.paths(old=False))
                self._index.find(batch.column, range(len(batch)), found, old=False)
            except Exception:
                # A field that one of them needs cannot be read: evaluated alone, it stops alone.
                every = list(range(len(batch)))
                return dict.fromkeys((self._filed or {}).values(), every)
        return found

    def check(self) -> None:
        """Assert that each filter is here once, with its copies, and is indexed if it can be."""
        texts = [_text_of(focus) for focus in self]
        assert len(texts) == len(set(texts)), "a filter is here twice"
        for focus in self:
            assert focus.copies, "a filter without copies"
            assert all(_text_of(copy) == _text_of(focus) for copy in focus.copies)
        filed = self._filed or {}
        assert all(_text_of(focus) == text for text, focus in filed.items())
        if self._index is not None:
            found = {one: access_of(one.condition) for one in filed.values() if one.condition}
            self._index.check(found)


def _text_of(judging: SharedFilter | ConflatedCopy) -> str | None:
    return None if judging.condition is None else judging.condition.text
