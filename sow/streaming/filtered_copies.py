"""The conflated copies of a topic by their filters.

Copies with one filter are evaluated together (`sow.topic.shared_filter`). A few filters are all
evaluated on every batch, column by column. Of many, those that a record may pass are looked up by
its values, in an index like that of feeds (`sow.streaming.router`), and evaluated on such
records only. A copy that holds a record has to process every change of it, so each copy also
checks which records of the batch it holds: a few microseconds for a hundred records.
"""

from collections.abc import Iterator

from sow.expressions import access_of
from sow.streaming.predicate_index import Found, PredicateIndex
from sow.topic.batch import Batch
from sow.topic.conflated_topic import ConflatedCopy
from sow.topic.shared_filter import SharedFilter

CROWD_MIN = 16
"""Filters of copies from which on they are indexed: evaluating one on a batch costs some ten
microseconds, an index look-up as much as a dozen."""


class FilteredCopies:
    """The copies of one topic, with each distinct filter evaluated once."""

    __slots__ = ("_filed", "_index", "_requested")

    def __init__(self) -> None:
        self._requested: tuple[SharedFilter, ...] = ()
        self._filed: dict[SharedFilter, None] | None = None
        """The indexed ones; made when there are many."""
        self._index: PredicateIndex[SharedFilter] | None = None

    def __iter__(self) -> Iterator[SharedFilter]:
        yield from self._requested
        yield from self._filed or ()

    def copies(self) -> Iterator[ConflatedCopy]:
        """All copies."""
        for focus in self:
            yield from focus.copies

    def add(self, copy: ConflatedCopy) -> None:
        """Route changes of the topic to a copy from now on."""
        text = _text_of(copy)
        focus = next((one for one in self if _text_of(one) == text), None)
        if focus is None:
            focus = SharedFilter(copy.condition)
            self._requested += (focus,)
            if len(self._requested) >= CROWD_MIN or self._index is not None:
                self._file_all()
        focus.add(copy)

    def remove(self, copy: ConflatedCopy) -> None:
        """Stop routing to a copy; its filter is the one that it had when it was added."""
        focus = next(one for one in self if copy in one.copies)
        focus.remove(copy)
        if focus.copies:
            return
        if self._filed is not None and focus in self._filed:
            del self._filed[focus]
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
                filed[focus] = None
        self._requested = tuple(focus for focus in self._requested if focus not in filed)

    def on_batch(self, batch: Batch, now_us: int) -> list[ConflatedCopy]:
        """Route a batch to all copies it concerns; returns those that have something to release
        now, and had nothing."""
        woken: list[ConflatedCopy] = []
        for focus in self._requested:
            woken += focus.on_batch(batch, now_us)
        if self._filed:
            found = self._found(batch)
            places: dict[str, list[int]] = {}
            for at, identity in enumerate(batch.changes.identities):
                places.setdefault(identity, []).append(at)
            identities = places.keys()
            for focus in self._filed:
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
                return {focus: every for focus in self._filed or ()}  # noqa: C420 - a list
        return found

    def check(self) -> None:
        """Assert that each filter is here once, with its copies, and is indexed if it can be."""
        focuses = list(self)
        texts = [_text_of(focus) for focus in focuses]
        assert len(texts) == len(set(texts)), "a filter is here twice"
        for focus in focuses:
            assert focus.copies, "a filter without copies"
            assert all(_text_of(copy) == _text_of(focus) for copy in focus.copies)
        if self._index is not None:
            filed = {one: access_of(one.condition) for one in self._filed or () if one.condition}
            self._index.check(filed)


def _text_of(judging: SharedFilter | ConflatedCopy) -> str | None:
    return None if judging.condition is None else judging.condition.text
