"""Records: the content of a topic, its indexes, and how its messages are read.

Both topics that clients publish to and the copies that conflated topics keep are `Records`, so a
conflated topic can be queried, indexed, subscribed to and conflated again like any other. Records
turn bodies into changes; the renderer writes those out (`sow.topic.rendering`), the router delivers
them, and the engine decides what may be published.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import NamedTuple

from sow.core.cooperative import UNTRACKED_MIN, Task, untracked
from sow.core.definitions import Definition, Topic, is_persistent
from sow.core.delta import Nulls
from sow.core.humanize import counted
from sow.core.keys import check_explicit_key, identities, joined, sow_key, sow_keys, values_of
from sow.core.paths import Path, parse_path
from sow.errors import BadFilter, BadMessage, Busy, ClientError, clipped, shown
from sow.expressions import NO_TRAITS, Filter, Known, MessageColumns, Trait
from sow.indexes import Indexes
from sow.messages import decoder_of, decoders_of
from sow.messages.base import Column, Decoder, MessageType
from sow.messages.column_types import ColumnTypes
from sow.messages.declared import DeclaredFields, JudgingDecoder, declared_fields
from sow.store.memory import Births, Table, Usage
from sow.store.protocols import EntryHead, LogEntry
from sow.topic.batch import Batch, Changes, Reason
from sow.topic.fields import ComputedFields, ExtractedFields, PreprocessingDecoder, computed_fields
from sow.topic.queue_policy import queue_policy
from sow.topic.rendering import Renderer
from sow.topic.series import TopicEvents

Columns = dict[Path, Column]
INTRODUCED_AT_ONCE = 250
"""Records that are introduced in one step as if they had just come: a millisecond or two."""
PATHS_MAX = 1024
"""Lists of paths of definitions that are cached, some hundred bytes each."""


class CheckedMessages(NamedTuple):
    """Messages that were validated, with their records, columns, and in a series their author.
    `expires_us` is when each expires, 0 for never; None: they have one lifetime."""

    bodies: list[bytes]
    identities: list[str]
    columns: Columns
    author: str = ""
    expires_us: Sequence[int] | None = None


class Records:
    """A topic's records with everything needed to read, index and render them.

    `keys` and `domain` are those of the topic that clients publish to: a conflated topic keeps its
    underlying topic's SowKeys (docs/semantics.md, Rule 5). `makes_keys`: SowKeys are computed from
    identities, rather than sent by publishers; None: where there are key fields. `usage` counts the
    memory of the records. `name` is the topic's, where the definition is that of a pattern, which
    all its topics share.
    """

    __slots__ = (
        "_coming", "_declared", "_enrichment", "_preprocessing", "_reader", "changes_us",
        "definition", "domain", "events", "folding", "indexes", "instance", "is_changing",
        "is_logged", "is_queue", "is_timed", "keys", "late", "makes_keys", "message_type",
        "name", "renderer", "retains", "since_seq", "table", "types", "unawaited",
        "unreleased_us", "watched",
    )  # fmt: skip

    def __init__(
        self,
        definition: Definition,
        message_type: MessageType,
        keys: Sequence[str],
        domain: str,
        usage: Usage | None = None,
        name: str | None = None,
        instance: str = "",
        makes_keys: bool | None = None,
    ) -> None:
        self.definition = definition
        self.name = definition.name if name is None else name
        self.instance = instance
        """The name of the server that has it."""
        self.message_type = message_type
        self.keys = _paths(tuple(keys))
        self.makes_keys = bool(keys) if makes_keys is None else makes_keys
        self.domain = domain
        self.renderer = Renderer(self.name, message_type, self.keys)
        self.folding = queue_policy(definition, message_type)
        self._reader: tuple[tuple[Path, ...], Decoder] | None
        """The decoder of the extracted fields, cached with their paths."""
        self._declared: DeclaredFields | None
        self._preprocessing: ComputedFields | None
        self._enrichment: ComputedFields | None
        self.is_timed: bool
        """Fields are computed from the time of arrival before keys are read."""
        self.remake()
        is_own = isinstance(definition, Topic) and definition.system
        self.is_logged = is_persistent(definition) and not is_own
        """The log has what is published to it: the numbers of its changes are bookmarks."""
        self.is_queue = isinstance(definition, Topic) and definition.queue is not None
        """They are messages of a queue."""
        self.retains = not isinstance(definition, Topic) or definition.retain
        self.is_changing = False
        """A change may be incomplete that must not be seen in part: nothing falls due."""
        self.changes_us: int | None = None
        """The time of that change, once it has one."""
        self.late = 0
        """How much its followers have still to process of its changes (`sow.streaming.channel`):
        the next change waits for that,"""
        self.unawaited = 0
        """but not for this part of it: of clients that have ordered too much."""
        self.unreleased_us: int | None = None
        """Of a view: since when it has changes that it had to hold back."""
        self.since_seq = 0
        """Log entries of its name up to here are another topic's, or of another time."""
        self.types: ColumnTypes | None = None
        """The types of its columns, once a client has requested columns."""
        self.table = Table(
            sow_keys if self.makes_keys else None,
            domain,
            by_arrival=not isinstance(definition, Topic) or definition.system,
            usage=usage,
        )
        series = isinstance(definition, Topic) and definition.series
        self.events = TopicEvents(series, usage or Usage()) if series else None
        self.indexes = self._make_indexes(definition)
        self._coming: Indexes | None = None
        """The indexes that will replace them, while they are built."""
        self.watched = ExtractedFields(self.keys)
        """The fields that are extracted from every message; the decoder is made on demand."""
        if self.indexes.watched:
            self.watched.add(self.indexes.watched)

    @property
    def has_awaited(self) -> bool:
        """The next change waits for followers that are late."""
        return self.late > self.unawaited

    def count_unawaited(self, by: int) -> None:
        """Nobody waits for so many more of what is late."""
        self.unawaited += by

    def _make_indexes(self, definition: Definition) -> Indexes:
        hashed = tuple(map(_paths, definition.hash_indexes))
        decoders, single = decoders_of(self.message_type), _paths(definition.indexes)
        return Indexes(self.table, decoders, self.keys, hashed, single, self.name)

    def redefine(self, definition: Definition) -> None:
        """Continue with another definition; `reindex` and `refold` apply it to those."""
        self.definition = definition

    def know_columns(self, types: ColumnTypes | None) -> None:
        """Track the column types of everything that is put from now on in `types`."""
        self.types = types

    def refold(self) -> None:
        """Continue with the queue policy of the present definition."""
        self.folding = queue_policy(self.definition, self.message_type)

    def remake(self) -> None:
        """Compute the fields of new messages by the present definition; a copy's its writer has."""
        definition, kind = self.definition, self.message_type
        self._declared = self._preprocessing = self._enrichment = None
        if isinstance(definition, Topic):
            if definition.schema:
                self._declared = declared_fields(kind, definition.schema)
            if definition.preprocessing:
                self._preprocessing = computed_fields(kind, definition.preprocessing)
            if definition.enrichment:
                self._enrichment = computed_fields(kind, definition.enrichment)
        made = self._preprocessing
        self.is_timed = made is not None and Trait.UNIX_TIMESTAMP in made.traits
        self._reader = None

    def freezing(self) -> Task["Records"]:
        """The records as they are now, for readers, made in steps; good until the table thaws."""
        frozen = copy(self)
        frozen.is_changing = False
        frozen.table = yield from self.table.freezing()
        frozen.indexes = yield from self.indexes.freezing(frozen.table)
        return frozen

    def hold_back(self, since_us: int | None) -> None:
        """The view has had to hold back changes since a time; None: it holds back none."""
        self.unreleased_us = since_us

    def set_changing(self, is_changing: bool) -> None:
        """Know whether half of an atomic change may be here."""
        self.is_changing, self.changes_us = is_changing, None

    def change_at(self, now_us: int) -> None:
        """The atomic change under way is one of this time."""
        self.changes_us = now_us

    def begin_after(self, seq: int) -> None:
        """Log entries of the topic's name up to `seq` are not its own."""
        self.since_seq = seq

    def has_logged(self, entry: LogEntry | EntryHead) -> bool:
        """Whether a log entry is this topic's: of its name, and not of an earlier owner of it."""
        return entry.topic == self.name and entry.seq > self.since_seq

    def reindex(self, definition: Definition) -> Task[None]:
        """Build the indexes of another definition; the present ones serve until the last step."""
        new = self._coming = self._make_indexes(definition)
        self.watched.add(new.watched)
        going = new
        try:
            yield from new.filling()
            going, self.indexes = self.indexes, new
        finally:
            self._coming = None
            self.watched.remove(going.watched)

    def decoder(self, paths: tuple[Path, ...]) -> Decoder:
        """A decoder of these paths, made once."""
        return decoder_of(self.message_type, paths)

    def _arriving(self, paths: tuple[Path, ...], times: Iterator[int] | None = None) -> Decoder:
        """The decoder of what is published: with a Schema it accepts only what fits. `times` are
        the arrival times of the messages, one by one, where fields depend on them."""
        decoder, declared = self._decoder_of_sent(paths, times), self._declared
        return decoder if declared is None else JudgingDecoder(decoder, declared)

    @property
    def declared(self) -> DeclaredFields | None:
        """What the topic's own Schema declares."""
        return self._declared

    def _decoder_of_sent(
        self, paths: tuple[Path, ...], times: Iterator[int] | None = None
    ) -> Decoder:
        """A decoder of these paths for messages as clients send them."""
        decoder, fields = self.decoder(paths), self._preprocessing
        if fields is None:
            return decoder
        if not (traits := fields.traits):
            return PreprocessingDecoder(self.message_type, fields, decoder)

        def known(body: bytes) -> Known:
            came_us = () if times is None else (next(times),)
            return self.messages((), (body,), (), came_us).first(traits)

        return PreprocessingDecoder(self.message_type, fields, decoder, known)

    # Reading what clients send.

    def read(
        self,
        bodies: Sequence[bytes],
        explicit_keys: Sequence[str] | None = None,
        times: Iterable[int] | None = None,
    ) -> "CheckedMessages":
        """Validate bodies and determine their records; raises BadMessage, changes nothing.

        A topic without key fields needs the records' own keys, one for each body, and one that
        `is_timed` the `times` at which they come.
        """
        if (explicit_keys is None) != bool(self.keys):
            raise self._key_mistake()
        reader = self._reader
        if reader is None or reader[0] is not self.watched.paths:
            reader = self._make_reader(self.watched.paths)
        paths, decoder = reader
        if self.is_timed:
            if times is None:  # this is a thread, and the fields have been remade meanwhile
                raise Busy(f"the definition of {self.name} has just changed; send this again")
            decoder = self._arriving(paths, iter(times))
        stored, read = decoder.read(bodies)
        columns = dict(zip(paths, read, strict=True))
        if explicit_keys is None:
            found = identities(self.keys, list(map(columns.__getitem__, self.keys)))
        else:
            if len(stored) != len(explicit_keys):
                raise ClientError(f"topic {self.name} takes one message with each k")
            found = [check_explicit_key(key) for key in explicit_keys]
        read_now = CheckedMessages(stored, found, columns)
        return read_now if len(stored) < UNTRACKED_MIN else _waiting(read_now)

    def _make_reader(self, paths: tuple[Path, ...]) -> tuple[tuple[Path, ...], Decoder]:
        fields = self._preprocessing
        reader = self._reader = paths, self._arriving(paths)
        if fields is not self._preprocessing:
            self._reader = None  # this is a thread, and they have been remade meanwhile
        return reader

    def _key_mistake(self) -> ClientError:
        if self.keys:
            fields = ", ".join(map(str, self.keys))
            return ClientError(
                f"topic {self.name} makes its keys from {fields}; leave out k", reason="bad sow key"
            )
        return ClientError(
            f"topic {self.name} has no Key: give the record's key as k", reason="bad sow key"
        )

    def check_filter(self, condition: Filter | None) -> None:
        """Reject a filter on fields of messages that have none; raises BadFilter."""
        if condition is not None and condition.paths and not self.message_type.structured:
            raise BadFilter(
                f"messages of {self.name} have no fields ({self.message_type.name}), so no filter "
                f"can ask for {clipped(str(condition.paths[0]))}; leave out the filter",
                expected="no field",
            )

    def identities_of(self, bodies: Sequence[bytes]) -> list[str]:
        """The identities of bodies as they are stored, from their key fields alone."""
        return self._identities(bodies, self.decoder(self.keys))

    def identities_of_sent(self, bodies: Sequence[bytes]) -> list[str]:
        """The identities of messages that a client sends. Where fields depend on the time of
        arrival, messages name records as they are stored: that time does not come again."""
        if self.is_timed:
            return self.identities_of(bodies)
        return self._identities(bodies, self._decoder_of_sent(self.keys))

    def _identities(self, bodies: Sequence[bytes], decoder: Decoder) -> list[str]:
        if not self.keys:
            raise ClientError(
                f"topic {self.name} has no Key; name the records by keys or k", reason="bad sow key"
            )
        return identities(self.keys, decoder.read(bodies)[1])

    def stored(self, bodies: Sequence[bytes], names: Sequence[str] | None) -> "CheckedMessages":
        """Records that were made before; `names`: identities that do not follow from the bodies."""
        paths, bodies = self.watched.paths, list(bodies)
        columns = dict(zip(paths, self.decoder(paths).columns(bodies), strict=True))
        if names is None:
            names = identities(self.keys, list(map(columns.__getitem__, self.keys)))
        known = CheckedMessages(bodies, list(names), columns)
        return known if len(bodies) < UNTRACKED_MIN else _waiting(known)

    def finished(
        self,
        identities: Sequence[str],
        bodies: Sequence[bytes],
        nulls: Nulls | None,
        held: Mapping[str, bytes | None] | None = None,
        fitted: bool = False,
        now_us: int = 0,
    ) -> list[bytes]:
        """The records that result from messages that were read, in order: enriched, and deltas, in
        which an explicit null means `nulls`, merged.

        A record that does not exist is merged into as if it were empty: the meaning of a null does
        not depend on what was there. Of types that are sent whole the message is the record. `held`
        has bodies to use for some records in place of the table's; None: as if it did not exist.
        `now_us` is the time of arrival. Raises BadMessage with the index of the first message with
        a result that does not fit the Schema; if `fitted`, that is NULL.
        """
        kind = self.message_type
        if not kind.partial:
            return list(bodies)
        fields = self.fields
        held = held if self.retains else None
        found: list[bytes] = []
        newest: dict[str, bytes] = {}
        for index, (identity, body) in enumerate(zip(identities, bodies, strict=True)):
            if identity in newest:
                before: bytes | None = newest[identity]
            else:
                before = held[identity] if held and identity in held else self.body(identity)
            known: Known = NO_TRAITS
            if traits := fields.traits:
                known = self.messages((identity,), (body,), (), (now_us,)).first(traits)
            try:
                record = fields.body(body, before, nulls, self._declared, fitted, known)
            except BadMessage as error:
                raise error.moved(index) from None
            found.append(record)
            if self.retains:
                newest[identity] = record
        return found

    @property
    def fields(self) -> ComputedFields:
        """What `finished` computes and merges with."""
        return self._enrichment or computed_fields(self.message_type, ())

    def body(self, identity: str) -> bytes | None:
        """A record as it is; None if it does not exist."""
        slot = self.table.slots.get(identity)
        if slot is None:
            return None
        return self.table.bodies[slot] or b""

    # Changing the records.

    def put(
        self,
        identities: Sequence[str],
        bodies: Sequence[bytes],
        columns: Columns,
        seqs: Sequence[int],
        ts_us: Sequence[int],
        expires_us: int | Sequence[int] = 0,
        births: Births | None = None,
    ) -> Batch:
        """Insert or replace records; a topic that retains nothing only passes them on.

        All sequences have one element for each record; one may occur twice. `columns` are fields of
        the bodies that are known already. `expires_us` (when the records expire, 0 for never) and
        `births` are those of `Table.put`.
        """
        if self.types is not None:
            self.types.observe(bodies)
        if not self.retains:
            nothing = [None] * len(bodies)
            passed = Changes(self.name, identities, (), nothing, bodies, seqs, ts_us)
            return self.batch(passed, columns)
        slots, olds = self.table.put(identities, bodies, seqs, ts_us, expires_us, births)
        changes = Changes(self.name, identities, slots, olds, bodies, seqs, ts_us)
        batch = self.batch(changes, columns)
        self.indexes.put(slots, batch.column)
        if self._coming is not None:
            self._coming.put(slots, batch.column)
        return batch

    def introduced(self) -> Iterator[Batch]:
        """All records as changes from nothing, some in each batch; while none changes."""
        table, rest = self.table, self.table.live().tolist()
        for start in range(0, len(rest), INTRODUCED_AT_ONCE):
            slots = rest[start : start + INTRODUCED_AT_ONCE]
            identities = [table.identities[slot] or "" for slot in slots]
            bodies = [table.bodies[slot] or b"" for slot in slots]
            stamps = table.seqs[slots].tolist(), table.ts_us[slots].tolist()
            changes = Changes(self.name, identities, slots, [None] * len(slots), bodies, *stamps)
            yield self.batch(changes, {})

    def drop(
        self,
        identities: Iterable[str],
        reason: Reason,
        stamp: Callable[[int], tuple[Sequence[int], Sequence[int]]],
        partings: dict[str, bytes] | None = None,
    ) -> Batch | None:
        """Remove the records that exist; None if there are none.

        `reason` is why they leave. `stamp(n)` gives n sequence numbers and times and is called once
        it is known how many there are. `partings` are the states that made them leave.
        """
        gone, slots, olds = self.table.drop(identities)
        if not gone:
            return None
        if self.events is not None:
            self.events.drop(gone)
        self._unindex(slots)
        seqs, ts_us = stamp(len(gone))
        left = [partings[identity] for identity in gone] if partings else None
        changes = Changes(self.name, gone, slots, olds, None, seqs, ts_us, reason, left)
        return self.batch(changes, {})

    def discard(self, identities: Iterable[str]) -> None:
        """Remove records without changes; for a table that is being rebuilt."""
        self._unindex(self.table.drop(identities)[1])

    def _unindex(self, slots: Sequence[int]) -> None:
        self.indexes.drop(slots)
        if self._coming is not None:
            self._coming.drop(slots)

    def clear(self) -> None:
        """Remove all records without changes; for a table that is being rebuilt."""
        self.discard(list(self.table.slots))

    def batch(self, changes: Changes, columns: Columns) -> Batch:
        """Changes of this topic, to be routed; `columns` are fields of the new states."""
        return Batch(changes, columns, self.renderer, self.decoder, self.sow_keys, self.is_logged)

    def messages(
        self,
        identities: Sequence[str],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        ts_us: Sequence[int],
    ) -> MessageColumns:
        """Messages of records for filters that use more than fields."""
        numbers = seqs if self.is_logged else None
        keys = lambda: [*map(self.sow_key_of, identities)]  # noqa: E731
        return MessageColumns(self.name, bodies, keys, numbers, ts_us, self.instance)

    def settle(self) -> Task[None]:
        """Build what depends on all records, once the table was rebuilt."""
        self.table.settle()
        if self.events is not None:
            yield from self.events.settle(self.table)
        yield from self.indexes.fill()

    def check(self) -> None:
        """Assert what is always true of records and their indexes; reads all of them."""
        self.table.check()
        self.indexes.check()
        self.watched.check(self.indexes.watched)
        assert self.retains or not len(self.table)
        if self.events is not None:
            self.events.check(self.table)
        for identity, slot in self.table.slots.items() if self.makes_keys else ():
            assert self.table.sow_key(slot) == str(sow_key(self.domain, identity))

    # SowKeys.

    def sow_keys(self, slots: Sequence[int], identities: Sequence[str]) -> list[str]:
        """SowKeys of records that are, or were until now, in these slots."""
        if len(slots) == len(identities):
            return self.table.sow_keys(slots, identities)
        return list(map(self.sow_key_of, identities))

    def sow_key_of(self, identity: str) -> str:
        """The SowKey of an identity, whether the record exists or not."""
        if not self.makes_keys:
            return identity
        slot = self.table.slots.get(identity)
        return str(sow_key(self.domain, identity)) if slot is None else self.table.sow_key(slot)

    def sow_key_of_values(self, text: str) -> str:
        """The SowKey of the record with these values of the key fields (`values_of`), whether it
        exists or not; without key fields, the text is the key that a publisher gave. Raises
        ClientError for another number of values."""
        if not self.keys:
            return text
        values = values_of(text)
        if len(values) != len(self.keys):
            count, fields = len(self.keys), ", ".join(map(str, self.keys))
            raise ClientError(
                f"key={shown(text)} has {counted(len(values), 'value')}, and the Key of "
                f"{self.name} is {fields}; write {counted(count, 'value')} in this order, with "
                "commas between them"
            )
        (identity,) = joined([[value] for value in values])
        return self.sow_key_of(identity)


def _waiting(messages: CheckedMessages) -> CheckedMessages:
    """The same messages, very many, for the collector to pass over: those of a large publish wait
    to be stored all together. Lists in a column are in no circle with it."""
    untracked(messages.bodies)
    untracked(messages.identities)
    for column in messages.columns.values():
        untracked(column)
    return messages


@lru_cache(maxsize=PATHS_MAX)
def _paths(texts: tuple[str, ...]) -> tuple[Path, ...]:
    """The paths that a definition names, shared by the topics of a pattern."""
    return tuple(map(parse_path, texts))
