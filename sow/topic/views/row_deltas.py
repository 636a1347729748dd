"""Row changes: what goes into the grouping of a view, as columns.

An *input row* is what a view groups: a record of its underlying topic, or a combination of records
that a join has made. A change of one is (row, before, after), as a change of a record is; but of
the messages only the fields are left that the view wants, and whether the row took part. Rows that
the view's filter does not let in are not here at all, before or after.

    was_in  is_in    what happens in the grouping
    -       yes      the row enters the group that its new values name
    yes     yes      it changes there, or moves from one group to another
    yes     -        it leaves the group that its old values name
    -       -        nothing

Who makes them is a producer: of one topic `sow.topic.views.single_source`, of several
`sow.topic.views.joins`. Who takes them is `sow.topic.views.groups`. Nothing here computes.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sow.core.changes import Reason
from sow.core.cooperative import Task
from sow.messages.base import Column
from sow.topic.batch import Batch
from sow.topic.records import Records

RowIdentity = Hashable
"""What tells an input row from all others while it is there: the identity of a record, or a tuple
of those that were joined. One that has gone and comes again may be another row."""


@dataclass(slots=True)
class RowDeltas:
    """Changes of input rows, in the order in which they take effect; columns of equal length.

    `olds` and `news` hold one column for each field that the view wants, in its order: the values
    before and after, None where the row was not in; None altogether where no row was, or is. A row
    may come several times: what it was is then what it became before.
    `borns` say when the rows first appeared: the order of the rows that are there, and the same for
    a row as long as it is, but for `old_borns`. `seqs` and `ts_us` are the newest change and its
    time of what each row is made of; of one that leaves, of the change that made it leave. Where
    records meet, a row may come because another one has gone: `newest_seqs` are then of the records
    that each row is made of alone, by which is known which of the rows that are there changed last;
    None: they are `seqs`.
    `old_borns` are what `borns` were before, where that differs: a row of a view may come to stand
    elsewhere.
    `reason` says why the rows leave that do; ``match`` where a filter does not let in what they are
    now, or where another row stands in their place.
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
    """What a view keeps, of which there may be millions: it takes long to forget."""

    def __len__(self) -> int:
        """How much is left."""
        ...

    def forget_some(self, count: int) -> None:
        """Forget so much, or all that is left; nobody asks for it any more."""
        ...


Take = Callable[[RowDeltas], None]
"""Takes row changes that somebody else drives out of a producer."""


class RowProducer(Protocol):
    """Makes row changes of what becomes of the records of one topic or several.

    Made from what its view wants of each topic, in the order in which columns are to have it. It
    has the topics watch the fields that it reads (`Records.watched`) until it is stopped.
    """

    @property
    def underlyings(self) -> Sequence[Records]:
        """The topics of which it hears, each once."""
        ...

    def on_batch(self, batch: Batch) -> Iterable[RowDeltas]:
        """What a batch of changes of one of the topics means, a bounded number of rows in each; to
        be taken before the next batch is heard. What takes longer to find out is left to `work`.
        """
        ...

    @property
    def kept_bytes(self) -> int:
        """What it keeps of records, which counts as if they took it."""
        ...

    @property
    def is_behind(self) -> bool:
        """Something was heard of that is left to `work`."""
        ...

    def work(self) -> Iterator[RowDeltas]:
        """What was left of all that was heard until the first of it is asked for, a bounded number
        of rows in each; to be taken to the end. What is heard meanwhile is left to the next time.

        Raises TooLarge where a change means more than it may: the producer is of no use then.
        """
        ...

    def rows(self) -> Iterator[RowDeltas]:
        """All rows that there are now, as having come; a bounded number in each.

        For a view that is filled in one go, while nothing changes: after a restart.
        """
        ...

    def filling(self, take: Take) -> Task[None]:
        """Give `take` all rows that there are, some in each step, while records change: after the
        last step it has been given what makes all rows as they then are. `hear` may be called
        between two steps; it gives nothing of what the filling will see anyway.
        """
        ...

    def stop(self) -> None:
        """The view goes: the topics need not read its fields any more."""
        ...

    def kept(self) -> Iterable[Forgettable]:
        """What is to be forgotten, once it has been stopped."""
        ...
