"""A batch: one set of changes on its way; and an update: one change as a subscriber gets it.

A change is (record, old, new). No old: it was inserted; no new: it left. One batch holds one
kind: all records have a new state, or all of them left for the same reason. Deliveries,
conflation, indexes and out-of-focus messages are all read off these columns (`Changes`).

Whatever can be derived from the changes is computed at most once, on demand: columns of the fields
that filters name, deltas, rendered lines. Feeds, conflated copies and the feed index all read from
the same batch.

An update has the state that the subscriber holds (`known`: it holds one, and `old`: which) and the
state that is true now (`new`). Folding two updates of one record keeps the held state of the first
and the new state of the second, so the result is exact however many are folded:

    known    new      line
    -        -        none: it came and went unseen
    -        yes      p, the whole record
    yes      yes      p, whole or as a delta
    yes      -        oof

An update knows nothing of sessions, queues or time; `sow.streaming.feeds` makes and renders them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from weakref import WeakSet

import numpy as np

from sow.core.delta import Document, composed, difference, differing
from sow.core.paths import Path, Value
from sow.expressions import UNSTEADY, Filter, MessageColumns, OrderTerm, Trait
from sow.messages.base import Column, Decoder
from sow.store.memory import Table
from sow.topic.rendering import Kind, LineColumns, Renderer, Shape

Reason = Literal["match", "deleted", "expired", "entitlement"]


@dataclass(slots=True)
class Changes:
    """Columns of equal length. `slots` are places in the topic's table, valid while routed.

    `news` is None when the records left; `reason` then says why, and `partings` are the bodies
    that made them leave (reason ``match`` only: the state that no longer matches). `stood` are the
    places in the topic's order that records had before, where they may have got others.
    """

    topic: str
    identities: Sequence[str]
    slots: Sequence[int]
    olds: Sequence[bytes | None]
    news: Sequence[bytes] | None
    seqs: Sequence[int]
    ts_us: Sequence[int]
    reason: Reason | None = None
    partings: Sequence[bytes] | None = None
    stood: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.identities)

    def come_from(self, stood: Sequence[int]) -> None:
        """Set where in the topic's order records were before; new ones where they are."""
        self.stood = stood


class Edit(NamedTuple):
    """A change that replaces an event of a series: its number, and whether it is the newest of its
    record, which has then changed. Otherwise the old state is what the event was, and only who
    follows the events hears of it."""

    event: int
    is_newest: bool

    @property
    def mark(self) -> bytes:
        """What the lines of the change have at their end."""
        past = b"" if self.is_newest else b',"past":true'
        return b',"edit":true,"seq":%d%b' % (self.event, past)


Select = tuple[str, ...] | None
ALL = slice(None)
ALL_AT_ONCE = 16
"""Rendering one line takes about as long as this many that are rendered together: once that part
of a batch was requested one by one, all the rest is rendered at once."""

SELECTED_BYTES_MAX = 8 * 1024**2
"""So much is kept of lines and deltas by select lists, for others with the same one, by all batches
together: a thousand followers with lists of their own would otherwise take each batch that they are
late with a thousand times, until the last of them has it."""
SELECTED_DELTA_BYTES = 300
"""What a delta takes of that, with its place."""
SELECTED_FIELD_BYTES = 100
"""What a field of a delta takes of that, approximately."""


class _Selected:
    """What batches keep by select lists, bounded for all of them together."""

    def __init__(self) -> None:
        self.bytes = 0
        self._batches = WeakSet["Batch"]()

    def keep(self, batch: "Batch", size: int) -> None:
        """A batch is about to keep so much more; nothing else is kept once it is too much."""
        self.bytes += size
        if self.bytes > SELECTED_BYTES_MAX:
            self.bytes = size
            for one in self._batches:
                one.forget_selected()
            self._batches.clear()
        self._batches.add(batch)


SELECTED = _Selected()


