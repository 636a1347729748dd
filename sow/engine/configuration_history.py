"""The configurations that were in force: each start and each reload, and where in the log it was.

They are the server's own account (`CONFIGURATIONS`), so they are in the journal beside the log and
in every backup, and their place and time are those of the account's entry. A start is noted too
where nothing has changed: copies and views are made again with it. An entry without a text has that
of the one before. A directory that an earlier release has written to has none of that time: then
what comes first holds for all before it.

A definition is plain data, so its text is its fields by their names, as JSON, without those that
have their default. A later release may have other fields: what it does not know it leaves out, and
what it misses gets its default. Neither secrets of pipelines nor lines of the file are kept.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, Protocol

import orjson

from sow.core import action_definitions, definitions, security_definitions
from sow.core.definitions import (
    CONFIGURATIONS,
    Configuration,
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
