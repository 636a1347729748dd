"""Lines: how one subscription says the updates of one topic.

`UpdateEncoder` words an update: it knows the subscription's name, what it wants to see of a record,
and by which rules two of its updates become one. It decides nothing: what there is to say is
decided by a feed (`sow.streaming.feeds`), and when it leaves by whoever queues it. What was said at
one time is a `Delivery`: one frame for all who share it, and the updates that it was made of should
it have to be folded.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from sow.core.changes import Reason
from sow.core.definitions import Policy
from sow.core.delta import difference
from sow.core.paths import Path, parse_path, value_at
from sow.protocol.encodings import Encoding
from sow.security.row_level_security import RowPolicy
from sow.streaming.windows.window_pages import PageStep
from sow.topic.batch import Batch
from sow.topic.queue_policy import Key, QueuePolicy, Verdict, key_of
from sow.topic.records import Records
from sow.topic.rendering import Kind, LineColumns, Shape
from sow.topic.updates import Update

FoldPlace = tuple[Records, QueuePolicy, Key]
"""What is folded into each other: updates that a topic's settings of the time call the same."""
Columns = tuple[Sequence[str], Sequence[bytes], Sequence[int], Sequence[int]]
"""Records that were published: identities, bodies, sequence numbers and times."""
Part = tuple["UpdateEncoder", Update | Columns]
"""Something that was said of one topic: a line, or one for each record."""


Reencode = Callable[["UpdateEncoder", Update], tuple["UpdateEncoder", Update] | None]
"""What becomes of an update that waits, and by what it is worded then; None: nothing is said."""


class WindowKey(NamedTuple):
    """The part of an ordered topic that a live window shows: the `top_n` records after the first
    `skip_n`, in the order that the text `order_by` says, else that of first publication.
    `positions`: its lines say the places of records in it."""

    order_by: str | None
    skip_n: int
    top_n: int
    positions: bool

    @property
    def end(self) -> int:
        """How many records, from the first in order, decide what is in it."""
        return self.skip_n + self.top_n


class FeedKey(NamedTuple):
    """What makes two subscriptions of a topic equal.

    `scope` names the subscription where equal filters are not enough to share a feed. `interval_us`
    is how long updates are conflated, `auto` for as long as the client takes. `window` is what it
    keeps to of what passes the filter, if not all. `guard` is what its user may see.
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


class UpdateEncoder:
    """A topic's updates in the words of the subscription `name`, which asked for them by `key`."""

    def __init__(self, topic: Records, name: str, encoding: Encoding, key: FeedKey) -> None:
        self.topic = topic
        self.name = name
        self.encoding = encoding
        self.key = key
        self.shape = key.shape
        self.reports_records = key.oof or key.delta
        """Subscribers are told of each record by itself: no other one's update may stand for it."""
        fields = tuple(map(parse_path, key.conflation_key))
        by_record = self.reports_records or set(fields) in (set(), set(topic.keys))
        # What is hidden is NULL, and a record without such a field is like none but itself.
        by_record |= key.guard is not None and any(map(key.guard.hides, fields))
        self.conflation_key: tuple[Path, ...] = () if by_record else fields
        """What the subscription has updates matched by; nothing where it is the record."""
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
        """The same where of a record that its user may not see now nothing new is told."""
        if update.new is not None and not self.may_see(update.new):
            return update._replace(new=None, reason="entitlement", parting=None, delta=None)
        if update.reason == "match" and not self.may_see(update.parting or b""):
            return update._replace(reason="entitlement", parting=None)
        return update

    def within(self, shape: Shape) -> "UpdateEncoder":
        """The same with no more of a record than another shape shows: what words its last state for
        a subscriber who was told it by that shape."""
        if shape == self.shape:
            return self
        key = self.key._replace(shape=self.shape.within(shape))
        return UpdateEncoder(self.topic, self.name, self.encoding, key)

    def as_sent(self, update: Update) -> Update:
        """The same where the state that its subscriber holds is what these lines have shown of
        it."""
        if not update.old or self.shape.select is None:
            return update
        (old,) = self.topic.renderer.shown(self.shape, [update.old])
        return update._replace(old=old)

    # Folding.

    @property
    def queue_policy(self) -> QueuePolicy:
        """How the topic's updates may be folded in a queue, as it is configured now."""
        return self.topic.folding

    def keys(self, updates: Sequence[Update]) -> list[Key]:
        """What queued updates are matched by: as in windows, if the subscription has said so."""
        if not self.conflation_key:
            return self.queue_policy.keys(updates, self.reports_records)
        parse, paths = self.topic.message_type.parse, self.conflation_key
        documents = [parse(update.new or b"") for update in updates]
        return [
            key_of([value_at(document, path) for path in paths], update.identity)
            for document, update in zip(documents, updates, strict=True)
        ]

    def fold(self, current: Update, new: Update) -> Update | Verdict:
        """What two queued updates that match become. Deltas are composed, never merged: a copy
        that is kept by them has to be the record."""
        return self.queue_policy.fold(current, new, merges=not self.key.delta)

    # Lines of a batch.

    def published(self, tails: Sequence[bytes], seqs: Sequence[int]) -> list[bytes]:
        """The lines of records that were published, from all that follows their heads."""
        head = self._publish_head
        return self.encoding.records("p", [head + tail for tail in tails], seqs)

    def of_batch(self, batch: Batch, at: int, update: Update) -> list[bytes]:
        """The line of the record at one place of a batch, whose update is this."""
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
        """The lines of records as they stand, told whole."""
        lines = self.topic.renderer.lines("p", self.shape, columns, self._publish_head)
        return self.encoding.records("p", lines, columns.seqs)

    def left(self, columns: LineColumns, reason: Reason = "match") -> list[bytes]:
        """The lines of records that are there and out of focus."""
        head = self._oof_head_of(reason)
        lines = self.topic.renderer.lines("oof", self.shape, columns, head)
        return self.encoding.records("oof", lines, columns.seqs)

    # Lines of single updates.

    def line(self, update: Update) -> bytes | None:
        """The line of one update; None for one that says nothing to this subscription."""
        if update.is_void:
            return None
        if update.new is None:
            return self._oof_line(update) if self.key.oof else None
        if self.key.no_empties and update.known and self._is_unseen(update):
            return None
        return self._whole_line(update) if update.delta is None else self._delta_line(update)

    def placed_line(self, update: Update, places: Sequence[int], moved: bool) -> bytes | None:
        """The same of a record in a window, with its place there if that is wanted; `moved`: it
        stands elsewhere now, so that there is something to say."""
        if update.new is None:
            return self._oof_line(update, places)
        if self.key.no_empties and not moved and update.known and self._is_unseen(update):
            return None
        if update.delta is None:
            return self._whole_line(update, places)
        return self._delta_line(update, places)

    def _is_unseen(self, update: Update) -> bool:
        """Whether the subscriber holds what it would be told."""
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

    def _oof_line(self, update: Update, places: Sequence[int] = ()) -> bytes:
        body = update.last
        if not body and update.reason == "entitlement":
            # Nobody knows what it was told: a topic that stores nothing.
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
        seqs = [update.first_seq]
        columns = LineColumns(
            [self.topic.sow_key_of(update.identity)] if self.shape.sow_keys else [],
            [body],
            seqs,
            [update.first_ts_us],
            places,
        )
        lines = self.topic.renderer.lines(kind, self.shape, columns, head)
        return self.encoding.records("oof" if kind == "oof" else "p", lines, seqs)[0]


