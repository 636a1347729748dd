"""A conflated topic at work: the copy of another topic that changes at most once per interval.

It hears the underlying topic's changes, projects them through its filter and offers them to the
conflation core (`conflated_topics`). What the core releases is put into the copy's own table and
routed like a publish, so that the copy is an ordinary topic to everyone else.
"""

from collections.abc import Sequence

from conflated_topics import ConflatedTopic, Removal
from sow.changes import Reason
from sow.expressions import Filter
from sow.feeds import Batch
from sow.keyed_topic import KeyedTopic

# A pending update: body, sequence number and time of the underlying change.
Update = tuple[bytes, int, int]


class ConflatedCopy:
    """Ties an underlying topic, a filter and an interval to the copy they make."""

    def __init__(
        self,
        copy: KeyedTopic,
        underlying: KeyedTopic,
        interval_us: int,
        condition: Filter | None,
    ) -> None:
        self.copy = copy
        self.underlying = underlying
        self.interval_us = interval_us
        self.condition = condition
        self.conflation: ConflatedTopic[str, Update] = ConflatedTopic(
            interval_us, copy.table.__contains__
        )
        if condition is not None:
            underlying.watch(condition.paths)

    def hear(self, batch: Batch, now_us: int) -> None:
        """Offer the underlying topic's changes."""
        changes = batch.changes
        if changes.news is not None:
            updates = list(zip(changes.news, changes.seqs, changes.ts_us, strict=True))
            passes = None if self.condition is None else batch.new_focus(self.condition)
            self.conflation.offer(changes.identities, updates, now_us, passes)
            return
        bodies = changes.partings or [old or b"" for old in changes.olds]
        updates = list(zip(bodies, changes.seqs, changes.ts_us, strict=True))
        self.conflation.remove(changes.identities, updates, changes.reason or "deleted", now_us)

    def fill(self) -> None:
        """Take over the underlying topic as it stands, when the server starts."""
        table = self.underlying.table
        slots = table.live().tolist()
        names = [table.identities[slot] or "" for slot in slots]
        bodies = [table.bodies[slot] or b"" for slot in slots]
        seqs, ts_us = table.seqs[slots].tolist(), table.ts_us[slots].tolist()
        if self.condition is not None and slots:
            columns = self.underlying.decoder(self.condition.paths).columns(bodies)
            inside = self.condition.matches(columns, len(slots))
            chosen = [at for at, hit in enumerate(inside) if hit]
            names, bodies = [names[at] for at in chosen], [bodies[at] for at in chosen]
            seqs, ts_us = [seqs[at] for at in chosen], [ts_us[at] for at in chosen]
        self.copy.put(names, bodies, {}, seqs, ts_us)

    def is_due(self, now_us: int) -> bool:
        """Whether `release` has something to do."""
        due_us = self.conflation.due_us()
        return due_us is not None and due_us <= now_us

    def release(self, now_us: int) -> list[Batch]:
        """Apply to the copy what is due by now, and return it as changes of the copy."""
        updates, removals = self.conflation.take(now_us)
        batches: list[Batch] = []
        if updates:
            names = [name for name, _ in updates]
            bodies, seqs, ts_us = zip(*(update for _, update in updates), strict=True)
            batches.append(self.copy.put(names, list(bodies), {}, seqs, ts_us))
        for reason in ("match", "deleted", "expired"):
            leaving = [removal for removal in removals if removal.reason == reason]
            if leaving:
                batches += self._drop(leaving, reason)
        return batches

    def _drop(self, leaving: Sequence[Removal[str, Update]], reason: Reason) -> list[Batch]:
        seqs = [removal.value[1] for removal in leaving]
        ts_us = [removal.value[2] for removal in leaving]
        # An oof of a record that no longer matches carries its new state, every other one the
        # state this copy last had.
        partings = (
            {removal.key: removal.value[0] for removal in leaving} if reason == "match" else None
        )
        batch = self.copy.drop(
            [removal.key for removal in leaving], reason, lambda _: (seqs, ts_us), partings
        )
        return [batch] if batch else []
