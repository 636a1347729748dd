"""The state of a topic at a past bookmark, computed from the log.

A record that has not changed since is as it is now; one that has is what the log last had of it
before, or what a checkpoint had that History keeps (`Base`). Where retention has already removed
that, the answer would be a guess, and is refused. The log is read in steps, about a millisecond
each.
"""

from array import array
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sow.core.containers import ShardedDict
from sow.core.cooperative import Task
from sow.core.keys import sow_key
from sow.errors import NotKept, TooLarge
from sow.expressions import Filter, MessageColumns, OrderTerm
from sow.expressions.ordering import SortKey
from sow.history.snapshot import PinnedColumn, Rows, Snapshot, held_identities
from sow.indexes.sorting import TextOrder, sorting
from sow.store.protocols import Log, LogEntry, Slice, is_whole, numbers
from sow.topic.records import Records
from sow.topic.rendering import LineColumns

RECORDS_AT_ONCE = 500
"""Records of the log or of a snapshot processed in one step: a millisecond at most."""
SOUGHT_MAX = 10_000
"""So few records are looked for backwards: most have changed not long before, and the log need not
be read from its beginning, unless it has to tell when one came into being that is gone since."""
SOUGHT_AT_ONCE = 10_000
"""Records of the log that are looked through first; then the twice as many before these, and so
on."""


@dataclass(slots=True)
class Present:
    """All records of a topic at bookmark `newest`, the base from which its past is computed."""

    rows: Snapshot
    identities: PinnedColumn[str]
    born: Rows
    newest: int

    @classmethod
    def take(cls, topic: Records, newest: int) -> "Present":
        """Pin what the topic holds now."""
        table = topic.table
        slots = table.live()
        rows = Snapshot.take(topic, slots)
        return cls(rows, held_identities(topic, slots), table.born[slots], newest)

    def settle(self) -> Task[None]:
        """Pin nothing but that."""
        yield from self.rows.settle()
        yield from self.identities.settle()


class LoggedState(NamedTuple):
    """The state that the log has of a record, and since when it existed as far as the log knows."""

    body: bytes
    seq: int
    ts_us: int
    born: int


States = dict[str, LoggedState | None]


class Logged(NamedTuple):
    """Records of one log entry, with their identities."""

    entry: LogEntry
    start: int
    identities: list[str]


class Base(NamedTuple):
    """A checkpoint that with the log behind record `seq` gives every state from a moment on, which
    is no later than the one that is wanted; or nothing but the log behind a record."""

    seq: int
    slices: Iterator[Slice] = iter(())


def as_of(
    now: Present, bookmark: int, journal: Log, bytes_max: int = 2**63, base: Base | None = None
) -> Task[Snapshot]:
    """The state of a topic at `bookmark`, in the order of first publication.

    `now` must be durable. Without a `base` the log is read from its beginning. Raises NotKept when
    it does not reach back far enough, and TooLarge when more than `bytes_max` bytes of bodies would
    have to be read.
    """
    past = yield from _past(now, bookmark, journal, bytes_max, base)
    then = yield from _with_states(now, bookmark, past.states, past.born)
    yield from then.settle()
    yield from past.emptying()
    return then


def bodies_as_of(
    now: Present, bookmark: int, journal: Log, bytes_max: int = 2**63, base: Base | None = None
) -> Task[ShardedDict[str, bytes]]:
    """The same as bodies by identity, for a reader that goes on from there with the log."""
    past = yield from _past(now, bookmark, journal, bytes_max, base, in_order=False)
    assert now.rows.stamps is not None
    unchanged = np.flatnonzero(now.rows.stamps.seqs <= bookmark)
    names, bodies = now.identities.at(unchanged), now.rows.bodies.at(unchanged)
    found: ShardedDict[str, bytes] = ShardedDict()
    for start in range(0, len(unchanged), RECORDS_AT_ONCE):
        stop = start + RECORDS_AT_ONCE
        found.update(zip(names.part(start, stop), bodies.part(start, stop), strict=True))
        yield
    for at, (identity, state) in enumerate(past.states.items()):
        if state is not None:
            found[identity] = state.body
        if at % RECORDS_AT_ONCE == 0:
            yield
    yield from past.emptying()
    return found


def check_known(now: Present, bookmark: int, journal: Log) -> Task[None]:
    """Raise NotKept when the log does not reach back to the state at a bookmark."""
    past = yield from _past(now, bookmark, journal, 2**63)
    yield from past.emptying()


