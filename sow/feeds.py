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

Equal subscriptions are one feed with several members. Its lines gather until `flush`, which makes
one `Delivery` whose frame is the same bytes for every member. A feed with a conflator
(`sow.pacing`) holds its updates back until they are released.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sow.batch import Batch, Kind
from sow.expressions import Filter
from sow.folding import Folding, Key
from sow.rendering import Shape, delta_body, document_of, line_tails, shown_bodies
from sow.sessions import Session
from sow.updates import Update
from sow.wire import Encoding

if TYPE_CHECKING:
    from sow.keyed_topic import KeyedTopic

Columns = tuple[Sequence[str], Sequence[bytes], Sequence[int], Sequence[int]]


class FeedKey(NamedTuple):
    """What makes two subscriptions of a topic equal.

    `scope` names the subscription where equal filters are not enough to share a feed. `interval_us`
    is how long updates are conflated, `auto` for as long as the client takes. `resumable`: clients
    go on from the bookmarks of its lines, so a folded line carries its first one.
    """

    filter: str | None = None
    oof: bool = False
    delta: bool = False
    no_empties: bool = False
    accounts: bool = False
    interval_us: int | None = None
    auto: bool = False
    conflation_key: tuple[str, ...] = ()
    resumable: bool = False
    shape: Shape = Shape()
    encoding: str = "lines"
    scope: str = ""


class Delivery:
    """What a feed says at one time: a frame, and what it was made of should it have to be folded.

    Shared by all sessions that have it in their outbox.
    """

    __slots__ = ("_columns", "_keyed", "_updates", "feed", "frame", "messages")

    def __init__(
        self,
        feed: "Feed",
        lines: list[bytes],
        updates: list[Update] | None,
        columns: list[Columns],
    ) -> None:
        self.feed = feed
        self.frame = feed.encoding.frame(lines)
        self.messages = len(lines)
        self._updates = updates
        self._columns = columns
        self._keyed: list[tuple[Key | None, Update]] | None = None

    def keyed(self) -> list[tuple[Key | None, Update]]:
        """Each update with what it is matched by."""
        if self._keyed is None:
            updates = self.updates()
            keys = self.feed.folding.keys(updates, self.feed.key.delta)
            self._keyed = list(zip(keys, updates, strict=True))
        return self._keyed

    def updates(self) -> list[Update]:
        """The updates of a plain feed are made only when somebody needs them."""
        if self._updates is None:
            self._updates = [
                Update(identity, False, new, seq, ts_us, seq, ts_us)
                for columns in self._columns
                for identity, new, seq, ts_us in zip(*columns, strict=True)
            ]
            self._columns.clear()
        return self._updates


