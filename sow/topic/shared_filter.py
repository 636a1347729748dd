"""A shared filter: the conflated copies of one topic that have the same filter.

Whether a record passes is decided once for all of them, and what is offered to them is made once;
each then folds it into windows of its own. A shared filter gets whole batches, or, where an index
found it (`sow.streaming.filtered_copies`), the records of a batch that may concern its copies:
those that may pass, and those that one of the copies holds or has waiting.
"""

from collections.abc import Mapping, Sequence, Set

from conflated_topics import Offered
from sow.expressions import Filter
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