def unchanged_since(now: Present, bookmark: int) -> Task[list[Slice]]:
    """The records that have not changed since a bookmark, as a checkpoint has them. Those that have
    are known again from the first change on that the log has."""
    stamps = now.rows.stamps
    assert stamps is not None
    unchanged = np.flatnonzero(stamps.seqs <= bookmark)
    identities, bodies = now.identities.at(unchanged), now.rows.bodies.at(unchanged)
    found: list[Slice] = []
    for start in range(0, len(unchanged), RECORDS_AT_ONCE):
        stop = start + RECORDS_AT_ONCE
        rows = unchanged[start:stop]
        found.append(
            Slice(
                identities.part(start, stop),
                bodies.part(start, stop),
                numbers(stamps.seqs[rows].tolist()),
                numbers(stamps.ts_us[rows].tolist()),
                numbers(now.born[rows].tolist()),
                numbers([0] * len(rows)),
            )
        )
        yield
    return found


def slices_as_of(
    now: Present, bookmark: int, journal: Log, bytes_max: int = 2**63, base: Base | None = None
) -> Task[list[Slice]]:
    """The state of a topic at a bookmark as a checkpoint has it; raises what `as_of` does."""
    past = yield from _past(now, bookmark, journal, bytes_max, base)
    found = yield from unchanged_since(now, bookmark)
    there = [(name, state) for name, state in past.states.items() if state is not None]
    for start in range(0, len(there), RECORDS_AT_ONCE):
        some = there[start : start + RECORDS_AT_ONCE]
        born = [_birth(past.born, name, state, bookmark) for name, state in some]
        found.append(
            Slice(
                [name for name, _ in some],
                [state.body for _, state in some],
                numbers(state.seq for _, state in some),
                numbers(state.ts_us for _, state in some),
                numbers(born),
                numbers([0] * len(some)),
            )
        )
        yield
    yield from past.emptying()
    return found


class KnownPast(NamedTuple):
    """What is known of the records that have changed after a bookmark: which ones they are, what
    the log has of each before, and when those that are there now came into being."""

    later: ShardedDict[str, bool]
    states: States
    born: ShardedDict[str, int]

    def emptying(self) -> Task[None]:
        """Release it in steps."""
        yield from self.later.emptying()
        yield from self.born.emptying()


def _past(
    now: Present,
    bookmark: int,
    journal: Log,
    bytes_max: int,
    base: Base | None = None,
    in_order: bool = True,
) -> Task[KnownPast]:
    """`in_order`: their order is needed, and so when they were first published."""
    later: ShardedDict[str, bool] = ShardedDict()
    if now.rows.topic.retains:  # else it had no records then, either
        later = yield from _changed(now, bookmark, journal)
    states = States()
    born = yield from _born(now, bookmark)
    if later:
        sought = _sought(later, born, bookmark, in_order)
        look = _looking_through if sought is None else _looking_back
        begin = base or Base(journal.first_seq - 1)
        wanted: Collection[str] = later if sought is None else sought
        states = yield from look(now, begin, bookmark, journal, wanted, bytes_max)
    if base is None and not is_whole(journal):
        yield from _check_known(now, bookmark, later, states, born)
    return KnownPast(later, states, born)


def _sought(
    later: Mapping[str, bool], born: Mapping[str, int], bookmark: int, in_order: bool
) -> dict[str, bool] | None:
    """The records that were there at a bookmark, or may have been, if they are found from there on
    backwards; None: they are too many, or it is not known when each came into being."""
    if len(later) > SOUGHT_MAX:
        return None
    found = {one: True for one, only in later.items() if not (only and born.get(one, 0) > bookmark)}
    has_births = all(0 < born.get(one, 0) <= bookmark for one in found)
    return found if has_births or not in_order else None


def _looking_through(
    now: Present, base: Base, until: int, journal: Log, later: Collection[str], bytes_max: int
) -> Task[States]:
    """The states that a base, and the log behind it, have of records that have changed later."""
    states, size_bytes, topic = States(), 0, now.rows.topic
    for part in base.slices:
        size_bytes += _begin(states, later, part)
        _check_size(size_bytes, bytes_max)
        yield
    for piece in _pieces(topic, journal, base.seq, until):
        if piece is not None:
            size_bytes += _follow(states, later, piece)
            _check_size(size_bytes, bytes_max)
        yield
    return states


