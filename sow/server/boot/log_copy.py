"""What a node of a shared log has of the others: a copy of their data, and their reports.

One that has not what the log begins with copies what the primary has.

    who leads ────────> says so at the end of the log, in leads and beats: only where to look
    its checkpoint ───> the place in the log that its data reach at least (`/v1/log/status`)
    its backup ───────> the data directory, in place of what was there, with that place
    its log ──────────> what has come since then, and the windows that are open at its end
    from then on ─────> the log behind it

The place comes first: what the backup has beyond it is read again, and passed over. The node checks
it against the log before it goes on (`LogDriver`). What is replaced is a cache of the same log;
records of another one are never touched.

Reports show that a node is not as others:

    a follower ──> reports to the primary each second how far it is, and what it needs of the log,
                   and requests what the primary knows of all nodes
    its first report > finds whether another process of its name was there before: then it stops
    each node ───> compares state hashes with those that were at its own bookmark: in the minority,
                   or with no majority unlike the primary, it stops, for good

A node that stops has lost, kept or changed a record that the others have not: it serves nothing any
more, and never leads. What it has on its disk is marked, and no process begins with it. While
changes come without a pause nodes are at equal bookmarks only by chance: the difference is found in
the next pause.
"""

import asyncio
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path

import msgspec
from aiohttp import ClientError as CallFailed
from aiohttp import ClientSession

from sow.core.clock import SECOND_US
from sow.engine.engine import Engine
from sow.engine.running_topics import SourceTopic
from sow.errors import (
    ConfigError,
    LogEnded,
    LogTrimmed,
    LogUnanswered,
    NotKept,
    SowError,
    StateDiffers,
    StoreError,
    clipped,
)
from sow.server.api.nodes import (
    AS_CHAINED,
    AS_PRIMARY,
    STATUS_BYTES_MAX,
    Nodes,
    ServerNode,
    Upstream,
    nodes_of,
    report,
)
from sow.server.api.status import StatusHandler
from sow.server.boot.followed_directory import BACKED_UP, COMING, held_in, remove
from sow.server.boot.follower import checked, fetch_backup, read_tail, session_with
from sow.server.boot.quarantine import REMOVED
from sow.server.chained.upstream import failure_of
from sow.server.http.body_reading import beginning
from sow.server.loop.log_checkpoint import (
    CHECKPOINT_FILE,
    CheckpointKeeper,
    LogCheckpoint,
    check_trusted,
    checkpoint_of,
    checkpoint_said,
    mark_differing,
    mark_of,
    put_aside,
    read_checkpoint,
    write_checkpoint,
)
from sow.server.loop.log_driver import LogDriver
from sow.shared_log import SharedLog
from sow.shared_log.entry import (
    ChainState,
    EntryKind,
    Lead,
    LogChain,
    LogGroup,
    decode,
    decode_lead,
)
from sow.store.backup import BackupContents, BackupWriter, FrameReader, StoredBackup
from sow.store.directory import LOCK_FILE
from sow.store.manifest import COPY_FILE, MANIFEST_FILE
from sow.store.protocols import OpenWindows
from sow.store.restoring import restore

log = logging.getLogger("sow.log")

READY = "copied-whole"
"""The directory of a copy that is complete; a part of that may be in place already."""
NOT_REPLACED = (COMING, READY, BACKED_UP, REMOVED, LOCK_FILE)
"""What a copy does not replace."""
RETRY_S = 1.0
"""Before another attempt; then double of that, since each may cost the primary a backup."""
RETRY_S_MAX = 30.0
"""The most: after half a minute with somebody who leads it goes on."""
PART_BEGINS, PART_GOES_ON, PART_ENDS = b"b", b"g", b"e"
"""Before each part of a backup in a log: the first one, others, the last one."""
PAUSE_S_MAX = 10.0
"""Between two parts of one: whatever an engine takes to send what it has."""
LEASES_OF_BEATS = 4
"""Within so many somebody who leads has said so."""

Calls = Callable[[], ClientSession]
"""Makes a session that another node accepts."""


def begins_at(directory: Path) -> ChainState:
    """Where a node with a data directory begins to read the log. Raises StoreError, also for one
    that has not the records of the log."""
    finish_copy(directory)
    check_trusted(directory)
    checkpoint = read_checkpoint(directory)
    held = None if checkpoint is None else held_in(directory)
    if checkpoint is None or held is None:
        return ChainState()
    if held.log_id != checkpoint.log or held.seq < checkpoint.bookmark:
        log.warning("%s is not what its place in the log says: the log is read again", directory)
        return ChainState()
    return checkpoint.state or ChainState()


