"""The configurations that were in force: each start and each reload, and where in the log it was.

They are the server's own account (`CONFIGURATIONS`), so they are in the journal beside the log and
in every backup. A start is noted too where nothing has changed: copies and views begin anew with
it. An entry without a text has that of the one before. A directory that an earlier release has
written to has none of that time: then what comes first holds for all before it.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from sow.core.definitions import CONFIGURATIONS, Configuration
from sow.core.stored_configuration import configuration_of, text_of
from sow.engine.catalog import Catalog
from sow.engine.running_topics import SourceTopic
from sow.engine.wal import CommitSequencer
from sow.store.protocols import LogEntry, Op
from sow.topic.records import CheckedMessages

Entry = dict[str, Any]
"""A start or a reload as it is kept."""


class InForceSince(NamedTuple):
    """A configuration that was in force after record `seq`, from `time_us` on: by a start, after
    which copies and views begin anew, or else by a reload. With a start that `goes_on` copies have
    the windows that were open."""

    configuration: Configuration
    seq: int = 0
    time_us: int = 0
    is_start: bool = True
    goes_on: bool = False


class ConfigurationHistory:
    """The starts and reloads of one engine's log. `put` stores messages in a topic at a time, and
    `remove` removes records of these identities."""

    def __init__(
        self,
        catalog: Catalog,
        sequencer: CommitSequencer,
        put: Callable[[SourceTopic, CheckedMessages, int], object],
        remove: Callable[[SourceTopic, list[str], Op, int], object],
    ) -> None:
        self._catalog = catalog
        self._sequencer = sequencer
        self._put = put
        self._remove = remove
        self._made: dict[str, Configuration] = {}
        """Those that were read, by their texts."""

    def note(self, is_start: bool, oldest_seq: int = 0, goes_on: bool = False) -> None:
        """The present configuration is in force from now on. The log is kept after record
        `oldest_seq`: what ended before is forgotten."""
        account = self._account()
        if account is None:
            return
        seq, time_us = self._sequencer.seq, self._sequencer.now_us
        text, entries = text_of(self._catalog.configuration), self._entries()
        known = next((one["text"] for one in reversed(entries) if "text" in one), None)
        newest = entries[-1] if entries else None
        has_begun = newest is not None and newest["start"] and newest["seq"] == seq
        if newest is None or text != known or goes_on or (is_start and not has_begun):
            entry = {
                "number": newest["number"] + 1 if newest else 1,
                "seq": seq,
                "time_us": time_us,
                "start": is_start,
                "goes_on": goes_on,
                **({} if text == known else {"text": text}),
            }
            entries.append(entry)
            self._store(account, entry)
        self._forget(account, entries, oldest_seq)

    def _forget(self, account: SourceTopic, entries: list[Entry], oldest_seq: int) -> None:
        passed = max(1, sum(one["seq"] <= oldest_seq for one in entries))
        gone, first = entries[: passed - 1], entries[passed - 1]
        if gone:
            if "text" not in first:
                text = next(one["text"] for one in reversed(gone) if "text" in one)
                self._store(account, {**first, "text": text})
            names = [str(one["number"]) for one in gone]
            self._remove(account, names, "delete", self._sequencer.now_us)

    def _store(self, account: SourceTopic, entry: Entry) -> None:
        messages = account.records.read([orjson.dumps(entry)])
        self._put(account, messages, self._sequencer.now_us)

    def all(self) -> list[InForceSince]:
        """All of them, in order; the present one alone where none is noted."""
        return in_force(self._entries(), self._made) or [InForceSince(self._catalog.configuration)]

    def _account(self) -> SourceTopic | None:
        topic = self._catalog.topics.get(CONFIGURATIONS.name)
        return topic if isinstance(topic, SourceTopic) else None

    def _entries(self) -> list[Entry]:
        account = self._account()
        bodies = [] if account is None else account.records.table.bodies
        return _in_order(body for body in bodies if body is not None)


def noted(accounts: Iterable[LogEntry]) -> list[InForceSince]:
    """The starts and reloads among the accounts of a journal, in order."""
    entries = (entry for entry in accounts if entry.topic == CONFIGURATIONS.name)
    return in_force(_in_order(body for entry in entries for body in entry.bodies), {})


def in_force(entries: Iterable[Entry], made: dict[str, Configuration]) -> list[InForceSince]:
    """The configurations of entries; `made` keeps them by their texts."""
    found: list[InForceSince] = []
    text = ""
    for one in entries:
        text = one.get("text", text)
        if text not in made:
            made[text] = configuration_of(text)
        goes_on = one.get("goes_on", False)
        found.append(InForceSince(made[text], one["seq"], one["time_us"], one["start"], goes_on))
    return found


def _in_order(bodies: Iterable[bytes]) -> list[Entry]:
    return sorted(map(orjson.loads, bodies), key=lambda one: one["number"])
