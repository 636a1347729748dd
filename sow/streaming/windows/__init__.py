"""Live windows: a range of positions of an ordered topic, kept current; and their pages.

A page is what a window shows at one time. Two of them have a difference:

    held ──┐
           ├─ difference ─> which records leave, enter or have changed, and their positions
    now  ──┘

A client is sent the steps in this order, so it never holds more records than the window has room
for. Each line has the position of its record once that record has been taken out: so lines that are
applied one after the other end in the page's order, whatever has moved.

When a subscription keeps to a live window, and what no window can do, is known from its command
alone (`window_of`, `check_window`).
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sow.errors import ClientError, TooLarge, invalid_options, shown
from sow.expressions import Filter, Trait, check_deterministic
from sow.protocol.commands import Command
from sow.streaming.update_encoder import UpdateEncoder, WindowKey
from sow.topic.batch import Batch, Reason, Update
from sow.topic.records import Records
from sow.topic.rendering import LineColumns


class PageRow(NamedTuple):
    """A record as a page shows it: its body, the number and the time of its last change, and when
    it was first published, or its position. Equal rows have the same order."""

    body: bytes
    seq: int
    ts_us: int
    tie: int | tuple[int, int]


def rows_of(topic: Records, identities: Sequence[str]) -> list[PageRow]:
    """These records as they are in their topic."""
    table = topic.table
    found = [table.slots[identity] for identity in identities]
    bodies = [table.bodies[slot] or b"" for slot in found]
    slots = np.array(found, np.int64)
    numbers = [column[slots].tolist() for column in (table.seqs, table.ts_us)]
    return list(map(PageRow, bodies, *numbers, table.ties(slots)))


class Parted(NamedTuple):
    """Why a record has left the topic; if a conflated topic's filter removed it, the state that no
    longer matches."""

    reason: Reason
    body: bytes | None


class WindowPage:
    """Records in order (`rows`, by their identities), as a member holds them.

    `parted` are those of them that have left the topic since: nothing else has their reasons.
    """

    __slots__ = ("parted", "rows")

    def __init__(self, rows: dict[str, PageRow]) -> None:
        self.rows = rows
        self.parted: dict[str, Parted] = {}

    def part_with(self, batch: Batch) -> None:
        """Records have left the topic."""
        changes = batch.changes
        if self.rows.keys().isdisjoint(changes.identities):
            return
        reason = changes.reason or "deleted"
        for at, identity in enumerate(changes.identities):
            if identity in self.rows:
                body = batch.parting(at) if reason == "match" else None
                self.parted[identity] = Parted(reason, body)

    def lose_all_but(self, there: Container[str]) -> None:
        """Records that are not in `there` may not be seen any more, unless they have left for
        another reason."""
        for identity in self.rows:
            if identity not in there:
                self.parted.setdefault(identity, Parted("entitlement", None))


EMPTY_PAGE = WindowPage({})


class PageStep(NamedTuple):
    """One line of a difference: a record leaves (no `new`), enters (no `old`) or has changed.

    `at` is its position once it has been taken out of what is held, `stood` its position before.
    """

    identity: str
    old: PageRow | None
    new: PageRow | None
    at: int
    stood: int | None = None

    @property
    def moved(self) -> bool:
        """Its position has changed."""
        return self.at != self.stood


def difference_of(
    held: WindowPage, now: WindowPage, from_scratch: bool = False
) -> Iterator[PageStep]:
    """The steps that lead from one page to the other, in the order in which they are sent.

    A record is put right behind the nearest one before it that has settled: that has not changed,
    and so has the same order on both pages, or was put already. `from_scratch`: records that stay
    are sent, too, since their shape has changed.
    """
    rows, before = now.rows, held.rows
    names, olds = [*rows], [*map(before.get, rows)]
    pairs = enumerate(zip(olds, rows.values(), strict=True))
    # Rows that have not changed are the same objects, nearly always.
    differ = [at for at, (old, new) in pairs if old is not new and old != new]
    entering = [at for at in differ if olds[at] is None]
    changed = [at for at in differ if olds[at] is not None]
    if from_scratch:
        changed = [at for at, old in enumerate(olds) if old is not None]
    order = [*before]
    if len(before) + len(entering) > len(rows):
        order = []
        for identity, old in before.items():
            if identity in rows:
                order.append(identity)
            else:
                yield PageStep(identity, old, None, len(order), len(order))
    unsettled = set(changed)
    for at in entering:
        last = at - 1
        while last in unsettled:
            last -= 1
        place = _put(order, names[at], names[last] if last >= 0 else None)
        yield PageStep(names[at], None, rows[names[at]], place)
    for at in changed:
        stood = order.index(names[at])
        del order[stood]
        place = _put(order, names[at], names[at - 1] if at else None)
        yield PageStep(names[at], olds[at], rows[names[at]], place, stood)


def page_before(page: WindowPage, turns: Iterable[Sequence[PageStep]]) -> WindowPage:
    """The page from which these turns, one after the other, have led to another one."""
    rows = [*page.rows.items()]
    for steps in reversed([*turns]):
        for step in reversed(steps):
            if step.new is not None:
                del rows[step.at]
            if step.old is not None and step.stood is not None:
                rows.insert(step.stood, (step.identity, step.old))
    before = WindowPage(dict(rows))
    before.parted.update(page.parted)
    return before


def _put(order: list[str], identity: str, last: str | None) -> int:
    """Put a record right behind another one, or first; returns its position."""
    at = 0 if last is None else order.index(last) + 1
    order.insert(at, identity)
    return at


WORDED_AT_ONCE = 500
"""Rows of an answer that are encoded in one go, as everywhere."""
WORDED_BYTES_AT_ONCE = 256 * 1024
"""Fewer where they are long: so many bytes are copied in a tenth of a millisecond."""


class PageAnswer:
    """What a member is sent when it begins to follow a page: the records that leave, `left`, and
    the rows of an answer, `come`, each with its position; encoded as they are written, some at a
    time, since a page may have very long records. `last` encodes the last states of removed
    records."""

    def __init__(
        self,
        encoder: UpdateEncoder,
        last: UpdateEncoder,
        positions: bool,
        left: Sequence[tuple[Update, int]],
        come: Sequence[tuple[str, PageRow, int]],
    ) -> None:
        self._encoder = encoder
        self._last = last
        self._positions = positions
        self._left = left
        self._come = come
        self.rows = len(left) + len(come)
        self.bytes = sum(len(update.last) for update, _ in left)
        self.bytes += sum(len(row.body) for _, row, _ in come)

    @property
    def is_short(self) -> bool:
        """Whether all of it can be written in one go."""
        return self.rows <= WORDED_AT_ONCE and self.bytes <= WORDED_BYTES_AT_ONCE

    def leavings(self) -> Iterator[list[bytes]]:
        """Lines of the records that leave."""
        for start, stop in _pieces([len(update.last) for update, _ in self._left]):
            rendered = [
                self._words(update).placed_line(update, [at] if self._positions else (), moved=True)
                for update, at in self._left[start:stop]
            ]
            yield [line for line in rendered if line is not None]

    def _words(self, update: Update) -> UpdateEncoder:
        return self._encoder if update.reason == "match" else self._last

    def answer(self) -> Iterator[list[bytes]]:
        """Lines of the rows."""
        for start, stop in _pieces([len(row.body) for _, row, _ in self._come]):
            come = self._come[start:stop]
            columns = LineColumns(
                [self._encoder.topic.sow_key_of(identity) for identity, _, _ in come],
                [row.body for _, row, _ in come],
                [row.seq for _, row, _ in come],
                [row.ts_us for _, row, _ in come],
                [at for _, _, at in come] if self._positions else (),
            )
            yield self._encoder.answer(columns)


def _pieces(sizes_bytes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of rows of these sizes that are written in one go, of one row at least."""
    start = size_bytes = 0
    for at, size in enumerate(sizes_bytes):
        size_bytes += size
        if at > start and (at - start == WORDED_AT_ONCE or size_bytes > WORDED_BYTES_AT_ONCE):
            yield start, at
            start, size_bytes = at, size
    if start < len(sizes_bytes):
        yield start, len(sizes_bytes)