def check_is_local(directory: Path) -> None:
    """Raise StoreError for the directory of a node: what a server without the shared log wrote
    there no other node would have."""
    check_trusted(directory)
    place = directory / CHECKPOINT_FILE
    if place.exists():
        raise StoreError(
            f"{directory} is that of a node of a shared log, and this configuration has no <Log>: "
            "add it; or run sow log move --out with the one that has it, which ends that log; or, "
            f"where its engine is gone for good, delete {place}",
            reason="shared log",
        )


def has_records(directory: Path) -> bool:
    """Whether a data directory has any. Raises StoreError."""
    held = held_in(directory)
    return held is not None and held.seq > 0


async def copy_of_primary(
    shared: SharedLog, directory: Path, lease_us: int, calls: Calls
) -> OpenWindows | None:
    """Fill a data directory with what the node has that leads, whatever that takes; returns the
    windows that are open there, if they are known. Raises StoreError where the directory has
    records of another log."""
    pause_s, said = RETRY_S, ""
    while True:
        try:
            leader = await leader_of(shared, LEASES_OF_BEATS * lease_us / SECOND_US)
            async with calls() as session:
                found = await _copy(session, leader, directory)
            log.info("copied everything of node %s at %s", leader.node, leader.address)
            return found
        except (CallFailed, OSError, TimeoutError, LogUnanswered, NotKept, StoreError) as error:
            if isinstance(error, StoreError) and error.reason == "another log":
                raise
            why = clipped(failure_of(error))
            if why != said:
                said = why
                log.warning("no checkpoint of another node yet: %s", why)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_S_MAX)


def check_goes_on(group: LogGroup) -> None:
    """Raise LogEnded for the group that ends a log, and LogTrimmed for one that stands for what is
    not here."""
    if group.kind == EntryKind.END:
        raise LogEnded(
            f"the shared log has ended: node {clipped(group.content.decode(errors='replace'))} has "
            "taken its content to a local log (sow log move --out); to share that, move it to "
            "another Stream"
        )
    if group.kind == EntryKind.BACKUP:
        raise LogTrimmed("the shared log begins with a data directory, which is not here")


async def copy_of_log(shared: SharedLog, directory: Path) -> None:
    """Fill a data directory with the one that the log begins with. Raises StoreError where that
    was not moved whole."""
    copied, coming, chain = directory / BACKED_UP, directory / COMING, LogChain()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.callback(remove, copied, coming)
        backup = _BackupInLog(copied)
        stack.callback(backup.close)
        async with aclosing(shared.read(0)) as blocks:
            try:
                async with asyncio.timeout(PAUSE_S_MAX) as pause:
                    while backup.contents is None:
                        position, block = await anext(blocks)
                        pause.reschedule(asyncio.get_running_loop().time() + PAUSE_S_MAX)
                        found = chain.take(position, block)
                        if found is not None and found.group is not None:
                            await asyncio.to_thread(backup.take, found.group)
            except TimeoutError:
                raise StoreError(
                    "the shared log begins with a data directory that was not moved whole: run sow "
                    "log move again, where that is",
                    reason="not moved whole",
                ) from None
        place = checkpoint_of(chain.settled, int(backup.contents.bookmark))
        assert place is not None
        await asyncio.to_thread(_check_replaces, directory, place)
        await asyncio.to_thread(restore_copy, directory, place)
        await asyncio.to_thread(put_in_place, directory)
    log.info("made the data directory of what the shared log begins with")


class _BackupInLog:
    """Writes the backup in the first groups of a log to a directory."""

    def __init__(self, copied: Path) -> None:
        self.contents: BackupContents | None = None
        self._copied = copied
        self._stack = ExitStack()
        self._reader: FrameReader | None = None
        self._writer: BackupWriter

    def take(self, group: LogGroup) -> None:
        """The next group; a backup that begins again replaces one without an end."""
        if group.kind != EntryKind.BACKUP:
            raise StoreError(
                "the shared log begins with a data directory without its end",
                reason="not moved whole",
            )
        if group.content[:1] == PART_BEGINS:
            self._stack.close()
            remove(self._copied)
            self._writer = self._stack.enter_context(BackupWriter(self._copied))
            self._reader = FrameReader(self._writer.take)
        if self._reader is not None:
            self._reader.feed(group.content[1:])
            self.contents = self._writer.contents

    def close(self) -> None:
        """Close its files."""
        self._stack.close()


