"""A local log becomes a shared one, and a shared one local: by a command, while no node runs.

    in ───> the command leads an empty log for a while, and appends a backup of the data directory:
            the log begins with it, under the name that the local log had. This node goes on with
            its directory, every other one makes one of what the log begins with
    out ──> nobody else leads, and the directory holds all that the log has: the log ends with an
            entry that no node goes on behind, and the directory is that of a local server

Both are done when that is durable in the shared log. A move that was interrupted is made again: a
backup that begins again replaces one without an end.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sow import __version__
from sow.core.definitions import (
    AUDIT,
    SYSTEM_PREFIX,
    Configuration,
    JournalSettings,
    SharedLogSettings,
)
from sow.engine.configurations import fingerprint, packed
from sow.errors import Damaged, StoreError, clipped
from sow.server.boot.bootstrap import LOG_ID_BYTES
from sow.server.boot.log_copy import PART_BEGINS, PART_ENDS, PART_GOES_ON, begins_at
from sow.server.boot.log_member import open_log
from sow.server.loop.log_checkpoint import (
    CHECKPOINT_FILE,
    check_trusted,
    checkpoint_of,
    write_checkpoint,
)
from sow.server.loop.log_driver import LogDriver
from sow.server.loop.log_writer import entries_of
from sow.shared_log.entry import ChainState, EntryKind, Lead, LogGroup
from sow.store.backup import END_FRAME, FAILED_FRAME, FRAME_LENGTH_BYTES, frames, reported_in
from sow.store.checkpoint import LmdbCheckpoint
from sow.store.directory import DataDirectory
from sow.store.journal import LmdbJournal
from sow.store.manifest import ManifestFile

PIECE_BYTES = 4 * 1024**2
"""Of a backup in one group: every reader holds that much at once."""
ON_THE_WAY_MAX = 4
"""Groups that are not durable yet: the engine is busy, and little memory is taken."""
UNANSWERED_S_MAX = 30.0
"""An engine that is there elects a leader within ten."""

Opened = Callable[[SharedLogSettings], Any]


class StoppedStore:
    """The store of a server that does not run, as a backup copies it."""

    def __init__(
        self,
        path: Path,
        journal: LmdbJournal,
        checkpoints: dict[str, LmdbCheckpoint],
        log_id: str,
    ) -> None:
        self.path = path
        self.journal = journal
        self.checkpoints = checkpoints
        self.log_id = log_id


@contextmanager
def stopped_store(path: Path) -> Iterator[StoppedStore]:
    """The store in a data directory; its log gets a name if it has none, as after a restore. Raises
    StoreError where a server runs on it, or there is none."""
    if not path.is_dir():
        raise StoreError(f"{path} is not there: name the data directory of a stopped server")
    with ExitStack() as stack:
        directory = stack.enter_context(closing(DataDirectory(path)))
        file = ManifestFile(path)
        if file.manifest is None:
            raise StoreError(f"{path} holds no data that a server has written")
        if not file.manifest.log_id:
            file.write(replace(file.manifest, log_id=secrets.token_hex(LOG_ID_BYTES)))
        manifest = file.manifest
        checkpoints = {
            one.name: stack.enter_context(closing(directory.checkpoint(one.topic, one.since_seq)))
            for one in manifest.kept
        }
        journal = stack.enter_context(
            closing(
                directory.journal(
                    JournalSettings(directory=manifest.journal),
                    at_least_seq=manifest.newest_seq,
                    must_exist=True,
                    begins_after=manifest.begins_after,
                )
            )
        )
        yield StoppedStore(path, journal, checkpoints, manifest.log_id)


class GroupAppender:
    """Appends groups to the log that `driver` leads, and waits until they are durable."""

    def __init__(self, driver: LogDriver) -> None:
        self._driver = driver
        self._number = self._released = 0
        self._error: StoreError | None = None
        driver.serve(self)

    def released(self, number: int) -> None:
        """See `Submitter`."""
        self._released = number

    def ended(self, error: StoreError) -> None:
        """See `Submitter`."""
        self._error = error

    async def append(self, kind: EntryKind, content: bytes) -> None:
        """Append one; raises StoreError where another node leads."""
        self._number += 1
        if not self._driver.submit(self._number, content, time.time_ns() // 1000, kind):
            raise self._driver.lost_lead()
        await self.durable(ON_THE_WAY_MAX)

    async def durable(self, but: int = 0) -> None:
        """Return when all but so many are durable."""
        while self._number - self._released > but:
            coming = self._driver.next()
            if self._error is not None:
                raise self._error
            await asyncio.shield(coming)


@asynccontextmanager
async def leading(
    configuration: Configuration,
    log_id: str,
    state: ChainState,
    opened: Opened,
    take: Callable[[LogGroup], None],
) -> AsyncIterator[tuple[LogDriver, GroupAppender]]:
    """Lead the shared log of a configuration, once `take` has had all its groups behind a state.
    Raises StoreError where another node leads."""
    settings = configuration.shared_log
    shared = opened(settings)
    address = settings.advertise or configuration.url
    lead = Lead(
        settings.node,
        address,
        settings.lease_us,
        fingerprint(configuration),
        log=log_id,
        configuration=packed(configuration),
    )
    driver = LogDriver(shared, lead, state=state)
    driver.keep_time(lambda: time.time_ns() // 1000)
    appender = GroupAppender(driver)
    driver.start()
    try:
        while True:
            coming = driver.next()
            while driver.waiting:
                take(driver.waiting[0])
                driver.applied(0)
            if driver.failure is not None:
                raise driver.failure
            if driver.is_primary:
                break
            if driver.has_joined:
                raise StoreError(
                    f"node {driver.leader.node if driver.leader else '?'} leads the shared log: "
                    "stop all nodes first",
                    reason="nodes run",
                )
            try:
                async with asyncio.timeout(None if driver.has_begun else UNANSWERED_S_MAX):
                    await asyncio.shield(coming)
            except TimeoutError:
                raise StoreError(
                    f"the engine of the shared log does not answer: {driver.trouble}",
                    reason="no engine",
                ) from None
        if driver.leader is not None and driver.leader.log != log_id:
            raise StoreError(
                f"the shared log is log {driver.leader.log}, and the data directory has {log_id}: "
                "name the log to which it belongs, or another Stream, which it begins",
                reason="another log",
            )
        yield driver, appender
    finally:
        await driver.close()
        await shared.close()


class MovedIn:
    """What an interrupted move of a directory up to record `last_seq` has left in its log."""

    def __init__(self, last_seq: int) -> None:
        self._last_seq = last_seq
        self.is_whole = False
        """Only the place of this node was not written."""

    def take(self, group: LogGroup) -> None:
        """The next group; raises StoreError where it is none of such a move."""
        if group.kind == EntryKind.BACKUP and not self.is_whole:
            if not group.content.startswith(PART_ENDS):
                return
            contents = reported_in(group.content[len(PART_ENDS) + FRAME_LENGTH_BYTES + 1 :])
            if contents.get("bookmark") == str(self._last_seq):
                self.is_whole = True
                return
        raise StoreError(
            "the shared log is not empty: give another Stream, or start this node with an empty "
            "DataDirectory, which is filled from it",
            reason="not empty",
        )


async def move_in(configuration: Configuration, opened: Opened = open_log) -> int:
    """Make the data directory of a configuration what its shared log, which is empty, begins with;
    returns the newest bookmark. Raises StoreError, ConfigError."""
    path = Path(configuration.data_directory)
    check_trusted(path)
    with stopped_store(path) as store:
        begins, moved = ChainState(), MovedIn(store.journal.last_seq)
        async with leading(configuration, store.log_id, begins, opened, moved.take) as led:
            driver, appender = led
            if not moved.is_whole:
                for piece in _pieces(frames(store, time.time_ns() // 1000, __version__)):
                    await appender.append(EntryKind.BACKUP, piece)
            await appender.durable()
            place = checkpoint_of(driver.node.chain.settled, store.journal.last_seq)
        assert place is not None
        write_checkpoint(path, place)
        return store.journal.last_seq


def _pieces(made: Iterator[bytes]) -> Iterator[bytes]:
    """Frames of a backup, gathered, each piece with its mark; the last frame is one alone. Raises
    StoreError for a frame that says why there is no more."""
    found = bytearray(PART_BEGINS)
    for frame in made:
        kind = frame[FRAME_LENGTH_BYTES : FRAME_LENGTH_BYTES + 1]
        if kind == FAILED_FRAME:
            failure = reported_in(frame[FRAME_LENGTH_BYTES + 1 :])
            raise StoreError(str(failure["detail"]), reason=str(failure["reason"]))
        if kind == END_FRAME:
            yield bytes(found)
            yield PART_ENDS + frame
            return
        found += frame
        if len(found) >= PIECE_BYTES:
            yield bytes(found)
            found[:] = PART_GOES_ON


class HeldIn:
    """What a journal has of groups of a log, that of the node `node`."""

    def __init__(self, journal: LmdbJournal, node: str) -> None:
        self._node = node
        self.has_ended = False
        """The log has been moved out with this node."""
        self._last_seq = journal.last_seq
        self._accounts = {_name(one): one.ts_us for one in journal.accounts() or ()}
        self._changed: dict[tuple[str, str], int] = {}
        """Accounts that are there at the end of the groups, and since when."""
        self.newest_seq = 0

    def take(self, group: LogGroup) -> None:
        """The next group."""
        if group.kind == EntryKind.END:
            self._check_ended_here(group.content.decode(errors="replace"))
        if group.kind not in (EntryKind.RECORDS, EntryKind.RELOAD):
            return
        for entry in entries_of(group):
            if not entry.topic.startswith(SYSTEM_PREFIX):
                self.newest_seq = max(self.newest_seq, entry.seq + len(entry) - 1)
            elif entry.topic != AUDIT.name:  # that is each server's own
                self._changed.pop(_name(entry), None)
                if entry.op == "publish":
                    self._changed[_name(entry)] = entry.ts_us

    def _check_ended_here(self, node: str) -> None:
        """A move of this node that was interrupted behind its end is made again."""
        self.has_ended = True
        if node != self._node:
            raise StoreError(
                f"node {clipped(node)} has taken the content of the shared log to a local log "
                "already: go on with its data directory",
                reason="log ended",
            )

    def check(self) -> None:
        """Raise StoreError where something is missing."""
        late = [one for one, ts_us in self._changed.items() if self._accounts.get(one, -1) < ts_us]
        if self.newest_seq > self._last_seq or late:
            raise StoreError(
                f"the data directory ends at bookmark {self._last_seq}, and the shared log goes on "
                f"up to {max(self.newest_seq, self._last_seq)}: start this node until it has all "
                "and stop it again, or take the directory of the node that has led last",
                reason="not all is here",
            )


def _name(entry: Any) -> tuple[str, str]:
    return entry.topic, (entry.identities or ("",))[0]


async def move_out(configuration: Configuration, opened: Opened = open_log) -> int:
    """End a shared log, and have the data directory of a node that holds all of it go on as that of
    a local server; returns the newest bookmark. Raises StoreError, ConfigError."""
    path = Path(configuration.data_directory)
    state = begins_at(path)
    with stopped_store(path) as store:
        if not (path / CHECKPOINT_FILE).exists():
            raise Damaged(
                f"{path} has no {CHECKPOINT_FILE}: no node has run there, or it was moved out "
                "already, and is started without <Log>"
            )
        node = configuration.shared_log.node
        held = HeldIn(store.journal, node)
        async with leading(configuration, store.log_id, state, opened, held.take) as led:
            held.check()
            _, appender = led
            if not held.has_ended:
                await appender.append(EntryKind.END, node.encode())
                await appender.durable()
        (path / CHECKPOINT_FILE).unlink()
        return store.journal.last_seq
