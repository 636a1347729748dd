"""Row deltas: the input of the grouping of a view, as columns.

An *input row* is what a view groups: a record of its underlying topic, or a combination of records
made by a join. A change of one is (row, before, after), like a change of a record; but only the
fields that the view needs are left of the messages, and whether the row took part. Rows that the
view's filter rejects are not here at all, before or after.

    was_in  is_in    what happens in the grouping
    -       yes      the row enters the group of its new values
    yes     yes      it changes there, or moves from one group to another
    yes     -        it leaves the group of its old values
    -       -        nothing

They are made by a producer: of one topic `sow.topic.views.single_source`, of several
`sow.topic.views.joins`. They are applied by `sow.topic.views.groups`. Nothing here computes. What a
view has kept for its rows is freed in steps (`ViewGc`), since it may be millions of objects.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sow.core.cooperative import Task
from sow.messages.base import Column
from sow.topic.batch import Batch, Reason
from sow.topic.records import Records

RowIdentity = Hashable
"""The identity of an input row while it exists: that of a record, or a tuple of those that were
joined. One that was removed and comes again may be another row."""


@dataclass(slots=True)
class RowDeltas:
    """Changes of input rows, in the order in which they take effect; columns of equal length.

    `olds` and `news` have one column for each field that the view needs, in its order: the values
    before and after, None where the row was not in; None altogether where no row was, or is. A row
    may occur several times: its old state is then the former new one.
    `borns` are when the rows first appeared: the order of the rows, which is constant for a row as
    long as it exists, except for `old_borns`. `seqs` and `ts_us` are the newest change and its time
    of each row; if it leaves, those of the change that made it leave. Where records join, a row may
    come because another one was removed: `newest_seqs` are then of the records of each row alone,
    which decide which row changed last; None: they are `seqs`.
    `old_borns` are the former `borns`, where they differ: a row of a view may change its position.
    `reason` is why rows leave; ``match`` where a filter rejects their new state, or where another
    row replaces them.
    """

    identities: Sequence[RowIdentity]
    olds: Sequence[Column] | None
    news: Sequence[Column] | None
    was_in: Sequence[bool]
    is_in: Sequence[bool]
    borns: Sequence[int]
    seqs: Sequence[int]
    ts_us: Sequence[int]
    reason: Reason = "match"
    newest_seqs: Sequence[int] | None = None
    old_borns: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.identities)


class Forgettable(Protocol):
    """State of a view, possibly millions of entries: it takes long to drop."""

    def __len__(self) -> int:
        """How much is left."""
        ...

    def forget_some(self, count: int) -> None:
        """Drop so much, or all that is left; it is not used any more."""
        ...


KEPT_AT_ONCE = 1_000
"""Groups, or entries of indexes, that one step frees: a millisecond or two."""


class ViewGc:
    """State of views of one engine that is no longer needed, which is freed by a timer."""

    def __init__(self) -> None:
        self._waiting: deque[Forgettable] = deque()

    def add(self, kept: Iterable[Forgettable]) -> None:
        """Free these; their view takes in nothing and releases nothing any more."""
        self._waiting.extend(filter(len, kept))

    def due_us(self) -> int | None:
        """At once, while anything is left to free."""
        return 0 if self._waiting else None

    def advance(self, _now_us: int) -> None:
        """Free some."""
        if self._waiting:
            self._waiting[0].forget_some(KEPT_AT_ONCE)
            if not len(self._waiting[0]):
                self._waiting.popleft()


Take = Callable[[RowDeltas], None]
"""Applies row deltas that a producer is driven to yield."""


class RowProducer(Protocol):
    """Makes row deltas from the changes of one topic or several.

    Made from the fields that its view needs of each topic, in the order of its columns. It makes
    the topics extract these fields (`Records.watched`) until it is stopped. What is here is for a
    producer that inherits it: one without state, which applies every batch at once.
    """

    @property
    def underlyings(self) -> Sequence[Records]:
        """The topics that it processes, each once."""
        ...

    @property
    def may_be_late(self) -> bool:
        """A batch says all that is needed of its records, so it may be given to `on_batch` later,
        though in order."""
        ...

    def on_batch(self, batch: Batch) -> Iterable[RowDeltas]:
        """The row deltas of a batch of changes of one of the topics, a bounded number of rows each;
        to be applied before the next batch. What takes longer is left to `work`.
        """
        ...

    @property
    def kept_bytes(self) -> int:
        """Its state of records, which is counted like theirs."""
        return 0

    @property
    def is_behind(self) -> bool:
        """Changes are left to `work`."""
        return False

    def work(self) -> Iterator[RowDeltas]:
        """The row deltas of the changes that were left until the first one is requested, a bounded
        number of rows each; to be iterated to the end. Later changes are left to the next time.

        Raises TooLarge where a change has more consequences than it may: the producer is then of no
        use any more.
        """
        return iter(())

    def rows(self) -> Iterator[RowDeltas]:
        """All rows as if they had just come; a bounded number in each.

        For a view that is filled in one go, while nothing changes: after a restart.
        """
        ...

    def filling(self, take: Take) -> Task[None]:
        """Give `take` all rows, some in each step, while records change: after the last step the
        deltas amount to the rows of that moment. `on_batch` may be called between two steps; it
        gives nothing that the filling will see anyway.
        """
        ...

    def stop(self) -> None:
        """The view is removed: the topics need not extract its fields any more."""
        ...

    def kept(self) -> Iterable[Forgettable]:
        """The state to drop, once it has been stopped."""
        return ()
