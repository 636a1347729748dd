"""What a follower has of its primary: a data directory of its own, and the end of the log in it.

    held_in         what there is to start with, and under which configuration
    put_in_place    a backup of the primary becomes the directory
    LogTail         what the primary has logged since then is appended, before a start
    followed        the configuration of the log, with what this machine's own file says of it

It is `following/` in the data directory, so no directory of a primary is ever touched, and none of
a follower taken for one. Nothing here calls the primary, as `sow.server.boot.follower` does, and no
server runs on the directory meanwhile.
"""

import shutil
from collections.abc import Iterator, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import orjson

from sow.core.definitions import (
    CONFIGURATIONS,
    Configuration,
    ConflatedTopic,
    JournalSettings,
    Topic,
    without_system_topics,
)
from sow.engine.configurations import configuration_of, noted
from sow.engine.following import changes
from sow.errors import Damaged, NotKept
from sow.store.backup import (
    ACCOUNT_FRAME,
    BLOCK_FRAME,
    WINDOWS_FRAME,
    StoredBackup,
    account_of,
    entries_of,
    windows_in,
)
from sow.store.directory import DataDirectory
from sow.store.journal import LmdbJournal
from sow.store.manifest import ManifestFile
from sow.store.protocols import LogEntry, OpenWindows, part_of
from sow.store.restoring import restore

FOLLOWING, COMING, BACKED_UP = "following", "coming", "copied"
"""The directory of what is followed, one that becomes it, and a backup that becomes that."""
OWN_FOLDERS = (FOLLOWING, COMING, BACKED_UP)
"""All that a follower has in its data directory."""


class FollowedData(NamedTuple):
    """What the directory holds: the log, its newest record, a configuration since which record."""

    log_id: str
    seq: int
    configuration: Configuration
    since_seq: int


class LogTail:
    """Appends what a primary sends to a journal that nobody else uses: up to the moment of the
    windows that come first, if the primary has not started since what the journal holds. It may
    have started again under the same configuration, as after a crash: then up to the last such
    start, which makes everything of the records alone, as each of them did. Any other start has to
    be made at its place, as has one at the very end of what is held (`starts_here`), and a reload
    that adds to the `queues`, which takes a file: nothing is appended. Each append ends between two
    changes, and has the reloads up to there: a start from it shows no half of a change, and nothing
    under an earlier configuration."""

    def __init__(
        self, journal: LmdbJournal, starts_here: bool = False, queues: Set[str] = frozenset()
    ) -> None:
        self._journal = journal
        self._queues = queues
        self._known = {_place_of(one) for one in journal.accounts() or ()}
        self._accounts: list[LogEntry] = []
        self._last: list[LogEntry] = []
        """The newest change, which may go on in the next block: a beat ends it."""
        self._windows: OpenWindows | None = None
        self._restart_seq: int | None = None
        """The record behind which the primary has started again last as it was before."""
        self._is_changed = False
        """Another configuration came in force: what comes behind it is none of these starts."""
        self._starts = starts_here
        """Something has to be made at its place."""
        self.is_over = False

    @property
    def open(self) -> OpenWindows | None:
        """The windows that are open at the end; None: those that a start makes."""
        return None if self._starts or self._restart_seq is not None else self._windows

    @property
    def _until_seq(self) -> int:
        if self._windows is None:
            raise Damaged("no open windows came, though they were requested")
        if self._restart_seq is not None:
            return self._restart_seq
        return self._journal.last_seq if self._starts else self._windows.seq

    def take(self, kind: bytes, content: bytes) -> None:
        """Take the next frame; raises Damaged, NotKept, StoreError."""
        if self.is_over:
            return
        if kind == WINDOWS_FRAME:
            self._windows = windows_in(content)
        elif kind == ACCOUNT_FRAME:
            self._take_account(account_of(content))
        elif self._starts and self._restart_seq is None:
            self.is_over = True
        elif kind == BLOCK_FRAME:
            *whole, self._last = changes([*self._last, *entries_of(content)])
            self._append([entry for change in whole for entry in change])
        else:
            last, self._last = self._last, []
            self._append(last)
            self.is_over = self._journal.last_seq >= self._until_seq

    def _take_account(self, entry: LogEntry) -> None:
        if _place_of(entry) in self._known:
            return
        if entry.topic == CONFIGURATIONS.name:
            check_goes_on(entry, self._journal.last_seq)
            held = orjson.loads(entry.bodies[0])
            self._starts |= held["start"]
            if "text" in held:
                self._is_changed = True
                self._starts |= bool(_queues_in(held["text"]) - self._queues)
            if held["start"] and not self._is_changed:
                self._restart_seq = entry.seq
            elif self._restart_seq is not None:
                return  # behind that start
        self._accounts.append(entry)

    def _append(self, entries: Sequence[LogEntry]) -> None:
        """Append entries, without what is there and what comes after the end, together with the
        accounts up to there."""
        last_seq = self._journal.last_seq
        cut = [_between(one, last_seq, self._until_seq) for one in entries]
        more = [one for one in cut if len(one)]
        reached = more[-1].seq + len(more[-1]) - 1 if more else last_seq
        due = [one for one in self._accounts if one.seq <= reached]
        self._accounts = [one for one in self._accounts if one.seq > reached]
        if more or due:
            self._journal.append([*more, *due])


