"""Feeds: a subscription's view of a topic's changes, evaluated once for all who share it.

A *batch* is one set of changes with everything that can be worked out about it at most once:
columns of the fields that filters name, SowKeys, rendered line tails. A *feed* projects a batch
through its filter. What to say of a change is read off one table:

    before   after      say
    no       yes        p       came into focus
    yes      yes        p       changed
    yes      no         oof     left focus (only to feeds that asked)
    no       no         nothing

Equal subscriptions are one feed with several members. Its lines gather until `flush`, which
builds one frame and hands the same bytes to every member.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sow.changes import Changes
from sow.expressions import Filter
from sow.messages.base import Column
from sow.paths import Path, Value
from sow.sessions import Session
from sow.wire import Encoding, quoted, record_lines

if TYPE_CHECKING:
    from sow.keyed_topic import KeyedTopic


class Shape(NamedTuple):
    """How a subscription wants its lines."""

    sow_keys: bool = True
    timestamps: bool = False


class FeedKey(NamedTuple):
    """What makes two subscriptions of a topic equal."""

    filter: str | None
    oof: bool
    shape: Shape
    encoding: str


class Batch:
    """Changes of one topic while they are routed; everything derived is derived once."""

    def __init__(self, topic: "KeyedTopic", changes: Changes, columns: dict[Path, Column]) -> None:
        self.topic = topic
        self.changes = changes
        self._columns = columns
        self._old_columns: dict[Path, Column] = {}
        self._keys: list[bytes] | None = None
        self._tails: dict[tuple[str, Shape], list[bytes]] = {}
        self._single_tails: dict[tuple[str, Shape, int], bytes] = {}

    def __len__(self) -> int:
        return len(self.changes)

    def column(self, path: Path) -> Column:
        """Values of a field in the new states; only for batches that have them."""
        assert self.changes.news is not None
        column = self._columns.get(path)
        if column is None:
            (column,) = self.topic.decoder((path,)).columns(self.changes.news)
            self._columns[path] = column
        return column

    def old_column(self, path: Path) -> Column:
        """Values of a field in the old states; None where there was none."""
        column = self._old_columns.get(path)
        if column is None:
            olds = self.changes.olds
            there = [old for old in olds if old is not None]
            (found,) = self.topic.decoder((path,)).columns(there)
            if len(there) == len(olds):
                column = found
            else:
                values = iter(found)
                column = [None if old is None else next(values) for old in olds]
            self._old_columns[path] = column
        return column

    def new_focus(self, condition: Filter | None) -> Sequence[bool]:
        """Which records pass the filter in their new state."""
        count = len(self)
        if self.changes.news is None:
            return [False] * count
        if condition is None:
            return [True] * count
        return condition.matches([self.column(path) for path in condition.paths], count)

    def old_focus(self, condition: Filter | None) -> Sequence[bool]:
        """Which records passed the filter in their old state."""
        olds = self.changes.olds
        if condition is None:
            return [old is not None for old in olds]
        matched = condition.matches([self.old_column(path) for path in condition.paths], len(self))
        return [hit and old is not None for hit, old in zip(matched, olds, strict=True)]

    def tails(self, kind: str, shape: Shape) -> list[bytes]:
        """Record lines of all changes but for their head, which names the subscription."""
        tails = self._tails.get((kind, shape))
        if tails is None:
            tails = self._tails[kind, shape] = self._render(kind, shape, range(len(self)))
        return tails

    def tail(self, kind: str, shape: Shape, at: int) -> bytes:
        """One record's line but for its head, for feeds that want few of a batch."""
        tails = self._tails.get((kind, shape))
        if tails is not None:
            return tails[at]
        cached = self._single_tails.get((kind, shape, at))
        if cached is None:
            cached = self._render(kind, shape, [at])[0]
            self._single_tails[kind, shape, at] = cached
        return cached

    def row(self, paths: Sequence[Path], at: int, old: bool = False) -> list[Value]:
        """Values of some fields of one record."""
        column = self.old_column if old else self.column
        return [column(path)[at] for path in paths]

    def keys(self) -> list[bytes]:
        """SowKeys as JSON text."""
        if self._keys is None:
            changes = self.changes
            self._keys = quoted(self.topic.table.sow_keys(changes.slots, changes.identities))
        return self._keys

    def _render(self, kind: str, shape: Shape, places: Sequence[int]) -> list[bytes]:
        changes = self.changes
        keys, bodies = self.keys(), self._bodies(kind)
        return record_lines(
            b"",
            [keys[at] for at in places] if shape.sow_keys else None,
            self.topic.line_bodies([bodies[at] for at in places]),
            [changes.seqs[at] for at in places] if kind == "p" else None,
            [changes.ts_us[at] for at in places] if shape.timestamps else None,
        )

    def _bodies(self, kind: str) -> Sequence[bytes]:
        """What a line carries: the new state; in an oof of a record that left, the last one."""
        changes = self.changes
        if kind == "p" or changes.news is not None:
            assert changes.news is not None
            return changes.news
        return changes.partings or [old or b"" for old in changes.olds]


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
        self.oof = key.oof
        self.shape = key.shape
        self.encoding = encoding
        self.members: dict[Session, None] = {}
        self._lines: list[bytes] = []
        self._publish_head = topic.line_head("p", name)
        self._oof_heads = {
            reason: topic.line_head("oof", name, reason=reason)
            for reason in ("match", "deleted", "expired")
        }

    @property
    def waiting(self) -> bool:
        """There are lines that `flush` would hand out."""
        return bool(self._lines)

    def hear(self, batch: Batch) -> bool:
        """Take in what a batch of changes means for this feed; True when there is something."""
        if not self.oof:
            if batch.changes.news is not None:
                self._hear_updates(batch)
        else:
            self._hear_focus(batch)
        return bool(self._lines)

    def _hear_updates(self, batch: Batch) -> None:
        tails = batch.tails("p", self.shape)
        seqs = batch.changes.seqs
        if self.condition is not None:
            hits = [at for at, hit in enumerate(batch.new_focus(self.condition)) if hit]
            if not hits:
                return
            tails = [tails[at] for at in hits]
            seqs = [seqs[at] for at in hits]
        head = self._publish_head
        self._lines += self.encoding.records("p", [head + tail for tail in tails], seqs)

    def _hear_focus(self, batch: Batch) -> None:
        before = batch.old_focus(self.condition)
        after = batch.new_focus(self.condition)
        for at, (was, now) in enumerate(zip(before, after, strict=True)):
            self._say(batch, at, was, now)

    def hear_at(self, batch: Batch, places: Sequence[int]) -> bool:
        """Take in the records at these places; no other record of the batch concerns this feed."""
        condition = self.condition
        assert condition is not None
        changes = batch.changes
        for at in places:
            now = changes.news is not None and (
                condition.truth(batch.row(condition.paths, at)) is True
            )
            was = (
                self.oof
                and changes.olds[at] is not None
                and condition.truth(batch.row(condition.paths, at, old=True)) is True
            )
            self._say(batch, at, was, now)
        return bool(self._lines)

    def _say(self, batch: Batch, at: int, was: bool, now: bool) -> None:
        """The table at the top of this module, for one record."""
        if now:
            kind, head = "p", self._publish_head
        elif was:
            kind, head = "oof", self._oof_heads[batch.changes.reason or "match"]
        else:
            return
        line = head + batch.tail(kind, self.shape, at)
        self._lines += self.encoding.records(kind, [line], [batch.changes.seqs[at]])

    def flush(self, group: int) -> None:
        """Hand the gathered lines to every member as one shared frame."""
        if self._lines:
            lines, self._lines = self._lines, []
            frame = self.encoding.frame(lines)
            for session in self.members:
                session.deliver(frame, len(lines), group)
