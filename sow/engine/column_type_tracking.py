"""Known columns: what a topic's fields have held, found out when somebody first asks for columns.

From then on the topic hears of every value (`sow.messages.column_types`), and whatever becomes
something else is written down in an account of the server's own, in the group of the change that
made it so: a type never narrows, whatever becomes of the values. Of topics that nobody has asked
for in columns nothing is known, and nothing is heard.

So types after a restart are never narrower than those that were told: whoever was told waited for
the group. A full disk takes the account out of the reserve, or refuses the answer.

After a restart the records are looked through once more when they are asked for: the account may be
older than the last of them, and a release that knows of no account may have published meanwhile. Of
what such a one has told nothing is known; what its records hold counts from here on. A topic may go
and come again, such as one of a pattern that is empty at a restart, or a conflated topic at a
reload: what is known is known of its name, and it hears from its first message on.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import orjson

from sow.core.cooperative import Task
from sow.core.definitions import KNOWN_COLUMNS, ConflatedTopic, Topic
from sow.core.paths import parse_path
from sow.engine.catalog import Catalog
from sow.engine.hidden_topics import is_hidden
from sow.engine.running_topics import CopyTopic, LiveTopic
from sow.errors import DiskFull
from sow.expressions.parser import parse_field
from sow.messages.column_types import COLUMNS_MAX, ColumnTypes
from sow.messages.declared import DeclaredFields, declared_fields
from sow.messages.stepwise_columns import pieces
from sow.topic.records import Records

HEARD_AT_ONCE = 200
"""Records that one step looks at: a millisecond with a few fields each."""
TOPIC_ITSELF = ""
"""The field of the account that stands for the topic: it is known, and whether it has too many
fields. Others are called by their names after a slash."""


class ColumnTypeTracker:
    """The columns of one engine's topics.

    `store` puts documents into the account; `has_room` says whether the disk takes so many bytes of
    them.
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
        """What the account says of topics that are not known yet in this life, and since when."""
        self._types: dict[str, ColumnTypes] = {}
        """What is known in this life, also of topics that have gone and may come again."""
        self._unsaved: dict[str, dict[str, None]] = {}
        """Fields that could not be written down while the disk was full, by topic."""

    def restore(self) -> None:
        """Go on with what the account says, now that topics and accounts are there."""
        if KNOWN_COLUMNS.name not in self._catalog.topics:
            return
        table = self._catalog.account(KNOWN_COLUMNS).records.table
        account = [
            (orjson.loads(table.bodies[slot] or b"{}"), int(table.seqs[slot]))
            for slot in table.live().tolist()
        ]
        # Notes of one group come in any order; older ones do not say where their field stands.
        account.sort(key=lambda note: int(note[0].get("at", COLUMNS_MAX)))
        for noted, seq in account:
            self._kept.setdefault(noted["topic"], {})[noted["field"]] = (noted["held"], seq)
        for topic in self._catalog:
            self.meet(topic.records)

    def meet(self, records: Records) -> None:
        """Have a topic that comes into being go on with what is known of its name."""
        types = self._types.get(records.name)
        if types is not None:
            types.look_again()  # it may have come with records
            records.know_columns(types)
        elif records.name in self._kept:
            self._begin(records)

    def _begin(self, records: Records) -> ColumnTypes:
        """Hear of what is put from now on, knowing what is known from before."""
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
            # Nobody asks for it again, and the account is by names that are read.
            self._types[name] = types
        records.know_columns(types)
        if not kept and not is_hidden(name):
            self._note(name, [])
        return types

    def making(self, topic: LiveTopic) -> Task[ColumnTypes]:
        """What the columns of a topic are: all records are looked at, if they were not yet.

        Given up in between, what was found is kept, and the next who asks looks again. Raises
        DiskFull if what they are cannot be written down, and so could be forgotten.
        """
        records = topic.records
        types = records.types or self._begin(records)
        if not types.is_whole:
            table, slots = records.table, records.table.live()
            for start in range(0, len(slots), HEARD_AT_ONCE):
                some = map(table.bodies.__getitem__, slots[start : start + HEARD_AT_ONCE].tolist())
                for bodies in pieces([body for body in some if body is not None]):
                    types.observe(bodies)
                    yield
            types.complete()
        self._save()
        if topic.name in self._unsaved and KNOWN_COLUMNS.name in self._catalog.topics:
            raise DiskFull(
                f"the disk is full: the types of the columns of {topic.name} cannot be written "
                "down, and might be others after a restart; ask for JSON, or free some space"
            )
        return types

    def sent_at_once(self, topic: LiveTopic) -> Task[ColumnTypes | None]:
        """What the columns of a topic are, where that takes no look at many records: they are
        known, or the records are few. Nothing is heard for it from then on. None elsewhere, and
        where there are too many."""
        records = topic.records
        types = records.types
        if types is None or not types.is_whole:
            if len(records.table) > HEARD_AT_ONCE and not is_hidden(topic.name):
                return None
            known = None if types is None else types.kinds
            types = ColumnTypes(records.message_type, known)
            bodies = map(records.table.bodies.__getitem__, records.table.live().tolist())
            yield from _hear(types, [[body for body in bodies if body is not None]])
        return None if types.is_full else types

    def hearing(self, topic: LiveTopic, rows: Iterable[Sequence[bytes]]) -> Task[None]:
        """Hear of messages that the topic has held, some at a time: they count as if they had been
        heard of then. Its columns are known."""
        types = topic.records.types
        assert types is not None
        yield from _hear(types, rows)

    def names(self, topic: LiveTopic, rows: Iterable[Sequence[bytes]]) -> Task[Collection[str]]:
        """The fields that some messages of a topic have, and those that are declared: what is told
        to who may not see others."""
        types = ColumnTypes(topic.records.message_type)
        yield from _hear(types, rows)
        declared = self.declared(topic)
        return types.kinds.keys() | {path.steps[0] for path in (declared.paths if declared else ())}

    def declared(self, topic: LiveTopic) -> DeclaredFields | None:
        """The declared fields of a topic; of a copy, those of what it copies, but for fields that
        it makes itself; of a view none."""
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

    # The account.

    def _note(self, name: str, fields: list[str]) -> None:
        """Write down what fields of a topic have become."""
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
                bodies.append(orjson.dumps(noted))
        if self._has_room(sum(map(len, bodies))):
            self._unsaved = {}
            self._store(bodies)


def _hear(types: ColumnTypes, rows: Iterable[Sequence[bytes]]) -> Task[None]:
    for bodies in rows:
        for start in range(0, len(bodies), HEARD_AT_ONCE):
            for some in pieces(list(bodies[start : start + HEARD_AT_ONCE])):
                types.observe(some)
                yield
