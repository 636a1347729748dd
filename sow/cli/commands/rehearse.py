"""`sow rehearse`: which conflated topics and views would say or hold something else under another
configuration, for a log that was recorded.

Two engines process the log side by side: one under the configurations that were in force, the other
under the new one, with the same restarts (`sow.engine.replay`). What they say is compared record by
record (`sow.engine.rehearsal`). At the end everything that waits in windows is released on both
sides, as if nothing came any more: so a longer interval differs where it merges something else, and
not because the log ends. The log is read from a copy in a scratch directory, and nothing else is
written.
"""

import gc
import os
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import orjson

from sow.cli.options import command, variables_option
from sow.cli.output import printable, show, show_error
from sow.cli.tables import progress
from sow.config import require
from sow.core.comma_lists import comma_list
from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import (
    CONFIGURATIONS,
    Configuration,
    ConflatedTopic,
    JournalSettings,
    Topic,
    View,
    with_system_topics,
)
from sow.core.humanize import counted, did_you_mean
from sow.engine.engine import Engine
from sow.engine.patterns import copied_from
from sow.engine.recovery.redo import named_in
from sow.engine.rehearsal import (
    NEW,
    OLD,
    ComparedRecord,
    ComparedTopic,
    Rehearsal,
    SaidLine,
    Written,
)
from sow.engine.replay import HeldRecords, InForceSince, Moment, Replay, Sent, StartingState
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.errors import ClientError, ConfigError, Damaged, SowError, StoreError, UnknownTopic, shown
from sow.history.bookmarks import POSITION, parse_moment
from sow.history.snapshot_as_of import Present, unchanged_since
from sow.protocol.replies import timestamp
from sow.server.boot.bootstrap import ServerBootstrap
from sow.store.backup import CONTENTS_FILE, StoredBackup
from sow.store.directory import DataDirectory
from sow.store.journal import LmdbJournal
from sow.store.manifest import Manifest, ManifestFile, kept_of
from sow.store.protocols import LogEntry, Slice
from sow.store.restoring import copy_to_read
from sow.store.restoring import restore as restored_to
from sow.topic.records import Records

DIFFERENT, FAILED = 1, 2
"""Exit codes; 0: all of it is the same. 2 is click's for wrong usage, too."""
SHOWN_RECORDS = 5
"""Records of a topic that are shown to people: as many as one looks at. --json has all."""
SHOWN_CHARS = 120
"""So much of a body is shown to people."""
SIDES = ("old", "new")


@command(
    "sow rehearse backups/monday --config new.xml",
    "sow rehearse data --config new.xml --topics quotes-C,exposure --json",
)
@click.argument("source", metavar="BACKUP|DATADIR", type=click.Path(exists=True, file_okay=False))
@click.option("--config", required=True, metavar="NEW.xml", type=click.Path(),
              help="The configuration to rehearse.")  # fmt: skip
@click.option("--from", "from_text", metavar="B",
              help="Compare what is said from this bookmark or time on.")  # fmt: skip
@click.option("--to", "to_text", metavar="B", help="End with this bookmark or time.")
@click.option("--topics", metavar="A,B", help="Only these conflated topics and views.")
@click.option("--times", is_flag=True, help="The times of lines count, too.")
@click.option("--lines", metavar="FILE", type=click.Path(dir_okay=False),
              help="Write what is said under the new one, to compare releases.")  # fmt: skip
@variables_option
@click.pass_context
def rehearse(
    ctx: click.Context,
    source: str,
    config: str,
    from_text: str | None,
    to_text: str | None,
    topics: str | None,
    times: bool,
    lines: str | None,
    variables: dict[str, str],
) -> None:
    """Replay a log under another configuration, and show what would differ.

    Compares the lines and the last records of all conflated topics and views, record by record,
    with those of the configurations that were in force. BACKUP is a backup, DATADIR the data
    directory of a stopped server. Exit code 0: equal, 1: different, 2: it failed.
    """
    with _failures(ctx), _readable(Path(source)) as directory:
        wanted = None if topics is None else comma_list(topics)
        configuration = require(config, variables, os.environ)
        with opened(directory) as recording:
            span = _span(recording.journal, from_text, to_text)
            with _written(lines, times) as written:
                found = rehearsed(
                    recording, with_system_topics(configuration), *span, wanted, times, written
                )
    is_equal = not any(one.differs for one in found)
    show({"equal": is_equal, "topics": [*map(_described, found)]}, _sentences(found))
    ctx.exit(0 if is_equal else DIFFERENT)