async def leader_of(shared: SharedLog, wait_s: float) -> Lead:
    """Who says at the end of the log that it leads; raises LogUnanswered where nobody does."""
    end = await shared.last()
    try:
        async with asyncio.timeout(wait_s), aclosing(shared.read(end)) as blocks:
            async for _, block in blocks:
                found = decode(block)
                if found is not None and found[0].kind in (EntryKind.LEAD, EntryKind.BEAT):
                    lead = decode_lead(found[0].content)
                    if lead is not None:
                        return lead
    except TimeoutError:
        pass
    raise LogUnanswered(
        "no node leads the shared log: one that has a checkpoint behind its beginning has to run; "
        "where none has, run sow log move to another Stream with the one of the newest bookmark"
    )


async def _copy(session: ClientSession, leader: Lead, directory: Path) -> OpenWindows | None:
    address = leader.address.rstrip("/")
    async with session.get(f"{address}/v1/log/status", allow_redirects=False) as answer:
        await checked(answer)
        checkpoint = checkpoint_said(await beginning(answer, STATUS_BYTES_MAX))
    if checkpoint is None:
        raise LogUnanswered(f"{address} has no checkpoint yet")
    await asyncio.to_thread(_check_replaces, directory, checkpoint)
    copied, coming = directory / BACKED_UP, directory / COMING
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    await asyncio.to_thread(remove, copied, coming)
    try:
        await fetch_backup(session, f"{address}/v1/backup", copied)
        await asyncio.to_thread(restore_copy, directory, checkpoint)
        held, found = await asyncio.to_thread(held_in, coming), None
        if held is not None:
            path = f"/v1/log/entries?from={held.log_id}-{held.seq}&windows=true"
            found = await read_tail(session, address + path, coming, held)
        await asyncio.to_thread(put_in_place, directory)
        return found
    finally:
        await asyncio.to_thread(remove, copied, coming)


def _check_replaces(directory: Path, checkpoint: LogCheckpoint) -> None:
    """Raise StoreError for records of another log."""
    held = held_in(directory)
    if held is not None and held.seq and held.log_id != checkpoint.log:
        raise StoreError(
            f"{directory} has records of log {held.log_id}, and the shared log is "
            f"{checkpoint.log}: start with an empty DataDirectory",
            reason="another log",
        )


def restore_copy(directory: Path, checkpoint: LogCheckpoint) -> None:
    """Make what is to come of the backup that was copied to a data directory."""
    coming = directory / COMING
    restore(StoredBackup(directory / BACKED_UP), coming, now_us=None, goes_on=True)
    write_checkpoint(coming, checkpoint)


def put_in_place(directory: Path) -> None:
    """Have what is to come in a data directory in place of its contents."""
    coming = directory / COMING
    # First: without it nothing that is left is taken for a data directory.
    for name in (MANIFEST_FILE, COPY_FILE):
        (directory / name).unlink(missing_ok=True)
    for path in directory.iterdir():
        if path.name not in NOT_REPLACED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    coming.rename(directory / READY)
    finish_copy(directory)


def finish_copy(directory: Path) -> None:
    """Put in place what is there of a whole copy: also of one that was interrupted."""
    ready = directory / READY
    if not ready.is_dir():
        return
    try:
        for path in sorted(ready.iterdir()):
            if path.name == LOCK_FILE:
                path.unlink()
            else:
                path.rename(directory / path.name)
        ready.rmdir()
    except OSError as error:
        raise StoreError(f"{ready} cannot be put in place: {error.strerror}") from error


REPORT_S = 1.0
"""Between two reports to the primary: people look at them."""
REPORT_S_MAX = 5.0
"""How long one may take."""