class Batch:
    """Changes of one topic while they are routed.

    `columns` are fields of the new states that are known already. `decoder` gives a decoder of any
    paths, `sow_keys` the SowKeys of records by their slots and identities. `is_logged`: the numbers
    of the changes are bookmarks.
    """

    turn_us: int | None = None
    """When what it is made of was due, of a copy or a view of copies: a server may be late."""
    edit: Edit | None = None
    """What it is in a series, if it is one change that replaces an event."""
    _traits: dict[tuple[Trait, bool], Column] | None = None
    """Made for the first filter that uses one."""
    _keys: list[str] | None = None
    _places: tuple[list[int], list[int] | None] | None = None
    _states: list[tuple[bytes, int, int]] | None = None
    # What few batches have is in none of them until then: one is made for every publish.

    def __init__(
        self,
        changes: Changes,
        columns: dict[Path, Column],
        renderer: Renderer,
        decoder: Callable[[tuple[Path, ...]], Decoder],
        sow_keys: Callable[[Sequence[int], Sequence[str]], list[str]],
        is_logged: bool = False,
    ) -> None:
        self.changes = changes
        self.marks = changes.seqs
        """The bookmarks that its lines carry."""
        self._renderer = renderer
        self._decoder = decoder
        self._sow_keys = sow_keys
        self._is_logged = is_logged
        self._columns = columns
        self._old_columns: dict[Path, Column] = {}
        self._documents: dict[int, tuple[Document, Document]] = {}
        self._deltas: dict[tuple[Select, int], Document | None] = {}
        self._tails: dict[tuple[Kind, Shape], list[bytes]] = {}
        self._single_tails: dict[tuple[Kind, Shape], dict[int, bytes]] = {}

    def be_edit(self, edit: Edit) -> None:
        """Set what it is in a series."""
        self.edit = edit

    def __len__(self) -> int:
        return len(self.changes.identities)

    def be_due_at(self, turn_us: int | None) -> None:
        """Set when what it is made of was due."""
        self.turn_us = turn_us

    def be_sent_at(self, *places: int) -> None:
        """Its lines carry these bookmarks, or this one: places in what its topic has sent."""
        self.marks = places if len(places) == len(self) else places * len(self)

    # Fields.

    def column(self, path: Path) -> Column:
        """Values of a field in the new states; only for batches that have them."""
        try:
            return self._columns[path]
        except KeyError:
            self.read((path,))
            return self._columns[path]

    def old_column(self, path: Path) -> Column:
        """Values of a field in the old states; None where there was none."""
        if path not in self._old_columns:
            self.read((path,), old=True)
        return self._old_columns[path]

    def read(self, paths: Collection[Path], *, old: bool = False) -> None:
        """Read fields of the new or the old states in one pass, those that are not known yet."""
        known = self._old_columns if old else self._columns
        if all(map(known.__contains__, paths)):
            return
        wanted = tuple(path for path in paths if path not in known)
        bodies = self.changes.olds if old else self.changes.news
        assert bodies is not None
        there = [body for body in bodies if body is not None]
        for path, found in zip(wanted, self._decoder(wanted).columns(there), strict=True):
            if len(there) == len(bodies):
                known[path] = found
            else:
                values = iter(found)
                known[path] = [None if body is None else next(values) for body in bodies]

    def row(self, paths: Sequence[Path], at: int) -> list[Value]:
        """Values of some fields of one record in its new state."""
        return [self.column(path)[at] for path in paths]

    def ordering(self, term: OrderTerm) -> Column:
        """The values of an order term for the new states; only for batches that have them."""
        if term.path is not None:
            return self.column(term.path)
        columns = [self.column(path) for path in term.paths]
        columns += [self._trait(trait, False) for trait in term.traits]
        return term.calculate(columns, len(self))

    def _row_for(self, condition: Filter, at: int, old: bool = False) -> list[Value]:
        """What a filter reads of one record."""
        column = self.old_column if old else self.column
        row = [column(path)[at] for path in condition.paths]
        if condition.traits:
            row += [self._trait(trait, old)[at] for trait in condition.traits]
        return row

    def _read_by(self, condition: Filter, old: bool = False) -> list[Column]:
        """What a filter reads of the new or the old states."""
        column = self.old_column if old else self.column
        columns = [column(path) for path in condition.paths]
        if condition.traits:
            columns += [self._trait(trait, old) for trait in condition.traits]
        return columns

    def _trait(self, trait: Trait, old: bool) -> Column:
        """What is known of the new or the old states beside their fields."""
        if self._traits is None:
            self._traits = {}
        known = self._traits.get((trait, old))
        if known is None:
            changes = self.changes
            # A feed with such a trait tracks what it has sent (`Filter.steady`).
            assert not old or trait not in UNSTEADY, "its old value is unknown"
            bodies = changes.olds if old else changes.news
            assert bodies is not None
            messages = MessageColumns(
                changes.topic,
                bodies,
                self.keys,
                changes.seqs if self._is_logged else None,
                changes.ts_us,
            )
            known = self._traits[trait, old] = messages.column(trait)
        return known

    def states(self) -> list[tuple[bytes, int, int]]:
        """The state of each change, with its number and time: the new state; if a filter removed
        the record, the state that failed it; else the last one."""
        if self._states is None:
            changes = self.changes
            bodies = changes.news or changes.partings or [old or b"" for old in changes.olds]
            self._states = list(zip(bodies, changes.seqs, changes.ts_us, strict=True))
        return self._states

    # Focus.

    def new_focus(self, condition: Filter | None) -> Sequence[bool]:
        """Which records pass the filter in their new state."""
        count = len(self)
        if self.changes.news is None:
            return [False] * count
        if condition is None:
            return [True] * count
        return condition.matches(self._read_by(condition), count)

    def old_focus(self, condition: Filter | None) -> Sequence[bool]:
        """Which records passed the filter in their old state."""
        olds = self.changes.olds
        if condition is None:
            return [old is not None for old in olds]
        matched = condition.matches(self._read_by(condition, True), len(self))
        return [hit and old is not None for hit, old in zip(matched, olds, strict=True)]

    def was_in_focus(self, condition: Filter | None, at: int) -> bool:
        """Whether one record passed the filter in its old state."""
        if self.changes.olds[at] is None:
            return False
        return condition is None or condition.holds(self._row_for(condition, at, True))

    def is_in_focus(self, condition: Filter | None, at: int) -> bool:
        """Whether one record passes the filter in its new state."""
        if self.changes.news is None:
            return False
        return condition is None or condition.holds(self._row_for(condition, at))

    # Lines.

    def delta(self, shape: Shape, at: int) -> Document | None:
        """What changed in one record as a subscriber sees it; None where only the whole record can
        express it."""
        place = (shape.select, at)
        if place in self._deltas:
            return self._deltas[place]
        shown = self._shown(shape, at)
        delta = None if shown is None else difference(*shown)
        self._keep_delta(shape, at, delta)
        return delta

    def reading(self, shape: Shape, at: int) -> Iterator[None]:
        """The steps of `delta` where a record is long."""
        old, news = self.changes.olds[at], self.changes.news
        partial = self._renderer.message_type.partial
        if at not in self._documents and old is not None and news is not None and partial:
            before = self._renderer.document(old)
            yield
            self._documents[at] = before, self._renderer.document(news[at])
            yield
        place = (shape.select, at)
        found = [self._deltas[place]] if place in self._deltas else []
        if not found and (shown := self._shown(shape, at)) is not None:
            found = [(yield from differing(*shown))]
        yield
        for delta in found:
            # Last, as it may have been forgotten for others meanwhile.
            self._keep_delta(shape, at, delta)

    def _keep_delta(self, shape: Shape, at: int, delta: Document | None) -> None:
        if shape.select is not None:
            SELECTED.keep(self, SELECTED_DELTA_BYTES + SELECTED_FIELD_BYTES * len(delta or ()))
        self._deltas[shape.select, at] = delta

    def forget_selected(self) -> None:
        """Forget what others with the same select list would find made."""
        self._tails.clear()
        self._single_tails.clear()
        self._deltas.clear()

    def _shown(self, shape: Shape, at: int) -> tuple[Document, Document] | None:
        """What a subscriber sees of a record's old and new document, if there are both."""
        documents = self._parsed(at)
        if documents is None:
            return None
        before, after = documents
        shown_of = self._renderer.shown_of
        return shown_of(shape, before), shown_of(shape, after)

    def _parsed(self, at: int) -> tuple[Document, Document] | None:
        """One record's old and new document, if there are both."""
        found = self._documents.get(at)
        if found is None:
            old, news = self.changes.olds[at], self.changes.news
            if old is None or news is None or not self._renderer.message_type.partial:
                return None
            found = self._renderer.document(old), self._renderer.document(news[at])
            self._documents[at] = found
        return found

    def is_empty(self, shape: Shape, at: int) -> bool:
        """Nothing that the subscriber sees has changed."""
        news = self.changes.news
        if news is not None and news[at] == self.changes.olds[at]:
            return True
        return self.delta(shape, at) == {}

    def parting(self, at: int) -> bytes:
        """What an oof carries: the new state, or the last one of a removed record."""
        changes = self.changes
        if changes.news is not None:
            return changes.news[at]
        if changes.partings is not None:
            return changes.partings[at]
        return changes.olds[at] or b""

    def tails(self, kind: Kind, shape: Shape) -> list[bytes]:
        """Record lines of all changes but for their head, which names the subscription."""
        tails = self._tails.get((kind, shape))
        if tails is None:
            tails = self._tails[kind, shape] = self._render(kind, shape, ALL)
        return tails

    def tail(self, kind: Kind, shape: Shape, at: int) -> bytes:
        """One record's line but for its head, for feeds that want few of a batch."""
        form = (kind, shape)
        tails = self._tails.get(form)
        if tails is not None:
            return tails[at]
        singles = self._single_tails.get(form)
        if singles is None:
            singles = self._single_tails[form] = {}
        tail = singles.get(at)
        if tail is None:
            # Not where each line is parsed for its selected fields, or has no delta.
            plain = kind != "delta" and shape.select is None
            if plain and ALL_AT_ONCE * len(singles) >= len(self):
                return self.tails(kind, shape)[at]
            tail = singles[at] = self._render(kind, shape, slice(at, at + 1))[0]
        return tail

    def keys(self) -> list[str]:
        """SowKeys."""
        if self._keys is None:
            changes = self.changes
            self._keys = self._sow_keys(changes.slots, changes.identities)
        return self._keys

    def places(self, table: Table) -> tuple[list[int], list[int] | None]:
        """The places of the records in the order of their topic, and how new each is where the
        topic tracks that; as of the first call."""
        if self._places is None:
            slots = np.asarray(self.changes.slots, np.int64)
            newest = table.newest[slots].tolist() if table.keeps_newest else None
            self._places = table.order[slots].tolist(), newest
        return self._places

    def _render(self, kind: Kind, shape: Shape, part: slice) -> list[bytes]:
        changes = self.changes
        columns = LineColumns(
            self.keys()[part] if shape.sow_keys else (),
            self._bodies(kind, shape, part),
            self.marks[part] if kind != "oof" or shape.marked else (),
            changes.ts_us[part] if shape.timestamps else (),
        )
        rendered = self._renderer.lines(kind, shape, columns)
        if self.edit is not None and kind != "oof":
            rendered = [marked(line, self.edit.mark) for line in rendered]
        if shape.select is not None:
            SELECTED.keep(self, sum(map(len, rendered)))
        return rendered

    def _bodies(self, kind: Kind, shape: Shape, part: slice) -> Sequence[bytes]:
        """What the lines carry."""
        if kind == "delta":
            return [self._delta_body(shape, at) for at in range(len(self))[part]]
        if kind == "oof":
            return [self.parting(at) for at in range(len(self))[part]]
        news = self.changes.news
        assert news is not None
        return news[part]

    def _delta_body(self, shape: Shape, at: int) -> bytes:
        delta, documents = self.delta(shape, at), self._parsed(at)
        assert delta is not None
        assert documents is not None
        return self._renderer.delta(shape, delta, documents[1])