def _looking_back(
    now: Present, base: Base, until: int, journal: Log, later: Collection[str], bytes_max: int
) -> Task[States]:
    """The same, the end of the log first, until all are found; not when they came into being."""
    missing, states, count, size_bytes = set(later), States(), SOUGHT_AT_ONCE, 0
    is_last = False
    while missing and not is_last:
        is_last = until - count <= base.seq
        begin = base if is_last else Base(until - count)
        found = yield from _looking_through(now, begin, until, journal, missing, bytes_max)
        states |= found
        missing -= found.keys()
        size_bytes += sum(len(state.body) for state in found.values() if state is not None)
        _check_size(size_bytes, bytes_max)
        until, count = begin.seq, 2 * count
    return states


def narrowed(
    snapshot: Snapshot, condition: Filter | None, keys: tuple[str, ...] | None
) -> Task[Snapshot]:
    """The rows that pass a filter and have one of some SowKeys; None for either: any."""
    if condition is None and keys is None:
        return snapshot
    wanted = None if keys is None else set(keys)
    chosen = np.zeros(len(snapshot), np.bool_)
    for start in range(0, len(snapshot), RECORDS_AT_ONCE):
        part = snapshot.part(start, start + RECORDS_AT_ONCE)
        passing = np.ones(len(part.bodies), np.bool_)
        if condition is not None:
            columns = snapshot.topic.decoder(condition.paths).columns(part.bodies)
            messages = _messages(snapshot.topic, part)
            passing &= np.array(condition.matches_messages(columns, messages), np.bool_)
        if wanted is not None:
            passing &= np.array([key in wanted for key in part.sow_keys], np.bool_)
        chosen[start : start + RECORDS_AT_ONCE] = passing
        yield
    snapshot = yield from snapshot.picking(np.flatnonzero(chosen))
    yield from snapshot.settle()
    return snapshot


def ordered(snapshot: Snapshot, terms: Sequence[OrderTerm]) -> Task[Snapshot]:
    """The rows in the order of `terms`, equal ones in their present order."""
    ranks: list[NDArray[np.float64]] = []
    for term in terms:
        ranks.append((yield from _ranks(snapshot, term)))
    by = [lambda rows, of_term=of_term: of_term[rows] for of_term in ranks]
    found = yield from snapshot.picking((yield from sorting(np.arange(len(snapshot)), by)))
    yield from found.settle()
    return found


def _ranks(snapshot: Snapshot, term: OrderTerm) -> Task[NDArray[np.float64]]:
    """Numbers that sort as the rows' values of a term do."""
    codes = np.zeros(len(snapshot), np.int64)
    code_of: dict[SortKey, int] = {}
    for start in range(0, len(snapshot), RECORDS_AT_ONCE):
        part = snapshot.part(start, start + RECORDS_AT_ONCE)
        columns = [
            *snapshot.topic.decoder(term.paths).columns(part.bodies),
            *_messages(snapshot.topic, part).columns(term.traits),
        ]
        values = map(term.key, term.calculate(columns, len(part.bodies)))
        codes[start : start + RECORDS_AT_ONCE] = [
            code_of.setdefault(key, len(code_of)) for key in values
        ]
        yield
    keys: list[Any] = list(code_of)  # which have an order, as texts do
    order = TextOrder(keys)
    while order.dirty_count:
        order.refresh(1)
        yield
    ranks = order.ranks()[codes]
    return -ranks if term.descending else ranks


def _messages(topic: Records, part: LineColumns) -> MessageColumns:
    """Rows as expressions see them that use more than fields."""
    sow_keys = partial(list[str], part.sow_keys)
    return MessageColumns(topic.name, part.bodies, sow_keys, None, part.ts_us)


def _pieces(topic: Records, journal: Log, after: int, until: int) -> Iterator[Logged | None]:
    """The log entries of a topic after `after`, up to `until`, a step's worth in each; None for
    what was passed over."""
    for piece in journal.pieces(after, (topic.name,)):
        for entry in piece.entries:
            first, last = max(0, after + 1 - entry.seq), min(len(entry), until + 1 - entry.seq)
            if not topic.has_logged(entry) or entry.op == "edit":
                yield None
                continue
            for start in range(first, last, RECORDS_AT_ONCE):
                rows = slice(start, min(start + RECORDS_AT_ONCE, last))
                if entry.identities is not None:
                    identities = list(entry.identities[rows])
                else:
                    identities = topic.identities_of(entry.bodies[rows])
                yield Logged(entry, start, identities)
        yield None
        if piece.last_seq >= until:
            return


def _changed(now: Present, bookmark: int, journal: Log) -> Task[ShardedDict[str, bool]]:
    """Records that changed after a bookmark, and whether they were only published."""
    changed: ShardedDict[str, bool] = ShardedDict()
    for piece in _pieces(now.rows.topic, journal, bookmark, now.newest):
        if piece is not None:
            published = piece.entry.op == "publish"
            for identity in piece.identities:
                changed[identity] = changed.get(identity, True) and published
        yield
    return changed