WINDOW_END_MAX = 2_000
"""Records up to which a window may reach. All of them are kept in order while they change, and read
in one step when they are not known: ten milliseconds for so many, fifty for five times as many."""


def window_of(command: Command) -> WindowKey | None:
    """The window that a subscription keeps to, if it does; raises ClientError."""
    options = command.options
    if options.live and options.top_n is None:
        raise invalid_options(
            "a live window needs top_n, the number of records that it has room for; write for "
            "example top_n=50, or leave out live"
        )
    if options.top_n is None or not (options.live or options.skip_n is not None):
        if options.positions:
            raise invalid_options(
                "positions are places in a live window; write for example live,top_n=50,positions "
                "with sow_and_subscribe"
            )
        return None
    return WindowKey(command.order_by, options.skip_n or 0, options.top_n, options.positions)


def check_window(
    command: Command, window: WindowKey, condition: Filter | None, is_pattern: bool
) -> None:
    """Raise ClientError or TooLarge for what no window can do. `condition` is the command's filter;
    `is_pattern`: it names topics by a pattern."""
    if command.key is not None or command.keys is not None:
        raise invalid_options(
            "a live window is a stretch of all records that match; leave out keys, or name them in "
            "the filter by SOW_KEY()"
        )
    if command.options.conflation_key:
        raise invalid_options(
            "a live window is about single records, and conflates who is in it; leave out "
            "conflation_key"
        )
    if is_pattern:
        raise invalid_options(
            f"a live window is over one topic, and {shown(command.topic)} is a pattern; name the "
            "topic, or add the option non_regex_topic"
        )
    if window.end > WINDOW_END_MAX:
        raise TooLarge(
            f"skip_n and top_n come to {window.end}, and a live window reaches up to "
            f"{WINDOW_END_MAX} records; narrow the filter, or request records further down with sow"
        )
    if condition is None:
        return
    check_deterministic(condition, "a live window")
    if Trait.BOOKMARK in condition.traits:
        raise ClientError(
            "BOOKMARK() is known of what is published and not of records that stand; a live window "
            "cannot go by it",
            reason="bad filter",
        )
