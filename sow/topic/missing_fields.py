"""Advice for fields that no record has: mostly a misspelt name, which is no error, and finds none.

A field may be absent for good reasons: records have the fields that publishers give them. So a
query with such a field is answered as ever, and the advice stands beside the answer. What counts
are the records that the user may see: a field that is hidden from him is absent, and is not
suggested either; without records there is nothing to say. Of a pattern those of all its topics
count.

Nearly always some record is known to have the field (`sow.indexes.field_presence`). Otherwise
records are read, in steps, until one has it; those of a field that none has are read once. What
was said to somebody who may see all is said again while no record changes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from conflated_topics.user_texts import nearest
from sow.core.comma_lists import parse_select
from sow.core.cooperative import Task
from sow.core.definitions import Topic
from sow.core.paths import Path
from sow.errors import clipped
from sow.expressions import parse_grouped, parse_projected, paths_in
from sow.indexes.field_presence import Witness
from sow.messages.json import Json
from sow.protocol.commands import Options
from sow.query import Query
from sow.security.row_level_security import RowPolicy
from sow.store.columns import Slots
from sow.topic.records import Records

ADVICE_MAX = 5
"""Fields of one query that are spoken of: a user who has misspelt more begins with these."""
BODIES_AT_ONCE = 250
"""Records that one step parses: a millisecond or two."""
SEARCHED_AT_ONCE = 5_000
"""Records that one step searches for a name: a millisecond."""
SAMPLED_MAX = 100
"""Records whose fields are compared with a misspelt one; most are alike."""
NAMES_MAX = 300
"""Fields of these that are compared: some ten microseconds each."""


class Unsure(NamedTuple):
    """A topic's records, fields that may be in none of those which the user's `guard` shows."""

    records: Records
    paths: Sequence[Path]
    guard: RowPolicy | None


def unsure_fields(
    records: Records, query: Query, options: Options, guard: RowPolicy | None
) -> Sequence[Path]:
    """Those of the fields that a query of the user's names which are not known to be there: what
    `field_advice` is for."""
    paths = [] if query.filter is None else [*query.filter.paths]
    if options.projection is not None or options.grouping is not None:
        paths += _aggregated_fields(options)  # its order is of rows
    else:
        for term in query.order_by:
            paths += term.paths
        if options.select is not None:
            shown = parse_select(options.select).places
            paths += [Path(steps) for steps in sorted(shown) if steps]
    presence = records.indexes.presence
    if not paths or presence is None:
        return paths
    return presence.unsure(paths, "" if guard is None else guard.text)


def _aggregated_fields(options: Options) -> Iterator[Path]:
    for text in options.projection or ():
        yield from paths_in(parse_projected(text)[0])
    for text in options.grouping or ():
        yield from paths_in(parse_grouped(text))


def field_advice(topics: Sequence[Unsure]) -> Task[tuple[str, ...]]:
    """A sentence for each of the fields that no record of the topics has which the user may see."""
    if len(topics) != 1 or topics[0].guard is not None or not _counts_up(topics[0].records):
        return (yield from _advice(topics))
    presence, names = topics[0].records.indexes.fields(), tuple(topics[0].paths)
    said = presence.advice(names)
    if said is None:
        state = presence.state
        said = yield from _advice(topics)
        presence.keep_advice(names, state, said)
    return said


def _counts_up(records: Records) -> bool:
    """Whether a record that changes gets a higher number than any had before."""
    is_source = isinstance(records.definition, Topic) and records.is_logged
    return is_source and records.events is None


def _advice(topics: Sequence[Unsure]) -> Task[tuple[str, ...]]:
    missing: Sequence[Path] | None = None
    names: dict[str, None] = {}
    for records, paths, guard in topics:
        if not records.message_type.structured:
            continue
        look = _Look(records, paths, guard)
        yield from look.run()
        if not look.sample:
            continue
        missing = [path for path in look.missing if missing is None or path in missing]
        if not missing:
            return ()
        names.update(dict.fromkeys(look.names()))
        yield
    compared = [*names][:NAMES_MAX]
    return tuple([_sentence(path, compared) for path in (missing or ())[:ADVICE_MAX]])


def _sentence(path: Path, names: Sequence[str]) -> str:
    written = str(path)
    meant = nearest(written, names)
    instead = f"; did you mean {clipped(meant)}?" if meant is not None else ""
    return f"no record has {clipped(written)}{instead}"


class _Look:
    """One look for the records that have some fields."""

    def __init__(self, records: Records, paths: Sequence[Path], guard: RowPolicy | None) -> None:
        self._records = records
        self._guard = guard
        self._policy = "" if guard is None else guard.text
        self._presence = records.indexes.fields()
        self.missing = [*dict.fromkeys(paths)]
        self.sample: list[object] = []
        """Some records that the user may see."""

    def run(self) -> Task[None]:
        """Leave in `missing` those that no record has."""
        table = self._records.table
        newest, slots = self._presence.newest, table.live()
        likely = {self._presence.likely(path, self._policy) for path in self.missing} - {None}
        first = np.array([*likely, *slots[:SAMPLED_MAX].tolist()], np.int64)
        self._read(self._seen(first))
        yield
        at = SAMPLED_MAX
        while not self.sample and at < len(slots):
            self._read(self._seen(slots[at : at + BODIES_AT_ONCE]))
            at += BODIES_AT_ONCE
            yield
        for path in [*self.missing]:
            if self._guard is None or not self._guard.hides(path):
                yield from self._read_until(path, slots[at:])
        if _counts_up(self._records):
            for path in self.missing:
                self._presence.keep(path, self._policy, Witness(None, newest))

    def _read_until(self, path: Path, slots: Slots) -> Task[None]:
        if _counts_up(self._records):
            slots = self._presence.changed(path, self._policy, slots)
        is_json, name = isinstance(self._records.message_type, Json), path.steps[-1].encode()
        bodies, size = self._records.table.bodies, SEARCHED_AT_ONCE if is_json else BODIES_AT_ONCE
        for start in range(0, len(slots), size):
            chunk = slots[start : start + size]
            if is_json:
                # A name may be written with escapes.
                held = [(slot, bodies[slot] or b"") for slot in chunk.tolist()]
                chunk = np.array([s for s, b in held if name in b or b"\\" in b], np.int64)
            for at in range(0, len(chunk), BODIES_AT_ONCE):
                self._read(self._seen(chunk[at : at + BODIES_AT_ONCE]))
                if path not in self.missing:
                    return
                yield
            yield

    def _seen(self, slots: Slots) -> list[int]:
        """Those of the records that are there, and that the user may see."""
        bodies = self._records.table.bodies
        held = [slot for slot in slots.tolist() if bodies[slot] is not None]
        rows = None if self._guard is None else self._guard.rows
        if rows is None or not held:
            return held
        found = np.array(held, np.int64)
        seen: list[int] = found[self._records.indexes.passing(rows, found)].tolist()
        return seen

    def _read(self, slots: Sequence[int]) -> None:
        """Take away the missing fields that one of these records has."""
        bodies, parse = self._records.table.bodies, self._records.message_type.parse
        for slot in slots:
            if not self.missing and self.sample:
                return
            body = bodies[slot]
            document = parse(body) if body is not None else None
            if len(self.sample) < SAMPLED_MAX:
                self.sample.append(document)
            for path in [*self.missing]:
                hidden = self._guard is not None and self._guard.hides(path)
                if not hidden and has_field(document, path.steps):
                    self.missing.remove(path)
                    witness = Witness(slot, self._presence.seq_of(slot))
                    self._presence.keep(path, self._policy, witness)

    def names(self) -> list[str]:
        """The fields of the sample that the user may see, as paths."""
        found: dict[tuple[str, ...], None] = {}
        for document in self.sample:
            _add_names(document, (), found)
        paths = map(Path, [*found][:NAMES_MAX])
        return [str(path) for path in paths if self._guard is None or not self._guard.hides(path)]


def has_field(document: object, steps: Sequence[str]) -> bool:
    """Whether a document has a field, of any value, also null; through lists, too."""
    found = [document]
    for step in steps:
        found = [item[step] for item in _objects(found) if step in item]
        if not found:
            return False
    return True


def _objects(items: Iterable[object]) -> Iterable[dict[str, object]]:
    for item in items:
        if isinstance(item, dict):
            yield item
        elif isinstance(item, list):
            yield from _objects(item)


def _add_names(
    document: object, before: tuple[str, ...], found: dict[tuple[str, ...], None]
) -> None:
    """Add the fields of a document, and those inside, until there are enough."""
    for item in _objects([document]):
        for name, value in item.items():
            if len(found) >= NAMES_MAX:
                return
            found[steps := (*before, name)] = None
            if isinstance(value, dict | list):
                _add_names(value, steps, found)