class NodeReports:
    """The reports of the node that `driver` drives; `keeper` has what it needs of the log. It calls
    others as `peers` says. `corrupts`: a record is changed before the first report, for tests."""

    def __init__(
        self, driver: LogDriver, keeper: CheckpointKeeper, peers: Upstream, corrupts: bool = False
    ) -> None:
        self._driver = driver
        self._keeper = keeper
        self._peers = peers
        self._corrupts = corrupts
        self._is_alone = False
        """No other node has its name, as far as is known."""
        self.known: Sequence[ServerNode] = ()
        """What the primary has said of all nodes."""
        self._status: StatusHandler
        self._nodes: Nodes
        self._engine: Engine
        self._task: asyncio.Task[None] | None = None

    def start(self, status: StatusHandler, nodes: Nodes, engine: Engine) -> None:
        """Report what `status` says of `engine` from now on; `nodes` have reported to this one."""
        self._status, self._nodes, self._engine = status, nodes, engine
        status.be_listed_as(self._driver.lead.address, lambda: mark_of(self._keeper.kept))
        nodes.have_log(self._figures)
        self._task = asyncio.create_task(self._run())

    def take_over(self) -> None:
        """This node leads: what the one before knew of others holds until they report here."""
        own = self._driver.lead.address
        self._nodes.remember(*(one for one in self.known if one.checkpoint and one.url != own))

    async def close(self) -> None:
        """Report no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _figures(self) -> dict[str, float]:
        driver, chain = self._driver, self._driver.node.chain
        return {
            "leads": float(driver.is_primary),
            "term": chain.state.term,
            "silent_seconds": driver.silent_us() / SECOND_US,
            "void_entries": chain.void_count,
        }

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            try:
                await self._report()
            except (CallFailed, OSError, TimeoutError, SowError):
                pass  # who reads the log sees the loss of the primary there
            except Exception:
                log.exception("the node failed to report to the primary, and tries again")

    async def _report(self) -> None:
        if self._corrupts:
            self._corrupts = not corrupt(self._engine)
        driver, own = self._driver, await self._status.own()
        others: Sequence[ServerNode] = ()
        if driver.is_primary:
            others = self._nodes.heard()
        elif driver.address:
            url = driver.address.rstrip("/")
            async with session_with(self._peers, REPORT_S_MAX) as calls:
                await report(calls, url, own, below=self._nodes.heard())
                others = self.known = await nodes_of(calls, url)
                await self._check_name(calls, others)
        if not driver.is_stale and is_outvoted(own, others):
            await self._stop(own)

    async def _stop(self, own: ServerNode) -> None:
        """Stop for good: no later life begins with these records."""
        directory = self._keeper.directory
        error = StateDiffers(
            f"at bookmark {own.bookmark} node {self._driver.lead.node} has the state hash "
            f"{own.state_hash}, and other nodes of the log have another one: its records are "
            f"not what was written, so it stops; {put_aside(directory)}"
        )
        log.error("%s", error.detail)
        try:
            await asyncio.to_thread(mark_differing, directory, error.detail)
        except SowError as failed:
            log.error("%s: do not start the node again before that", failed.detail)
        self._driver.fail(error)

    async def _check_name(self, calls: ClientSession, others: Sequence[ServerNode]) -> None:
        """Stop where a node of this name has reported before, and answers: one that was started
        again elsewhere is listed for a while. A chained server answers as the node above it."""
        lead = self._driver.lead
        urls = [one.url for one in others if one.role != AS_CHAINED]
        if self._is_alone or lead.address not in urls:
            return
        for url in urls[: urls.index(lead.address)]:
            if await name_at(calls, url) == lead.node:
                error = ConfigError(
                    f"another process is node {lead.node} of the shared log, at {url}: give each "
                    "node a Node of its own in <Log>, or stop that one"
                )
                self._driver.fail(error)
                return
        self._is_alone = True


class _Named(msgspec.Struct):
    node: str | None = None


async def name_at(calls: ClientSession, url: str) -> str | None:
    """The name of the node at an address; None where none answers."""
    try:
        async with calls.get(f"{url.rstrip('/')}/v1/log/status", allow_redirects=False) as answer:
            return msgspec.json.decode(await beginning(answer, STATUS_BYTES_MAX), type=_Named).node
    except (CallFailed, OSError, TimeoutError, msgspec.MsgspecError):
        return None


def is_outvoted(own: ServerNode, others: Iterable[ServerNode]) -> bool:
    """Whether most nodes that are at a node's bookmark have another state than it; of as many the
    primary is right."""
    there = [own, *(one for one in others if one.url != own.url and one.bookmark == own.bookmark)]
    votes = Counter(one.state_hash for one in there if one.state_hash is not None)
    if own.state_hash is None or len(votes) < 2:
        return False
    leading = {one.state_hash for one in there if one.role == AS_PRIMARY}
    wins = max(votes, key=lambda state: (votes[state], state in leading))
    return wins != own.state_hash


def corrupt(engine: Engine) -> bool:
    """Change one record as nothing of the product does, for tests; False: there is none."""
    for topic in engine.catalog:
        if isinstance(topic, SourceTopic) and topic.is_logged and not topic.is_system:
            table = topic.records.table
            slots = table.occupied()
            if len(slots):
                table.seqs[slots[0]] += 1
                engine.note_change(topic)
                return True
    return False