class Feed:
    """One distinct subscription of a topic and the sessions that share it."""

    def __init__(
        self,
        name: str,
        topic: "KeyedTopic",
        key: FeedKey,
        condition: Filter | None,
        encoding: Encoding,
    ) -> None:
        self.name = name
        self.topic = topic
        self.key = key
        self.condition = condition
        self.shape = key.shape
        self.encoding = encoding
        self.members: dict[Session, None] = {}
        self.told: set[str] | None = set() if key.accounts else None
        self.wants_old = key.oof or key.delta or key.accounts
        """Records that were in focus matter, whether they still are or not."""
        self._needs_old = self.wants_old and not key.accounts
        self._batched = not self.wants_old
        self._lines: list[bytes] = []
        self._updates: list[Update] = []
        self._columns: list[Columns] = []
        self._publish_head = topic.line_head("p", name)
        self._oof_heads = {
            reason: topic.line_head("oof", name, reason=reason)
            for reason in ("match", "deleted", "expired")
        }

    @property
    def folding(self) -> Folding:
        """How the topic's updates may be folded in a queue."""
        return self.topic.folding

    def due_us(self) -> int | None:
        """When the feed next has something to do by itself: never."""
        return None

    def release(self, now_us: int) -> None:
        """Do what is due: nothing."""

    @property
    def waiting(self) -> bool:
        """There are lines that `flush` would hand out."""
        return bool(self._lines)

    def can_be_joined(self) -> bool:
        """A newcomer would be in the same position as those who are here."""
        return not self.told

    def join_at(self, session: Session, _seq: int) -> None:
        """Add a member that knows everything up to a bookmark; what gathered was handed out."""
        self.members[session] = None

    def leave(self, session: Session) -> None:
        """Take a member out."""
        self.members.pop(session, None)

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
        """The engine has to look after this feed, because of what it has heard."""
        return bool(self._lines)

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
        self._columns.append(columns)
        head = self._publish_head
        self._lines += self.encoding.records("p", [head + tail for tail in tails], columns[2])

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
        elif was and self.key.oof:
            self._take(batch, at, self._update(batch, at, was, left=True), now_us)

    def _update(self, batch: Batch, at: int, was: bool, left: bool = False) -> Update:
        changes = batch.changes
        seq, ts_us, identity = changes.seqs[at], changes.ts_us[at], changes.identities[at]
        if left:
            reason = changes.reason or "match"
            parting = batch.parting(at)
            return Update(identity, was, None, seq, ts_us, seq, ts_us, reason, parting)
        assert changes.news is not None
        delta = batch.delta(self.shape, at) if was and self.key.delta else None
        return Update(identity, was, changes.news[at], seq, ts_us, seq, ts_us, delta=delta)

    def _take(self, batch: Batch, at: int, update: Update, _now_us: int) -> None:
        """An update that this feed has to say."""
        kind: Kind = "p"
        head = self._publish_head
        if update.new is None:
            kind, head = "oof", self._oof_heads[update.reason or "match"]
        elif update.delta is not None:
            kind = "delta"
        self._updates.append(update)
        line = head + batch.tail(kind, self.shape, at)
        self._lines += self.encoding.records("oof" if kind == "oof" else "p", [line], [update.seq])

    # Saying.

    def flush(self, group: int, now_us: int) -> None:
        """Hand the gathered lines to every member as one shared frame."""
        if self._lines:
            delivery = self._deliver()
            # What came and went within one batch may leave nothing to say.
            for session in self.members if delivery.messages else ():
                session.deliver(delivery, group, now_us)

    def collect(self) -> list[bytes]:
        """The lines that `flush` would hand out, for a feed without members."""
        lines, self._lines = self._lines, []
        self._columns, self._updates = [], []
        return lines

    def _deliver(self) -> Delivery:
        lines, self._lines = self._lines, []
        columns, self._columns = self._columns, []
        updates, self._updates = self._updates, []
        delivery = Delivery(self, lines, None if columns else updates, columns)
        if self.folding.policy == "always":
            return self._folded(delivery)
        return delivery

    def _folded(self, delivery: Delivery) -> Delivery:
        """The same with at most one update of each record, for topics that are always conflated."""
        keyed = delivery.keyed()
        if len({key for key, _ in keyed}) == len(keyed) or not self.folding.matches_records:
            return delivery
        newest: dict[Key | None, Update] = {}
        for key, update in keyed:
            folded = self.folding.fold(newest[key], update) if key in newest else update
            if isinstance(folded, str):
                return delivery
            newest[key] = folded
        updates = [update for update in newest.values() if not update.is_void]
        return Delivery(self, [self.shortest_line(update) for update in updates], updates, [])

    # Lines of single updates.

    def line(self, update: Update) -> bytes | None:
        """The line of one update; None for one that says nothing to this feed."""
        if update.is_void:
            return None
        if update.new is None:
            return self._oof_line(update)
        if update.delta is None:
            return self._whole_line(update)
        if self.key.no_empties and not update.delta:
            return None
        return self._delta_line(update)

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
        (body,) = shown_bodies(self.topic, self.shape, [update.parting or b""])
        return self._line("oof", self._oof_heads[update.reason or "match"], update, body)

    def _whole_line(self, update: Update) -> bytes:
        (body,) = shown_bodies(self.topic, self.shape, [update.new or b""])
        return self._line("p", self._publish_head, update, body)

    def _delta_line(self, update: Update) -> bytes:
        assert update.delta is not None
        assert update.new is not None
        document = document_of(self.topic, update.new)
        body = delta_body(self.topic, self.shape, update.delta, document)
        return self._line("p", self._publish_head, update, body, delta=True)

    def _line(
        self, kind: str, head: bytes, update: Update, body: bytes, delta: bool = False
    ) -> bytes:
        seq = update.first_seq if self.key.resumable else update.seq
        (tail,) = line_tails(
            self.topic,
            self.shape,
            [self.topic.sow_key_of(update.identity)] if self.shape.sow_keys else [],
            [body],
            None if kind == "oof" else [seq],
            [update.first_ts_us],
            delta,
        )
        return self.encoding.records(kind, [head + tail], [seq])[0]
