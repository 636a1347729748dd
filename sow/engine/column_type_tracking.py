"""Column type tracking: the types that a topic's fields have had, from the first query by columns.

From then on every value of the topic is observed (`sow.messages.column_types`), and each change of
a type is written to a system topic, in the group of the change that caused it: a type never
narrows. Topics that were never queried by columns are not observed.

So types after a restart are never narrower than those that a client has seen: its response waited
for the group. A full disk writes them to the reserve, or refuses the query.

After a restart the first query by columns scans the records once more: the system topic may be
older than the last of them, and an earlier release without it may have published meanwhile. Types
that such a release has sent are unknown; what its records contain counts from then on. A topic may
be removed and added again, such as one of a pattern that is empty at a restart, or a conflated
topic at a reload: types are kept by name, and it is observed from its first message on.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import orjson

from sow.core.cooperative import Task
from sow.core.definitions import KNOWN_COLUMNS, ConflatedTopic, Topic
from sow.core.paths import parse_path
from sow.engine.catalog import Catalog
from sow.engine.live_topic import is_hidden
from sow.engine.running_topics import CopyTopic, LiveTopic
from sow.errors import DiskFull
from sow.expressions.parser import parse_field
from sow.messages.column_types import COLUMNS_MAX, ColumnTypes, pieces
from sow.messages.declared import DeclaredFields, declared_fields
from sow.messages.json import json_text
from sow.topic.records import Records

OBSERVED_AT_ONCE = 200
"""Records that one step looks at: a millisecond with a few fields each."""
TOPIC_ITSELF = ""
"""The field of the system topic that stands for the topic itself: it is tracked, and whether it has
too many fields. Others have their names after a slash."""


class ColumnTypeTracker:
    """The columns of one engine's topics.

    `store` writes documents to the system topic; `has_room` returns whether the disk takes so many
    bytes of them.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: Callable[[list[bytes]], None],
        has_room: Callable[[int], bool],
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._has_room = has_room
        self._kept: dict[str, dict[str, tuple[int, int]]] = {}
        """Restored types of topics that are not tracked yet since the start, and their numbers."""
        self._types: dict[str, ColumnTypes] = {}
        """Types tracked since the start, also of removed topics, which may come again."""
        self._unsaved: dict[str, dict[str, None]] = {}
        """Fields that could not be written while the disk was full, by topic."""

    def restore(self) -> None:
        """Restore the types from the system topic, after topics and system topics are restored."""
        if KNOWN_COLUMNS.name not in self._catalog.topics:
            return
        table = self._catalog.account(KNOWN_COLUMNS).records.table
        account = [
            (orjson.loads(table.bodies[slot] or b"{}"), int(table.seqs[slot]))
            for slot in table.live().tolist()
        ]
        # Notes of one group come in any order; older ones lack the position of their field.
        account.sort(key=lambda note: int(note[0].get("at", COLUMNS_MAX)))
        for noted, seq in account:
            self._kept.setdefault(noted["topic"], {})[noted["field"]] = (noted["held"], seq)
        for topic in self._catalog:
            self.meet(topic.records)

    def take(self, body: bytes, seq: int) -> None:
        """Take over what the primary of a follower has noted: what is tracked here widens, too."""
        noted = orjson.loads(body)
        name, field, held = noted["topic"], noted["field"], noted["held"]
        types = self._types.get(name)
        if types is not None:
            types.widen(field[1:], held) if field != TOPIC_ITSELF else types.fill(bool(held))
            return
        self._kept.setdefault(name, {})[field] = (held, seq)
        if (topic := self._catalog.topics.get(name)) is not None:
            self.meet(topic.records)

    def meet(self, records: Records) -> None:
        """Apply the known types of its name to a topic that was just added."""
        types = self._types.get(records.name)
        if types is not None:
            types.look_again()  # it may have come with records
            records.know_columns(types)
        elif records.name in self._kept:
            self._begin(records)

    def _begin(self, records: Records) -> ColumnTypes:
        """Observe records from now on, starting with restored types."""
        name = records.name
        # Names of copies and views are in no history of definitions.
        since_seq = records.since_seq if isinstance(records.definition, Topic) else 0
        # What was noted up to there has been given up with the records that were there.
        kept = {
            field: held
            for field, (held, seq) in self._kept.pop(name, {}).items()
            if not since_seq or seq > since_seq
        }
        types = ColumnTypes(
            records.message_type,
            {field[1:]: held for field, held in kept.items() if field != TOPIC_ITSELF},
            (lambda _fields: None) if is_hidden(name) else lambda fields: self._note(name, fields),
            bool(kept.get(TOPIC_ITSELF)),
        )
        if not is_hidden(name):
            # No query names it again, and the system topic is by visible names.
            self._types[name] = types
        records.know_columns(types)
        if not kept and not is_hidden(name):
            self._note(name, [])
        return types

    def making(self, topic: LiveTopic) -> Task[ColumnTypes]:
        """The columns of a topic: scans all records, if that was not done yet.

        Closed before the end, it keeps what it has found, and the next query scans again. Raises
        DiskFull if the types cannot be written, and so could be lost.
        """
        records = topic.records
        types = records.types or self._begin(records)
        if not types.is_whole:
            table, slots = records.table, records.table.live()
            for start in range(0, len(slots), OBSERVED_AT_ONCE):
                some = map(
                    table.bodies.__getitem__, slots[start : start + OBSERVED_AT_ONCE].tolist()
                )
                for bodies in pieces([body for body in some if body is not None]):
                    types.observe(bodies)
                    yield
            types.complete()
        self._save()
        if topic.name in self._unsaved and KNOWN_COLUMNS.name in self._catalog.topics:
            raise DiskFull(
                f"the disk is full: the types of the columns of {topic.name} cannot be written "
                "down, and might differ after a restart; request JSON, or free some space"
            )
        return types

    def sent_at_once(self, topic: LiveTopic) -> Task[ColumnTypes | None]:
        """The columns of a topic, where that needs no long scan: they are known, or the records are
        few. Does not start to observe the topic. None elsewhere, and where there are too many."""
        records = topic.records
        types = records.types
        if types is None or not types.is_whole:
            if len(records.table) > OBSERVED_AT_ONCE and not is_hidden(topic.name):
                return None
            known = None if types is None else types.kinds
            types = ColumnTypes(records.message_type, known)
            bodies = map(records.table.bodies.__getitem__, records.table.live().tolist())
            yield from _observe(types, [[body for body in bodies if body is not None]])
        return None if types.is_full else types

    def observing(self, topic: LiveTopic, rows: Iterable[Sequence[bytes]]) -> Task[None]:
        """Observe earlier messages of the topic, some at a time: they count as if they had been
        observed then. Its columns are known."""
        types = topic.records.types
        assert types is not None
        yield from _observe(types, rows)

    def names(self, topic: LiveTopic, rows: Iterable[Sequence[bytes]]) -> Task[Collection[str]]:
        """The fields of some messages of a topic, and the declared ones: the column names for a
        client that may not see other records."""
        types = ColumnTypes(topic.records.message_type)
        yield from _observe(types, rows)
        declared = self.declared(topic)
        return types.kinds.keys() | {path.steps[0] for path in (declared.paths if declared else ())}

    def declared(self, topic: LiveTopic) -> DeclaredFields | None:
        """The declared fields of a topic; of a copy, those of its underlying topic without the
        fields that it makes itself; of a view none."""
        made: set[str] = set()
        definition = topic.definition
        while isinstance(topic, CopyTopic):
            assert isinstance(definition, ConflatedTopic)
            made |= {parse_field(text).target.steps[0] for text in definition.enrichment}
            topic = self._catalog.topics[topic.underlying]
            definition = topic.definition
        if not isinstance(definition, Topic):
            return None  # a view makes its rows itself
        declared = tuple(
            one for one in definition.schema if parse_path(one.path).steps[0] not in made
        )
        return declared_fields(topic.records.message_type, declared) if declared else None

    # The system topic.

    def _note(self, name: str, fields: list[str]) -> None:
        """Write the new types of fields of a topic."""
        noted = self._unsaved.setdefault(name, {})
        noted |= dict.fromkeys([TOPIC_ITSELF, *(f"/{field}" for field in fields)])
        self._save()

    def _save(self) -> None:
        if not self._unsaved or KNOWN_COLUMNS.name not in self._catalog.topics:
            return
        bodies: list[bytes] = []
        for name, fields in self._unsaved.items():
            types = self._types[name]
            places = {f"/{field}": at for at, field in enumerate(types.kinds)}
            for field in fields:
                held = types.kinds[field[1:]] if field else int(types.is_full)
                noted = {"topic": name, "field": field, "held": held, "at": places.get(field, 0)}
                bodies.append(json_text(noted))
        if self._has_room(sum(map(len, bodies))):
            self._unsaved = {}
            self._store(bodies)


def _observe(types: ColumnTypes, rows: Iterable[Sequence[bytes]]) -> Task[None]:
    for bodies in rows:
        for start in range(0, len(bodies), OBSERVED_AT_ONCE):
            for some in pieces(list(bodies[start : start + OBSERVED_AT_ONCE])):
                types.observe(some)
                yield