class Delivery:
    """What a subscription says at one time: a frame, and what it was made of.

    Shared by all sessions that have it in their outbox. Its topics have one `policy` towards
    folding; `policy` is that of lines that were made of no updates. Each of its forms is made
    once, when somebody wants it.
    """

    __slots__ = (
        "_encoding",
        "_folded",
        "_frame",
        "_keyed",
        "_parts",
        "_rendered",
        "message_count",
        "name",
        "policy",
        "steps",
    )

    def __init__(
        self,
        name: str,
        encoding: Encoding,
        rendered: list[bytes],
        parts: list[Part],
        policy: Policy = "always",
    ) -> None:
        self.name = name
        self.message_count = len(rendered)
        self.policy: Policy = parts[0][0].queue_policy.policy if parts else policy
        self.steps: Sequence[PageStep] = ()
        """Of a live window: from the page before it to the one after it."""
        self._encoding = encoding
        self._rendered = rendered
        self._parts = parts
        self._frame: bytes | None = None
        self._folded: Delivery | None = None
        self._keyed: list[tuple[UpdateEncoder, FoldPlace, Update]] | None = None

    @property
    def frame(self) -> bytes:
        """The lines as one frame."""
        if self._frame is None:
            self._frame = self._encoding.frame(self._rendered)
            self._rendered = []
        return self._frame

    def folded(
        self, fold: "Callable[[Delivery], list[tuple[UpdateEncoder, Update]]]"
    ) -> "Delivery":
        """The same with its updates folded by `fold`, for sessions that conflate as they queue;
        without lines if what came and went at once leaves nothing to say."""
        if self._folded is None:
            keyed = self.keyed()
            if len({place for _, place, _ in keyed}) == len(keyed):
                self._folded = self
            else:
                left = fold(self)
                rendered = [lines.shortest_line(update) for lines, update in left]
                self._folded = Delivery(self.name, self._encoding, rendered, [*left])
        return self._folded

    def lead(self, steps: Sequence[PageStep]) -> None:
        """It leads from one page of a live window to another one by these steps."""
        self.steps = steps

    def reencoded(self, told: Reencode) -> "Delivery":
        """What becomes of it where each update may be told otherwise."""
        said = [(lines, update) for lines, _, update in self.keyed()]
        others = [told(*one) for one in said]
        if others == said:
            return self
        parts: list[tuple[UpdateEncoder, Update]] = []
        rendered: list[bytes] = []
        for one in others:
            line = None if one is None else one[0].line(one[1])
            if one is not None and line is not None:
                parts.append(one)
                rendered.append(line)
        return Delivery(self.name, self._encoding, rendered, [*parts], self.policy)

    @property
    def is_dated(self) -> bool:
        """A topic's policy has been changed since; what is said before and after may be folded by
        the new one."""
        parts = self._parts if self._keyed is None else self._keyed
        return any(part[0].queue_policy.policy != self.policy for part in parts)

    def keyed(self) -> list[tuple[UpdateEncoder, FoldPlace, Update]]:
        """Each update, made only when somebody needs them, with what it is matched by."""
        if self._keyed is None:
            self._keyed = []
            for lines, run in groupby(self._parts, lambda part: part[0]):
                updates = [update for _, said in run for update in updates_of(said)]
                self._keyed += [
                    (lines, (lines.topic, lines.queue_policy, key), update)
                    for key, update in zip(lines.keys(updates), updates, strict=True)
                ]
            self._parts = []
        return self._keyed


def updates_of(said: Update | Columns) -> Sequence[Update]:
    """What was said as single updates."""
    if isinstance(said, Update):
        return (said,)
    return [
        Update(identity, False, new, seq, ts_us, seq, ts_us)
        for identity, new, seq, ts_us in zip(*said, strict=True)
    ]