def queues_of(configuration: Configuration) -> frozenset[str]:
    """The names of the queues of a configuration."""
    topics = configuration.topics
    return frozenset(one.name for one in topics if isinstance(one, Topic) and one.queue)


def _queues_in(text: str) -> frozenset[str]:
    try:
        return queues_of(configuration_of(text))
    except ValueError:
        return frozenset()  # of another release: the start says so


def check_goes_on(account: LogEntry, held_seq: int) -> None:
    """Raise NotKept for a start or reload of the primary within what is held up to a record, where
    it is not known: a directory of an earlier moment was put in place of its own."""
    if account.seq < held_seq:
        raise NotKept(
            f"the primary has started or reloaded after record {account.seq}, and what is held up "
            f"to record {held_seq} knows nothing of it: its log is not the one that was read"
        )


def _place_of(account: LogEntry) -> tuple[str, str, int, int]:
    """What differs between two states of an account."""
    return account.topic, (account.identities or ("",))[0], account.seq, account.ts_us


def _between(entry: LogEntry, after_seq: int, until_seq: int) -> LogEntry:
    """The records of an entry after one and up to another."""
    first = min(max(0, after_seq + 1 - entry.seq), len(entry))
    return part_of(entry, first, max(first, min(len(entry), until_seq + 1 - entry.seq)))


def remove(*paths: Path) -> None:
    """Remove directories, whatever is in them, where they are there."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def put_in_place(copied: Path, coming: Path, directory: Path) -> None:
    """Make a directory of a backup, in place of what there was."""
    restore(StoredBackup(copied), coming, now_us=None)
    shutil.rmtree(directory, ignore_errors=True)
    coming.rename(directory)
    shutil.rmtree(copied)


def held_in(path: Path) -> FollowedData | None:
    """What a directory holds; None for one that holds nothing to start with. Raises StoreError if
    another process has it."""
    if not path.is_dir():
        return None
    with closing(DataDirectory(path)) as directory:
        manifest = ManifestFile(path).manifest
        if manifest is None:
            return None
        with opened(directory) as journal:
            history = noted(journal.accounts() or ())
            if not history:
                return None
            found = with_journal(history[-1].configuration, manifest.journal)
            return FollowedData(manifest.log_id, journal.last_seq, found, history[-1].seq)


@contextmanager
def opened(directory: DataDirectory) -> Iterator[LmdbJournal]:
    """The journal of a directory that has a manifest."""
    manifest = ManifestFile(directory.path).manifest
    assert manifest is not None
    settings = JournalSettings(directory=manifest.journal)
    with closing(directory.journal(settings, must_exist=True)) as journal:
        yield journal


def with_journal(configuration: Configuration, directory: str) -> Configuration:
    """A configuration with the journal's directory that there is, whatever the primary's is."""
    return replace(configuration, journal=replace(configuration.journal, directory=directory))


def followed(log_has: Configuration, own: Configuration) -> Configuration:
    """The configuration of a follower: that of the log, with what its own file says of the machine.
    What Spark conflates for the primary is conflated here, by the same rules."""
    log_has, security = without_system_topics(log_has), log_has.security
    topics = tuple(
        replace(one, engine="embedded") if isinstance(one, ConflatedTopic) else one
        for one in log_has.topics
    )
    return replace(
        log_has,
        topics=topics,
        host=own.host,
        port=own.port,
        data_directory=str(Path(own.data_directory) / FOLLOWING),
        sessions=own.sessions,
        limits=replace(own.limits, pattern_topics_max=log_has.limits.pattern_topics_max),
        follower=own.follower,
        server_log=own.server_log,
        security=replace(
            security,
            tls=own.security.tls,
            authentication=own.security.authentication or security.authentication,
        ),
    )