def _begin(states: States, later: Container[str], part: Slice) -> int:
    """Record the states that a base has of records that have changed later; returns how many bytes
    these are."""
    size_bytes = 0
    for at, identity in enumerate(() if part.is_events else part.identities):
        if identity in later:
            states[identity] = LoggedState(
                part.bodies[at], part.seqs[at], part.ts_us[at], part.born[at]
            )
            size_bytes += len(part.bodies[at])
    return size_bytes


def _follow(states: States, later: Container[str], piece: Logged) -> int:
    """Record the states that the log has of records that have changed later, ordered by their last
    one; returns how many bytes this adds."""
    entry, more_bytes = piece.entry, 0
    for at, identity in enumerate(piece.identities, piece.start):
        if identity in later:
            before = states.pop(identity, None)
            more_bytes -= len(before.body) if before is not None else 0
            if entry.op != "publish":
                states[identity] = None
                continue
            seq = entry.seq + at
            born = seq if before is None else before.born
            states[identity] = LoggedState(entry.bodies[at], seq, entry.ts_us, born)
            more_bytes += len(entry.bodies[at])
    return more_bytes


def _check_size(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise TooLarge(
            f"records that have changed since have more than {bytes_max} bytes (a quarter of "
            "Limits/SnapshotMemory); choose a later bookmark"
        )


def _born(now: Present, bookmark: int) -> Task[ShardedDict[str, int]]:
    """When the records that have changed since a bookmark were first published."""
    assert now.rows.stamps is not None
    changed = np.flatnonzero(now.rows.stamps.seqs > bookmark)
    names, born = now.identities.at(changed), now.born[changed]
    found: ShardedDict[str, int] = ShardedDict()
    for start in range(0, len(changed), RECORDS_AT_ONCE):
        stop = start + RECORDS_AT_ONCE
        found.update(zip(names.part(start, stop), born[start:stop].tolist(), strict=True))
        yield
    return found


def _check_known(
    now: Present, bookmark: int, later: Mapping[str, bool], states: States, born: Mapping[str, int]
) -> Task[None]:
    """Every changed record must be known, or known not to have existed yet."""
    for at, (identity, only_published) in enumerate(later.items()):
        is_new = only_published and born.get(identity, 0) > bookmark
        if identity not in states and not is_new:
            raise NotKept(
                f"record {_key(now.rows.topic, identity)} has changed since bookmark {bookmark}, "
                "and the log no longer has what it was; choose a later bookmark, or keep more of "
                "the past (History of the topic, or TransactionLog/RetentionSize)"
            )
        if at % RECORDS_AT_ONCE == 0:
            yield


def _with_states(
    now: Present, bookmark: int, states: States, born: Mapping[str, int]
) -> Task[Snapshot]:
    """The rows that have not changed since, and those from the log, in order of first publication.

    `born` is when those that have changed came into being; one that existed at the bookmark has not
    been removed since.
    """
    assert now.rows.stamps is not None
    topic, unchanged = now.rows.topic, np.flatnonzero(now.rows.stamps.seqs <= bookmark)
    yield
    keys: array[int] | list[str] = array("Q") if topic.keys else []
    bodies: list[bytes] = []
    seqs, ts_us, births = array("q"), array("q"), array("q")
    for at, (identity, state) in enumerate(states.items()):
        if state is not None:
            keys.append(_key(topic, identity))  # type: ignore[arg-type]
            bodies.append(state.body)
            seqs.append(state.seq)
            ts_us.append(state.ts_us)
            births.append(_birth(born, identity, state, bookmark))
        if at % RECORDS_AT_ONCE == 0:
            yield
    if not bodies:
        return (yield from now.rows.picking(unchanged))
    rows = yield from now.rows.adding(keys, bodies, seqs, ts_us)
    there = np.append(unchanged, np.arange(len(now.rows), len(rows)))
    all_births = np.append(now.born, births).astype(np.float64)
    yield
    return (yield from rows.picking((yield from sorting(there, [lambda some: all_births[some]]))))


def _birth(born: Mapping[str, int], identity: str, state: LoggedState, bookmark: int) -> int:
    """When a record came into being that there was at a bookmark."""
    known = born.get(identity, 0)
    return known if 0 < known <= bookmark else state.born


def _key(topic: Records, identity: str) -> int | str:
    return sow_key(topic.domain, identity) if topic.keys else identity