def marked(line: bytes, mark: bytes) -> bytes:
    """A line with more at its end."""
    return line[:-1] + mark + b"}"


class Update(NamedTuple):
    """A change of one record.

    `known`: the subscriber holds an earlier state, `old`, as far as that is known. `new` is None
    when the record leaves; `reason` is then why, and `parting` is the state that no longer matches,
    if that is the reason. `delta` has what the subscriber sees of the fields that changed since the
    state it holds, and of those that changed and changed back; None where the whole record is
    needed: it is new to the subscriber, came back after it had left, or lost a field. `merged`:
    `new` is no state of the record but several that were merged. `mark` is what its line has at its
    end, where it is an edit of an event. `seq` and `ts_us` are of the
    newest change, the `first_` ones of the oldest one that is folded in.
    """

    identity: str
    known: bool
    new: bytes | None
    seq: int
    ts_us: int
    first_seq: int
    first_ts_us: int
    reason: Reason | None = None
    parting: bytes | None = None
    delta: Document | None = None
    merged: bool = False
    old: bytes | None = None
    mark: bytes = b""

    @property
    def last(self) -> bytes:
        """What an oof carries: the state that no longer matches, or the last one that the
        subscriber was sent of a removed record."""
        return (self.parting if self.reason == "match" else self.old) or b""

    def states(self) -> Iterator[bytes]:
        """The states of its record that it refers to."""
        return filter(None, (self.new, self.old, self.parting))

    @property
    def is_void(self) -> bool:
        """There is nothing to send: the record came and went unseen."""
        return self.new is None and not self.known


def compose(current: Update, new: Update) -> Update:
    """Both updates as one, with the bookmark and the time of the older one.

    Where updates are matched by something else than their record, `new` may be another record's:
    then it keeps its own content, in the place of the older one.
    """
    known, old, delta = new.known, new.old, new.delta
    if new.identity == current.identity:
        known, old = current.known, current.old
        if delta is not None:
            delta = None if current.delta is None else composed(current.delta, delta)
    return Update(  # each update of a client that does not read passes here: `_replace` is dear
        new.identity,
        known,
        new.new,
        new.seq,
        new.ts_us,
        first_seq=current.first_seq,
        first_ts_us=current.first_ts_us,
        reason=new.reason,
        parting=new.parting,
        delta=delta,
        merged=new.merged,
        old=old,
        mark=new.mark,
    )
