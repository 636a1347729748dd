"""Configurations as data: those in force, how two differ, and what nodes of a log share.

A definition is plain data, so its text is its fields by their names, as JSON, without those that
have their default. A later release may have other fields: what it does not know it leaves out, and
what it misses gets its default. Neither secrets of pipelines nor lines of the file are kept.

Each start and each reload is in the server's own account (`CONFIGURATIONS`), so it is in the
journal beside the log and in every backup, and its place and time are those of the account's entry.
A start is noted too where nothing has changed: copies and views are made again with it. An entry
without a text has that of the one before. A directory that an earlier release has written to has
none of that time: then what comes first holds for all before it.

Two definitions of one name differ in fields, which elements of config.xml fill, and some of those a
reload may change. A queue is a topic with settings of its own, and its fields are those of both.
What becomes of a difference is for `sow.engine.reconfiguration` to say.

The nodes of a shared log have all but Node, Advertise, Listen and paths in common:

    packed ───────> in the `lead` entry of who leads, and in a `reload`: what holds from there on
    differences ──> why a node that has another file does not join, by elements of config.xml
    with_own ─────> the configuration of one node: what the log has, and what its own file says of
                    its machine
"""

import dataclasses
import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import orjson

from sow.config.elements.table import ROOT
from sow.core import action_definitions, definitions, security_definitions
from sow.core.definitions import (
    CONFIGURATIONS,
    BackPressure,
    Configuration,
    ConflatedTopic,
    Definition,
    QueueSettings,
    Topic,
    View,
    with_system_topics,
    without_secrets,
    without_system_topics,
)
from sow.engine.catalog import Catalog
from sow.engine.running_topics import SourceTopic
from sow.engine.wal import CommitSequencer
from sow.messages.json import json_text
from sow.store.protocols import LogEntry, Op
from sow.topic.records import CheckedMessages


class InForceSince(NamedTuple):
    """A configuration that was in force after record `seq`, from `time_us` on: by a start, which
    makes copies and views again, or else by a reload. With a start that `goes_on` copies have the
    windows that were open."""

    configuration: Configuration
    seq: int = 0
    time_us: int = 0
    is_start: bool = True
    goes_on: bool = False


class NotedStart(NamedTuple):
    """A start or a reload as it is kept: after record `seq`, at a time."""

    seq: int
    time_us: int
    held: dict[str, Any]

    @property
    def number(self) -> int:
        """How many-th it is."""
        return int(self.held["number"])

    @property
    def text(self) -> str | None:
        """The text of its configuration; None: that of the one before."""
        return self.held.get("text")


class Writer(Protocol):
    """Changes the records of topics."""

    def put(self, topic: SourceTopic, messages: CheckedMessages, now_us: int) -> int:
        """Store checked messages."""
        ...

    def remove(self, topic: SourceTopic, identities: Sequence[str], op: Op, now_us: int) -> int:
        """Remove the existing records of these identities."""
        ...


RELOADED = "reload"
"""The topic of the record that a reload is in the log of several nodes. It is stored nowhere
(`is_unstored`), so there may be a topic of this name."""


