"""Update encoder: how one subscription's lines show the updates of one topic.

An `UpdateEncoder` knows the subscription's name, what it selects of a record, and how two of its
updates are folded. It decides nothing: a feed (`sow.streaming.feeds`) decides what to send, and
queues decide when.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sow.core.delta import difference
from sow.core.paths import Path, parse_path, value_at
from sow.protocol.replies import Encoding
from sow.security.row_level_security import RowPolicy
from sow.topic.batch import Batch, Reason, Update, marked
from sow.topic.queue_policy import Key, QueuePolicy, Verdict, key_of
from sow.topic.records import Records
from sow.topic.rendering import Kind, LineColumns, Shape

Columns = tuple[Sequence[str], Sequence[bytes], Sequence[int], Sequence[int]]
"""Published records: identities, bodies, sequence numbers and times."""


class WindowKey(NamedTuple):
    """The part of an ordered topic that a live window shows: the `top_n` records after the first
    `skip_n`, in the order of `order_by`, else that of first publication. `positions`: its lines
    have the positions of records in it."""

    order_by: str | None
    skip_n: int
    top_n: int
    positions: bool

    @property
    def end(self) -> int:
        """How many records, from the first in order, determine what is in it."""
        return self.skip_n + self.top_n


class FeedKey(NamedTuple):
    """What makes two subscriptions of a topic equal.

    `scope` names the subscription where equal filters are not enough to share a feed. `interval_us`
    is how long updates are conflated; `auto`: as long as the client reads. `window` is the part of
    what passes the filter, if not all. `guard` is what its user may see.
    `withdrawn`: without `oof`, what its user may see no longer is reported all the same.
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
    window: WindowKey | None = None
    guard: RowPolicy | None = None
    withdrawn: bool = False

    @property
    def reports_withdrawn(self) -> bool:
        """Records that changed rights take away are reported."""
        return self.oof or self.withdrawn


def withdrawn(update: Update) -> Update:
    """What is sent instead of an update whose record the user may not see: that it has left."""
    return update._replace(new=None, reason="entitlement", parting=None, delta=None)


