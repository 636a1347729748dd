"""The conflated copies of a topic by their filters.

Copies with one filter are evaluated together (`SharedFilter`): whether a record passes is decided
once for all of them, and what is offered to them is made once; each then folds it into windows of
its own. A shared filter gets whole batches, or, where the index found it, the records of a batch
that may concern its copies: those that may pass, and those that one of them holds or has waiting.

A few filters are all evaluated on every batch, column by column. Of many, those that a record may
pass are looked up by its values, in an index like that of feeds (`sow.streaming.router`), and
evaluated on such records only. A copy that holds a record has to process every change of it, so
each copy also checks which records of the batch it holds: a few microseconds for a hundred records.
"""

from collections.abc import Iterator, Mapping, Sequence, Set

from conflated_topics import Offered
from sow.expressions import Filter, access_of
from sow.streaming.predicate_index import Found, PredicateIndex
from sow.topic.batch import Batch
from sow.topic.conflated_topic import ConflatedCopy, CopyUpdate


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


CROWD_MIN = 16
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
            if len(self._requested) >= CROWD_MIN or self._index is not None:
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