class ConfigurationHistory:
    """The starts and reloads of one engine's log; `writer` changes the account."""

    def __init__(self, catalog: Catalog, sequencer: CommitSequencer, writer: Writer) -> None:
        self._catalog = catalog
        self._sequencer = sequencer
        self._writer = writer
        self._made: dict[str, Configuration] = {}
        """Those that were read, by their texts."""
        self._all: list[InForceSince] | None = None
        """What `all` has returned, until another one is noted."""
        self._numbers = False

    def number_reloads(self) -> None:
        """Give each reload a number of its own in the log: the place at which it took effect."""
        self._numbers = True

    def note(self, is_start: bool, oldest_seq: int = 0, goes_on: bool = False) -> None:
        """The present configuration is in force from now on. The log is kept after record
        `oldest_seq`: what ended before is forgotten."""
        account = self._account()
        if account is None:
            return
        text, noted = text_of(self._catalog.configuration), self._noted()
        known = next((one.text for one in reversed(noted) if one.text is not None), None)
        newest = noted[-1] if noted else None
        # Two starts without a change between them make the same.
        has_begun = (
            newest is not None and newest.held["start"] and newest.seq == self._sequencer.seq
        )
        if text != known or goes_on or (is_start and not has_begun):
            held = {
                "number": 1 if newest is None else newest.number + 1,
                "start": is_start,
                "goes_on": goes_on,
                **({} if text == known else {"text": text}),
            }
            self._all = None
            if self._numbers and not is_start:
                self._take_number()
            messages = account.records.read([json_text(held)])
            self._writer.put(account, messages, self._sequencer.now_us)
        self._forget(account, noted, oldest_seq)

    def _take_number(self) -> None:
        """Log a record that is stored nowhere."""
        (seq,), now_us = self._sequencer.numbers(1, account=False), self._sequencer.now_us
        self._sequencer.write(LogEntry("publish", RELOADED, seq, now_us, None, (b"",)))

    @property
    def is_noted(self) -> bool:
        """Whether any is noted, by whatever node of the log."""
        return bool(self._noted())

    def forget(self, oldest_seq: int) -> None:
        """The log is kept after record `oldest_seq`: what ended before is forgotten."""
        if (account := self._account()) is not None:
            self._forget(account, self._noted(), oldest_seq)

    def _forget(self, account: SourceTopic, noted: list[NotedStart], oldest_seq: int) -> None:
        """Remove what ended before a record, but for the text that the first of the rest has."""
        count = max(0, sum(one.seq < oldest_seq for one in noted) - 1)
        with_text = [at for at, one in enumerate(noted[: count + 1]) if one.text is not None]
        gone = [str(one.number) for one in noted[: max(with_text, default=0)]]
        if gone:
            self._all = None
            self._writer.remove(account, gone, "delete", self._sequencer.now_us)

    def all(self) -> list[InForceSince]:
        """All of them, in order; the present one alone where none is noted."""
        if self._all is None:
            self._all = _in_force(self._noted(), self._made)
        return self._all or [InForceSince(self._catalog.configuration)]

    def _account(self) -> SourceTopic | None:
        topic = self._catalog.topics.get(CONFIGURATIONS.name)
        return topic if isinstance(topic, SourceTopic) else None

    def _noted(self) -> list[NotedStart]:
        account = self._account()
        if account is None:
            return []
        table = account.records.table
        slots = table.live().tolist()
        stamps = table.seqs[slots].tolist(), table.ts_us[slots].tolist()
        return _read(zip(*stamps, (table.bodies[slot] or b"" for slot in slots), strict=True))


def noted(accounts: Iterable[LogEntry]) -> list[InForceSince]:
    """The starts and reloads among the accounts of a journal, in order."""
    ours = [entry for entry in accounts if entry.topic == CONFIGURATIONS.name]
    found = ((entry.seq, entry.ts_us, body) for entry in ours for body in entry.bodies)
    return _in_force(_read(found), {})


def reload_in(entries: Iterable[LogEntry]) -> Configuration | None:
    """The newest configuration that entries put in force by a reload."""
    ours = [one for one in entries if one.account and one.topic == CONFIGURATIONS.name]
    held = [orjson.loads(body) for entry in ours for body in entry.bodies]
    texts = [one["text"] for one in held if not one["start"] and "text" in one]
    return configuration_of(texts[-1]) if texts else None


def _read(found: Iterable[tuple[int, int, bytes]]) -> list[NotedStart]:
    read = (NotedStart(seq, time_us, orjson.loads(body)) for seq, time_us, body in found)
    return sorted(read, key=lambda one: one.number)


def _in_force(noted: Iterable[NotedStart], made: dict[str, Configuration]) -> list[InForceSince]:
    """The configurations of entries; `made` keeps them by their texts."""
    found: list[InForceSince] = []
    text = ""
    for one in noted:
        text = one.text or text
        if text not in made:
            made[text] = configuration_of(text)
        is_start, goes_on = one.held["start"], one.held["goes_on"]
        found.append(InForceSince(made[text], one.seq, one.time_us, is_start, goes_on))
    return found


KIND = "is"
"""Names the class of an object; no field is called so."""
KINDS: dict[str, type] = {
    name: kind
    for module in (definitions, security_definitions, action_definitions)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and is_dataclass(kind)
}