@contextmanager
def _failures(ctx: click.Context) -> Iterator[None]:
    """Report what fails with the exit code for it: 1 says that something differs."""
    try:
        yield
    except SowError as error:
        show_error(ctx, error)
        ctx.exit(FAILED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        show_error(ctx, StoreError(f"{where}{error.strerror or error}"))
        ctx.exit(FAILED)
    except Exception:
        traceback.print_exc()  # a bug of ours, which says nothing of the configurations
        ctx.exit(FAILED)


@contextmanager
def _written(path: str | None, times: bool) -> Iterator[Written | None]:
    """What writes each line that is said to a file, in the same way in every release: without
    bookmarks, and with `times` on request."""
    if path is None:
        yield None
        return
    with Path(path).open("wb") as file:

        def write(topic: LiveTopic, key: str, line: SaidLine) -> None:
            shown_line = _line(line, topic.records)
            left_out = ("bm",) if times else ("bm", "at")
            kept = {name: one for name, one in shown_line.items() if name not in left_out}
            file.write(orjson.dumps({"topic": topic.name, "k": key, **kept}) + b"\n")

        yield write


@contextmanager
def _readable(source: Path) -> Iterator[Path]:
    """A data directory in a scratch directory that has the content of a backup, or of a stopped
    server's data directory."""
    with tempfile.TemporaryDirectory(prefix="sow-rehearse-") as scratch:
        target = Path(scratch) / "data"
        if (source / CONTENTS_FILE).exists():
            backup = StoredBackup(source)
            with progress("verifying", 2 * backup.size_bytes) as advance:
                for file, size_bytes, problem in backup.verify():
                    if problem:
                        raise Damaged(f"{file}: {problem}; take another backup")
                    advance(size_bytes)
                restored_to(backup, target, now_us=None, advance=advance)
        else:
            copy_to_read(source, target)
        try:
            yield target
        except SowError as error:
            # The copy is gone by the time at which this is read.
            error.detail = error.detail.replace(str(target), str(source))
            raise


MEANING = frozenset({"Key", "KeyDomain", "MessageType", "Pattern", "UnderlyingTopic"})
"""What says which record a message is: the log cannot be read under another one."""


class RecordedLog(NamedTuple):
    """A log that is only read: the configurations that were in force, what there was before it, and
    the manifest of its directory."""

    journal: LmdbJournal
    history: Sequence[InForceSince]
    state: StartingState
    manifest: Manifest

    def owns(self, entry: LogEntry) -> bool:
        """Whether an entry is of the topic that has its name now, and not of an earlier one."""
        since = {kept.name: kept.since_seq for kept in self.manifest.kept}
        gone_seq = self.manifest.given_up.get(entry.topic, 0)
        return entry.seq > max(since.get(entry.topic, 0), gone_seq)


@contextmanager
def opened(directory: Path) -> Iterator[RecordedLog]:
    """The recording in a data directory of one's own; raises StoreError, Damaged."""
    manifest = ManifestFile(directory).manifest
    if manifest is None:
        raise Damaged(f"the manifest of {directory} is missing")
    with _journal(directory, manifest) as journal:
        history, oldest = _history(journal), journal.first_seq - 1
    state = _state_before(directory, history[-1].configuration, oldest)
    with _journal(directory, manifest) as journal:
        yield RecordedLog(journal, history, state, manifest)


@contextmanager
def _journal(directory: Path, manifest: Manifest) -> Iterator[LmdbJournal]:
    settings = JournalSettings(directory=manifest.journal)
    with closing(DataDirectory(directory)) as data:
        opening = data.journal(
            settings,
            at_least_seq=manifest.newest_seq,
            must_exist=True,
            log_id=manifest.log_id,
            begins_after=manifest.begins_after,
        )
        with closing(opening) as journal:
            yield journal


def _history(journal: LmdbJournal) -> Sequence[InForceSince]:
    """The configurations that were in force; raises StoreError if none is known."""
    engine = Engine(with_system_topics(Configuration("rehearsal", ())))
    engine.restore_accounts(journal.accounts())
    if not engine.topics[CONFIGURATIONS.name].records.table.slots:
        raise StoreError(
            "the log does not say which configurations were in force, as an earlier release wrote "
            "it: start this release once on its data directory, with the configuration it has"
        )
    try:
        return engine.configurations.all()
    except ValueError as error:
        raise StoreError(f"a configuration that was in force cannot be read: {error}") from error


def _state_before(directory: Path, configuration: Configuration, oldest: int) -> StartingState:
    """What there was before a log that was trimmed: the records that have not changed since. The
    others are known from their first change in the log on, on both sides alike."""
    if not oldest:
        return StartingState()
    stored: dict[str, list[Slice]] = {}
    now_us = time.time_ns() // 1000
    opening = ServerBootstrap(configuration, directory, lambda: Engine(configuration), now_us)
    with closing(opening):
        run_to_completion(opening.open(lambda entries: entries))
        for topic in list(opening.engine.topics.values()):
            if isinstance(topic, SourceTopic) and topic.is_logged and not topic.is_system:
                now = Present.take(topic.records, opening.engine.seq)
                for part in run_to_completion(unchanged_since(now, oldest)):
                    stored.setdefault(topic.stored_as, []).append(named_in(topic, part))
    records = {name: HeldRecords(oldest, parts) for name, parts in stored.items()}
    return StartingState(oldest, 0, records)


def rehearsed(
    recording: RecordedLog,
    configuration: Configuration,
    start: Moment,
    end: Moment,
    wanted: Sequence[str] | None,
    times: bool,
    written: Written | None = None,
) -> list[ComparedTopic]:
    """Compare what is said under the configurations of a recording with what is under another one,
    which `written` gets; raises ClientError, ConfigError."""
    old = recording.history
    new = [one._replace(configuration=configuration) for one in old if one.is_start]
    sides = old, new or [InForceSince(configuration)]
    _check_meaning(old[-1].configuration, configuration)
    known = _known([one.configuration for side in sides for one in side])
    for name in wanted or ():
        _check_topic(name, known)
    names = frozenset(known if wanted is None else wanted)

    def replay(side: Sequence[InForceSince], sent: Sent) -> Replay:
        journal, state = recording.journal, recording.state
        return Replay(side, names, journal, state, owns=recording.owns, sent=sent)

    is_wanted = None if wanted is None else names.__contains__
    replays = [partial(replay, side) for side in sides]
    rehearsal = Rehearsal(replays, is_wanted, times=times, written=written)
    # Until everything that waits at the end has been released.
    end = end._replace(time_us=end.time_us + rehearsal.lag_us)
    return _shown(rehearsal, start, end)


def _shown(rehearsal: Rehearsal, start: Moment, end: Moment) -> list[ComparedTopic]:
    """Run a rehearsal, and show its progress."""
    found: list[ComparedTopic] = []

    def run() -> Task[None]:
        found.extend((yield from rehearsal.run(start, end)))

    reached = rehearsal.seq
    gc.disable()  # millions of objects, none of them garbage
    try:
        with progress("rehearsing", end.seq - reached) as advance:
            for _ in run():
                if rehearsal.seq > reached:
                    advance(rehearsal.seq - reached)
                    reached = rehearsal.seq
    finally:
        gc.enable()
    return found


def _span(
    journal: LmdbJournal, from_text: str | None, to_text: str | None
) -> tuple[Moment, Moment]:
    """Where the comparison begins and ends; raises ClientError."""
    newest, now_us = journal.last_seq, time.time_ns() // 1000
    start = Moment(journal.first_seq - 1, 0)
    if from_text is not None:
        start = parse_moment("--from", from_text, journal, newest, now_us)
    end = parse_moment("--to", to_text or str(newest), journal, newest, now_us)
    if from_text is not None and to_text is None and end < start:
        raise ClientError(
            f"--from {shown(from_text)}: the log ends before that, with bookmark {newest}; write a "
            "bookmark up to that, or an earlier time"
        )
    if end < start or _bookmark(to_text, newest) < _bookmark(from_text, 0):
        raise ClientError("--to is before --from: exchange them")
    return start, end


def _bookmark(text: str | None, default: int) -> int:
    """The bookmark that a text names: all within a change are one moment. The default for another
    text, which `parse_moment` has read."""
    found = POSITION.fullmatch((text or "").strip())
    return default if found is None else int(found[2])


def _check_meaning(old: Configuration, new: Configuration) -> None:
    """Raise ConfigError where the log would be of other records."""
    definitions = {one.name: one for one in new.topics}
    for topic in old.topics:
        now = definitions.get(topic.name)
        if isinstance(topic, Topic) and not topic.system and now is not None:
            changed = [one for one in kept_of(topic, old).changes(now, new) if one in MEANING]
            if changed:
                raise ConfigError(
                    f"topic {topic.name}: its messages were logged under another {changed[0]}, by "
                    "which they are other records; leave that as it was to rehearse the log"
                )


def _known(configurations: Iterable[Configuration]) -> Mapping[str, ConflatedTopic | View]:
    """The definitions of conflated topics and views in any of these, by their names."""
    return {
        one.name: one
        for configuration in configurations
        for one in configuration.topics
        if not isinstance(one, Topic)
    }


def _check_topic(name: str, known: Mapping[str, ConflatedTopic | View]) -> None:
    """Raise UnknownTopic for a name that no conflated topic or view can have."""
    formats = [one for one in known.values() if isinstance(one, ConflatedTopic)]
    if name not in known and not any(copied_from(one, name) for one in formats if one.topic_format):
        meant = did_you_mean(name, known) if known else ": there are none"
        raise UnknownTopic(f"no conflated topic or view {shown(name)}{meant}")


# The report.

Shown = dict[str, Any]


def _described(topic: ComparedTopic) -> Shown:
    """A topic as JSON."""
    found: Shown = {
        "topic": topic.name,
        "equal": not topic.differs,
        "kind": _sides(topic.kinds),
        "lines": _sides(topic.lines),
        "compared": topic.compared,
        "reordered": topic.is_reordered,
        "records": [_record(one, topic) for one in topic.differing],
    }
    if any(topic.stopped):
        found["stopped"] = _sides([one or None for one in topic.stopped])
    return found


def _sides(values: Sequence[object]) -> Shown:
    return dict(zip(SIDES, values, strict=True))


def _record(record: ComparedRecord, topic: ComparedTopic) -> Shown:
    found: Shown = {"k": record.key, "lines": _sides(record.lines)}
    if record.first is not None:
        lines = zip(record.first.lines, topic.records, strict=True)
        first = [None if one is None else _line(one, records) for one, records in lines]
        found["first"] = {"line": record.first.number, **_sides(first)}
    if record.ends is not None:
        ends = zip(record.ends, topic.records, strict=True)
        found["ends"] = _sides([None if one is None else _body(one, kind) for one, kind in ends])
    return found


def _line(line: SaidLine, records: Records | None) -> Shown:
    command_, reason = ("p", {}) if line.reason is None else ("oof", {"reason": line.reason})
    place = {"bm": str(line.seq), "at": timestamp(line.at_us)}
    return {"c": command_, **reason, **place, "d": _body(line.body, records)}


def _body(body: bytes, records: Records | None) -> orjson.Fragment:
    assert records is not None
    return orjson.Fragment(records.renderer.json_texts([body])[0])


def _sentences(found: Sequence[ComparedTopic]) -> Iterator[str]:
    """The report in lines for people."""
    for topic in found:
        yield printable(f"{topic.name}: {_summary(topic)}")
        for record in topic.differing[:SHOWN_RECORDS]:
            yield printable(f"  {record.key}: {_difference(_record(record, topic))}")
        if len(topic.differing) > SHOWN_RECORDS:
            more = len(topic.differing) - SHOWN_RECORDS
            yield f"  and {counted(more, 'other record')}: --json has them all"
    yield f"different: {sum(one.differs for one in found):,} of {len(found):,}"


def _summary(topic: ComparedTopic) -> str:
    if topic.kinds[OLD] is None:
        return "only in the new configuration"
    if topic.kinds[NEW] is None:
        return "only in the configuration that was in force"
    said = f"{topic.lines[OLD]:,} lines, and {topic.lines[NEW]:,} under the new one"
    if topic.stopped[OLD] != topic.stopped[NEW]:
        return f"stopped on one side: {topic.stopped[OLD] or topic.stopped[NEW]}"
    if topic.differing:
        count = len(topic.differing)
        verb = "differs" if count == 1 else "differ"
        return f"{count:,} of {counted(topic.compared, 'record')} {verb}; {said}"
    if topic.kinds[OLD] != topic.kinds[NEW]:
        return f"was of kind {topic.kinds[OLD]}, and is of kind {topic.kinds[NEW]}"
    if topic.is_reordered:
        return f"each record says the same, in another order among the others; {said}"
    return f"equal in {counted(topic.lines[OLD], 'line')} of {counted(topic.compared, 'record')}"


def _difference(record: Shown) -> str:
    """What differs of a record."""
    lines, first = record["lines"], record.get("first")
    found = [f"{counted(lines['old'], 'line')}, and {lines['new']:,}"]
    if first is not None:
        was, now = (_said(first[side]) for side in SIDES)
        if was == now:  # with --times, which differ then
            was, now = (f"{was} at {first[side]['at']}" for side in SIDES)
        found.append(f"line {first['line']} was {was} and is {now}")
    if "ends" in record:
        old, new = (_said_body(record["ends"][side]) for side in SIDES)
        found.append(f"it ended as {old} and ends as {new}")
    return "; ".join(found)


def _said(line: Mapping[str, Any] | None) -> str:
    if line is None:
        return "none"
    reason = f" ({line['reason']})" if "reason" in line else ""
    return f"{line['c']}{reason} {_said_body(line['d'])}"


def _said_body(body: orjson.Fragment | None) -> str:
    if body is None:
        return "nothing"
    text = orjson.dumps(body).decode(errors="replace")
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"
