"""Feeds: a subscription's view of a topic's changes, evaluated once for all who share it.

A feed projects a batch of changes through its filter. What to say of a change is read off one
table (`told`: the subscriber holds an earlier state):

    told     now      say
    no       yes      p       new to the subscriber, or came into focus
    yes      yes      p       changed; as a delta to those who asked for deltas
    yes      no       oof     left focus (only to feeds that asked)
    no       no       nothing

A subscriber who was given a snapshot of everything in focus is told of a record exactly if the
record was in focus before. One who was not is told of what the feed has said: such a feed keeps
account (`told`).

What a feed says it puts into its subscription's strand (`sow.delivery.strands`), which gathers the
lines of all topics and hands them out. Equal subscriptions share a strand and its feeds. A feed
whose strand has a conflator (`sow.delivery.conflated_feeds`) says nothing until its updates are
released.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sow.delivery.sessions import Session
from sow.delivery.strands import Columns, Strand
from sow.delta import difference
from sow.expressions import Filter
from sow.topic.batch import Batch
from sow.topic.queue_policy import Key, QueuePolicy, Verdict
from sow.topic.rendering import Kind, LineColumns, Shape
from sow.topic.updates import Update

if TYPE_CHECKING:
    from sow.topic.records import Records


class FeedKey(NamedTuple):
    """What makes two subscriptions of a topic equal.

    `scope` names the subscription where equal filters are not enough to share a feed. `interval_us`
    is how long updates are conflated, `auto` for as long as the client takes.
    """

    filter: str | None = None
    oof: bool = False
    delta: bool = False
    no_empties: bool = False
    accounts: bool = False
    interval_us: int | None = None
    auto: bool = False
    conflation_key: tuple[str, ...] = ()
    shape: Shape = Shape()
    encoding: str = "lines"
    scope: str = ""


class Feed:
    """One topic as one distinct subscription sees it."""

    def __init__(
        self, strand: Strand, topic: "Records", key: FeedKey, condition: Filter | None
    ) -> None:
        self.strand = strand
        self.topic = topic
        self.key = key
        self.condition = condition
        self.shape = key.shape
        self.encoding = strand.encoding
        # Where nothing is stored no snapshot and no old state says what a subscriber holds.
        accounts = key.accounts or (key.oof and not topic.retains)
        self.told: set[str] | None = set() if accounts else None
        self.wants_old = key.oof or key.delta or key.accounts
        """Records that were in focus matter, whether they still are or not."""
        self.tells_records = key.oof or key.delta
        """Subscribers are told of each record by itself: no other one's update may stand for it."""
        self._needs_old = self.wants_old and not accounts
        self._hears_leaving = key.oof
        self.knows_what_is_held = True
        """An update that waits says what each client was told of its record before."""
        self._batched = not self.wants_old
        self._publish_head = topic.renderer.head("p", strand.name)
        self._oof_heads = {
            reason: topic.renderer.head("oof", strand.name, reason=reason)
            for reason in ("match", "deleted", "expired")
        }

    @property
    def name(self) -> str:
        """The name that its lines carry."""
        return self.strand.name

    @property
    def members(self) -> dict[Session, None]:
        """The sessions that share it."""
        return self.strand.members

    @property
    def folding(self) -> QueuePolicy:
        """How the topic's updates may be folded in a queue."""
        return self.topic.folding

    def can_be_joined(self) -> bool:
        """A newcomer would be in the same position as those who are here."""
        return not self.told

    # Hearing.

    def hear(self, batch: Batch, now_us: int) -> bool:
        """Take in what a batch of changes means for this feed; True when there is something."""
        if self._batched:
            if batch.changes.news is not None:
                self._hear_plain(batch)
        else:
            before = batch.old_focus(self.condition) if self._needs_old else None
            for at, now in enumerate(batch.new_focus(self.condition)):
                self._hear_one(batch, at, before is not None and before[at], now, now_us)
        return self.hears_more()

    def hear_at(self, batch: Batch, places: Sequence[int], now_us: int) -> bool:
        """Take in the records at these places; no other record of the batch concerns this feed."""
        for at in places:
            now = batch.is_in_focus(self.condition, at)
            was = self._needs_old and batch.was_in_focus(self.condition, at)
            self._hear_one(batch, at, was, now, now_us)
        return self.hears_more()

    def hears_more(self) -> bool:
        """The engine has to look after the strand, because of what this feed has heard."""
        return bool(self.strand.lines)

    def _hear_plain(self, batch: Batch) -> None:
        changes = batch.changes
        assert changes.news is not None
        columns: Columns = (changes.identities, changes.news, changes.seqs, changes.ts_us)
        tails = batch.tails("p", self.shape)
        if self.condition is not None:
            hits = [at for at, hit in enumerate(batch.new_focus(self.condition)) if hit]
            if not hits:
                return
            if len(hits) < len(batch):
                tails = [tails[at] for at in hits]
                names, news, seqs, ts_us = ([column[at] for at in hits] for column in columns)
                columns = (names, news, seqs, ts_us)  # type: ignore[assignment]
        self._say_plain(columns, tails)

    def _say_plain(self, columns: Columns, tails: Sequence[bytes]) -> None:
        strand, head = self.strand, self._publish_head
        strand.parts.append((self, columns))
        strand.lines += self.encoding.records("p", [head + tail for tail in tails], columns[2])

    def _hear_one(self, batch: Batch, at: int, was: bool, now: bool, now_us: int) -> None:
        """The table at the top of this module, for one record."""
        identity = batch.changes.identities[at]
        if self.told is not None:
            was = identity in self.told
            if now:
                self.told.add(identity)
            else:
                self.told.discard(identity)
        if now:
            if was and self.key.no_empties and batch.is_empty(self.shape, at):
                return
            self._take(batch, at, self._update(batch, at, was), now_us)
        elif was and self._hears_leaving:
            self._take(batch, at, self._update(batch, at, was, left=True), now_us)

    def _update(self, batch: Batch, at: int, was: bool, left: bool = False) -> Update:
        changes = batch.changes
        seq, ts_us, identity = changes.seqs[at], changes.ts_us[at], changes.identities[at]
        old = changes.olds[at] if was else None
        if left:
            reason = changes.reason or "match"
            parting = batch.parting(at) if reason == "match" else None
            return Update(identity, was, None, seq, ts_us, seq, ts_us, reason, parting, old=old)
        assert changes.news is not None
        delta = batch.delta(self.shape, at) if was and self.key.delta else None
        new = changes.news[at]
        return Update(identity, was, new, seq, ts_us, seq, ts_us, delta=delta, old=old)

    def _take(self, batch: Batch, at: int, update: Update, _now_us: int) -> None:
        """An update that this feed has to say."""
        kind: Kind = "p"
        head = self._publish_head
        if update.new is None:
            kind, head = "oof", self._oof_heads[update.reason or "match"]
        elif update.delta is not None:
            kind = "delta"
        line = head + batch.tail(kind, self.shape, at)
        self.strand.parts.append((self, update))
        self.strand.lines += self.encoding.records(
            "oof" if kind == "oof" else "p", [line], [update.seq]
        )

    def keys(self, updates: Sequence[Update]) -> list[Key]:
        """What queued updates are matched by."""
        return self.folding.keys(updates, self.tells_records)

    def fold(self, current: Update, new: Update) -> Update | Verdict:
        """What two queued updates that match become. Deltas are composed, never merged: a copy
        that is kept by them has to be the record."""
        return self.folding.fold(current, new, merges=not self.key.delta)

    # Lines of single updates.

    def line(self, update: Update) -> bytes | None:
        """The line of one update; None for one that says nothing to this feed."""
        if update.is_void:
            return None
        if update.new is None:
            return self._oof_line(update) if self.key.oof else None
        if self.key.no_empties and update.told and self._is_unseen(update):
            return None
        return self._whole_line(update) if update.delta is None else self._delta_line(update)

    def _is_unseen(self, update: Update) -> bool:
        """Whether the subscriber holds what it would be told."""
        if update.delta is not None:
            return not update.delta
        if update.old is None or update.new is None:
            return False
        if update.old == update.new or not self.topic.message_type.structured:
            return update.old == update.new
        old, new = map(self.topic.renderer.document, (update.old, update.new))
        return difference(self.shape.shown(old), self.shape.shown(new)) == {}

    def shortest_line(self, update: Update) -> bytes:
        """The line of one update; of a delta and the whole record the one with fewer bytes."""
        if update.new is None:
            return self._oof_line(update)
        whole = self._whole_line(update)
        if update.delta is None:
            return whole
        delta = self._delta_line(update)
        return delta if len(delta) < len(whole) else whole

    def _oof_line(self, update: Update) -> bytes:
        return self._line("oof", self._oof_heads[update.reason or "match"], update, update.last)

    def _whole_line(self, update: Update) -> bytes:
        return self._line("p", self._publish_head, update, update.new or b"")

    def _delta_line(self, update: Update) -> bytes:
        assert update.delta is not None
        assert update.new is not None
        renderer = self.topic.renderer
        body = renderer.delta(self.shape, update.delta, renderer.document(update.new))
        return self._line("delta", self._publish_head, update, body)

    def _line(self, kind: Kind, head: bytes, update: Update, body: bytes) -> bytes:
        seqs = [update.first_seq]
        columns = LineColumns(
            [self.topic.sow_key_of(update.identity)] if self.shape.sow_keys else [],
            [body],
            seqs,
            [update.first_ts_us],
        )
        lines = self.topic.renderer.lines(kind, self.shape, columns, head)
        return self.encoding.records("oof" if kind == "oof" else "p", lines, seqs)[0]