def text_of(configuration: Configuration) -> str:
    """The text of a configuration that a server runs; equal ones have the same."""
    requested = without_secrets(configuration)
    return json.dumps(_described(requested, but=("pipelines", "data_directory")))


def shared_part(configuration: Configuration) -> Configuration:
    """What has to be the same on every node of a shared log: all but Node, Advertise, Listen and
    paths."""
    same, configuration = Configuration(""), without_system_topics(configuration)
    return replace(
        configuration,
        host=same.host,
        port=same.port,
        data_directory=same.data_directory,
        journal=replace(configuration.journal, directory=same.journal.directory),
        security=replace(configuration.security, tls=None),
        shared_log=same.shared_log,
        pipelines=(),
    )


def node_text(configuration: Configuration) -> str:
    """The text of the same."""
    return text_of(shared_part(configuration))


def configuration_of(text: str) -> Configuration:
    """The configuration of a text, as a server runs it; raises ValueError."""
    try:
        found = _made(json.loads(text))
    except (TypeError, KeyError) as error:
        raise ValueError(f"this is not the text of a configuration: {error}") from error
    if not isinstance(found, Configuration):
        raise ValueError("this is not the text of a configuration")
    return with_system_topics(found)


def _described(value: Any, but: tuple[str, ...] = ()) -> Any:
    if isinstance(value, tuple):
        return [_described(one) for one in value]
    if isinstance(value, bytes):
        return {KIND: "bytes", "text": value.decode("latin-1")}
    if not is_dataclass(value):
        return value
    held: dict[str, Any] = {KIND: type(value).__name__}
    for one in fields(value):
        part = getattr(value, one.name)
        if one.name not in ("line", *but) and part != one.default:
            held[one.name] = _described(part)
    return held


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_made, value))
    if not isinstance(value, dict):
        return value
    if value[KIND] == "bytes":
        return value["text"].encode("latin-1")
    kind = KINDS[value[KIND]]
    known = {one.name for one in fields(kind)}
    return kind(**{name: _made(part) for name, part in value.items() if name in known})


INDEX_FIELDS = frozenset({"hash_indexes", "indexes"})
BACK_PRESSURE_FIELDS = frozenset(field.name for field in dataclasses.fields(BackPressure))
PACE_FIELDS = frozenset({"interval_us", "schedule"})
FILTER_FIELDS = frozenset({"filter"})
READ_WHEN_NEEDED = frozenset({"history", "records_max"})
"""Fields of a topic that nothing is made of: another value only has to be there."""
MADE_FIELDS = frozenset({"preprocessing", "enrichment"})
EVENT_FIELDS = frozenset({"series"})
QUEUE_FIELDS = frozenset(field.name for field in dataclasses.fields(QueueSettings))
AT_REST_FIELDS = frozenset({"underlying", "semantics", "priority", "barrier"})
"""Those that say what becomes of messages, which have come under others while there are some."""
ROW_FIELDS = frozenset(
    {"underlyings", "joins", "null_equivalency", "projection", "filter", "conflation"}
)
CHANGEABLE = INDEX_FIELDS | BACK_PRESSURE_FIELDS
CHANGEABLE_IN_SOURCES = CHANGEABLE | MADE_FIELDS | EVENT_FIELDS | READ_WHEN_NEEDED | QUEUE_FIELDS
CHANGEABLE_IN_COPIES = CHANGEABLE | PACE_FIELDS | FILTER_FIELDS
CHANGEABLE_IN_VIEWS = CHANGEABLE | ROW_FIELDS
SECTION = next(child for child in ROOT.children if child.name == "SOW")
"""The element that definitions are in."""


def kind_of(definition: Definition) -> str:
    """What a definition is called."""
    if isinstance(definition, Topic):
        return "queue" if definition.queue else "view" if definition.view else "topic"
    return "view" if isinstance(definition, View) else "conflated topic"


def changed_fields(old: Definition | QueueSettings, new: Definition | QueueSettings) -> set[str]:
    """The fields in which two definitions of one kind differ."""
    names = {field.name for field in dataclasses.fields(new)} - {"line"}
    found = {name for name in names if getattr(old, name) != getattr(new, name)}
    if "queue" in found:
        assert isinstance(old, Topic)
        assert isinstance(new, Topic)
        if old.queue and new.queue:
            found = found - {"queue"} | changed_fields(old.queue, new.queue)
    return found