class UpdateEncoder:
    """Encodes a topic's updates for the subscription `name` with the options `key`."""

    __slots__ = (
        "_oof_heads", "_publish_head", "conflation_key", "encoding", "key", "name",
        "reports_records", "shape", "topic",
    )  # fmt: skip

    def __init__(self, topic: Records, name: str, encoding: Encoding, key: FeedKey) -> None:
        self.topic = topic
        self.name = name
        self.encoding = encoding
        self.key = key
        self.shape = key.shape
        self.reports_records = key.oof or key.delta
        """Each record is reported by itself: no other record's update may replace its update."""
        fields = tuple(map(parse_path, key.conflation_key))
        by_record = self.reports_records or set(fields) in (set(), set(topic.keys))
        # A hidden field is NULL, and a record without such a field matches only itself.
        by_record |= key.guard is not None and any(map(key.guard.hides, fields))
        self.conflation_key: tuple[Path, ...] = () if by_record else fields
        """The fields that the subscription matches updates by; empty where it is the record."""
        self._publish_head = topic.renderer.head("p", name)
        self._oof_heads: dict[Reason, bytes] = {}

    def may_see(self, body: bytes) -> bool:
        """Whether its user may see a record in this state."""
        guard = self.key.guard
        if guard is None or guard.rows is None:
            return True
        columns = self.topic.decoder(guard.rows.paths).columns([body])
        return guard.rows.matches(columns, 1)[0]

    def as_seen(self, update: Update) -> Update:
        """The update without any state that its user may not see now."""
        if update.new is not None and not self.may_see(update.new):
            return withdrawn(update)
        if update.reason == "match" and not self.may_see(update.parting or b""):
            return update._replace(reason="entitlement", parting=None)
        return update

    def within(self, shape: Shape) -> "UpdateEncoder":
        """An encoder that shows no more of a record than another shape: for the last state of a
        record that was sent to the subscriber in that shape."""
        if shape == self.shape:
            return self
        key = self.key._replace(shape=self.shape.within(shape))
        return UpdateEncoder(self.topic, self.name, self.encoding, key)

    def as_sent(self, update: Update) -> Update:
        """The update with the old state as these lines have shown it to the subscriber."""
        if not update.old or self.shape.select is None:
            return update
        (old,) = self.topic.renderer.shown(self.shape, [update.old])
        return update._replace(old=old)

    # Folding.

    @property
    def queue_policy(self) -> QueuePolicy:
        """How the topic's updates may be folded in a queue, as configured now."""
        return self.topic.folding

    def keys(self, updates: Sequence[Update]) -> list[Key]:
        """The keys by which queued updates match: as in windows, if the subscription has them."""
        if not self.conflation_key:
            return self.queue_policy.keys(updates, self.reports_records)
        parse, paths = self.topic.message_type.parse, self.conflation_key
        documents = [parse(update.new or b"") for update in updates]
        return [
            key_of([value_at(document, path) for path in paths], update.identity)
            for document, update in zip(documents, updates, strict=True)
        ]

    def fold(self, current: Update, new: Update) -> Update | Verdict:
        """Fold two queued updates that match. Deltas are composed, never merged: a client that
        applies them has to hold the record."""
        return self.queue_policy.fold(current, new, merges=not self.key.delta)

    # Lines of a batch.

    def published(self, tails: Sequence[bytes], seqs: Sequence[int]) -> list[bytes]:
        """The lines of published records, from the parts that follow their heads."""
        head = self._publish_head
        return self.encoding.records("p", [head + tail for tail in tails], seqs)

    def of_batch(self, batch: Batch, at: int, update: Update) -> list[bytes]:
        """The line of the record at one place of a batch, with this update."""
        kind: Kind = "p"
        head = self._publish_head
        if update.new is None:
            if update.reason == "entitlement":
                return [self._oof_line(update)]
            kind, head = "oof", self._oof_head(update)
        elif update.delta is not None:
            kind = "delta"
        line = head + batch.tail(kind, self.shape, at)
        return self.encoding.records("oof" if kind == "oof" else "p", [line], [update.seq])

    # Lines of many records.

    def answer(self, columns: LineColumns) -> list[bytes]:
        """The lines of records in an answer."""
        head = self.topic.renderer.head("sow", self.name)
        lines = self.topic.renderer.lines("sow", self.shape, columns, head)
        return self.encoding.records("sow", lines, columns.seqs)

    def stand(self, columns: LineColumns) -> list[bytes]:
        """The lines of records as they are, whole."""
        lines = self.topic.renderer.lines("p", self.shape, columns, self._publish_head)
        return self.encoding.records("p", lines, columns.seqs)

    def left(self, columns: LineColumns, reason: Reason = "match") -> list[bytes]:
        """The lines of records that exist and are out of focus."""
        head = self._oof_head_of(reason)
        lines = self.topic.renderer.lines("oof", self.shape, columns, head)
        return self.encoding.records("oof", lines, columns.seqs)

    # Lines of single updates.

    def line(self, update: Update) -> bytes | None:
        """The line of one update; None if it has none in this subscription."""
        if update.is_void:
            return None
        if update.new is None:
            is_withdrawn = update.reason == "entitlement" and self.key.withdrawn
            return self._oof_line(update) if self.key.oof or is_withdrawn else None
        if self.key.no_empties and update.known and self._is_unseen(update):
            return None
        return self._whole_line(update) if update.delta is None else self._delta_line(update)

    def placed_line(self, update: Update, places: Sequence[int], moved: bool) -> bytes | None:
        """The line of an update in a window, with its position if requested; `moved`: its position
        has changed, so there is a line for it."""
        if update.new is None:
            return self._oof_line(update, places)
        if self.key.no_empties and not moved and update.known and self._is_unseen(update):
            return None
        if update.delta is None:
            return self._whole_line(update, places)
        return self._delta_line(update, places)

    def _is_unseen(self, update: Update) -> bool:
        """Whether the subscriber already holds what the line would show."""
        if update.delta is not None:
            return not update.delta
        if update.old is None or update.new is None:
            return False
        if update.old == update.new or not self.topic.message_type.partial:
            return update.old == update.new
        renderer = self.topic.renderer
        old, new = map(renderer.document, (update.old, update.new))
        shown_of = renderer.shown_of
        return difference(shown_of(self.shape, old), shown_of(self.shape, new)) == {}

    def shortest_line(self, update: Update) -> bytes:
        """The line of one update; of a delta and the whole record the one with fewer bytes."""
        if update.new is None:
            return self._oof_line(update)
        whole = self._whole_line(update)
        if update.delta is None:
            return whole
        delta = self._delta_line(update)
        return delta if len(delta) < len(whole) else whole

    def grown(self, before: Update, after: Update) -> int | None:
        """By how many bytes both the shortest line and the states of an update are longer than of
        the one before it in its place; None: only the line says it."""
        old, new = before.new, after.new
        if not old or not new or self.topic.message_type.name != "json":
            return None
        if before.delta is not None or after.delta is not None or self.shape.select is not None:
            return None
        if before.old is not after.old or before.parting is not after.parting:
            return None
        place = before.identity, before.first_seq, before.first_ts_us, before.mark
        if place != (after.identity, after.first_seq, after.first_ts_us, after.mark):
            return None
        return len(new) - len(old)

    def again(self, content: Update | Columns) -> list[bytes]:
        """The lines of what was sent, once more."""
        if not isinstance(content, Update):
            identities, bodies, seqs, ts_us = content
            keys = [*map(self.topic.sow_key_of, identities)] if self.shape.sow_keys else []
            return self.stand(LineColumns(keys, bodies, seqs, ts_us))
        if content.new is None:
            return [self._oof_line(content)]
        delta = content.delta is not None
        return [self._delta_line(content) if delta else self._whole_line(content)]

    def _oof_line(self, update: Update, places: Sequence[int] = ()) -> bytes:
        body = update.last
        if not body and update.reason == "entitlement":
            # What was sent of it is unknown: a topic that stores nothing.
            body = self.topic.message_type.encode({})
        return self._line("oof", self._oof_head(update), update, body, places)

    def _oof_head(self, update: Update) -> bytes:
        return self._oof_head_of(update.reason or "match")

    def _oof_head_of(self, reason: Reason) -> bytes:
        head = self._oof_heads.get(reason)
        if head is None:
            head = self.topic.renderer.head("oof", self.name, reason=reason)
            self._oof_heads[reason] = head
        return head

    def _whole_line(self, update: Update, places: Sequence[int] = ()) -> bytes:
        return self._line("p", self._publish_head, update, update.new or b"", places)

    def _delta_line(self, update: Update, places: Sequence[int] = ()) -> bytes:
        assert update.delta is not None
        assert update.new is not None
        renderer = self.topic.renderer
        body = renderer.delta(self.shape, update.delta, renderer.document(update.new))
        return self._line("delta", self._publish_head, update, body, places)

    def _line(
        self, kind: Kind, head: bytes, update: Update, body: bytes, places: Sequence[int] = ()
    ) -> bytes:
        key = self.topic.sow_key_of(update.identity) if self.shape.sow_keys else ""
        place = update.first_seq, update.first_ts_us
        line = self.topic.renderer.line(kind, self.shape, head, key, body, place, places)
        if update.mark and kind != "oof":
            line = marked(line, update.mark)
        return self.encoding.records("oof" if kind == "oof" else "p", [line], place[:1])[0]