def changeable(old: Definition, new: Definition) -> frozenset[str]:
    """The fields of a definition that a reload may change."""
    if isinstance(new, View):
        return CHANGEABLE_IN_VIEWS
    if isinstance(new, ConflatedTopic):
        return CHANGEABLE_IN_COPIES if new.engine == "embedded" else CHANGEABLE
    is_series = isinstance(old, Topic) and old.series and new.series
    return CHANGEABLE_IN_SOURCES if is_series else CHANGEABLE_IN_SOURCES - EVENT_FIELDS


def elements_of(old: Definition, new: Definition, fields: Collection[str]) -> list[str]:
    """The elements of config.xml that fill these fields."""
    if isinstance(old, Topic) and isinstance(new, Topic) and old.view and new.view:
        # It is run by Spark, and stored as a topic: its elements are those of the view.
        old, new = old.view, new.view
        fields = changed_fields(old, new)
    return filling(new, fields)


def changed_elements(old: Definition, new: Definition) -> list[str]:
    """The elements of config.xml in which two definitions of one kind differ."""
    return elements_of(old, new, changed_fields(old, new))


def filling(definition: Definition, fields: Collection[str]) -> list[str]:
    """The elements that fill fields of a definition, in the element that is called as its class."""
    is_queue = isinstance(definition, Topic) and definition.queue is not None
    section = SECTION.child("Queue" if is_queue else type(definition).__name__)
    assert section is not None
    return sorted({section.filling(name) for name in fields})


PACKED_MAX = 512 * 1024
"""Characters of a configuration in an entry of the log, half of what one takes: thousands of
definitions. A larger one is known by its fingerprint alone."""
SHOWN_MAX = 5
"""So many differences are named."""


def with_own(shared: Configuration, own: Configuration) -> Configuration:
    """The configuration of the node whose file says `own`, under what the log has."""
    shared = without_system_topics(shared)
    return replace(
        shared,
        host=own.host,
        port=own.port,
        data_directory=own.data_directory,
        journal=replace(shared.journal, directory=own.journal.directory),
        security=replace(shared.security, tls=own.security.tls),
        shared_log=own.shared_log,
        pipelines=own.pipelines,
    )


def fingerprint(configuration: Configuration) -> str:
    """Of all that has to be the same on every node."""
    return blake2b(node_text(configuration).encode(), digest_size=8).hexdigest()


def packed(configuration: Configuration) -> str:
    """The same as text for an entry of the log; "" where that is too large."""
    text = b85encode(zlib.compress(node_text(configuration).encode())).decode()
    return text if len(text) <= PACKED_MAX else ""


def unpacked(text: str) -> Configuration | None:
    """The configuration of such a text; None where there is none, or a later release's."""
    try:
        return configuration_of(zlib.decompress(b85decode(text)).decode())
    except (ValueError, zlib.error):
        return None


def differences(there: str, own: Configuration) -> str:
    """In what a configuration differs from the one that the log has, as `packed`."""
    log_has = unpacked(there)
    if log_has is None:
        return "what is not known here, as it is too large"
    found = [*_different(shared_part(log_has), shared_part(own))]
    more = f", and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return ", ".join(found[:SHOWN_MAX]) + more or "by what this release does not know"


def _different(there: Configuration, here: Configuration) -> Iterator[str]:
    for one in fields(Configuration):
        if one.name != "topics" and getattr(there, one.name) != getattr(here, one.name):
            yield f"<{ROOT.filling(one.name) or one.name}>"
    before = {definition.name: definition for definition in there.topics}
    after = {definition.name: definition for definition in here.topics}
    for name, definition in (before | after).items():
        had, has = before.get(name), after.get(name)
        what = f"{kind_of(definition)} {name}"
        if had is None or has is None:
            yield f"{what}, which is only {'here' if had is None else 'there'}"
        elif type(had) is not type(has):
            yield f"what {what} is"
        elif changed := changed_elements(had, has):
            yield " and ".join(f"<{element}>" for element in changed) + f" of {what}"
    if [*before] != [*after] and before.keys() == after.keys():
        yield "the order of topics"
