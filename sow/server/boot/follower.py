"""A follower: a server that has a copy of another one's data directory, and reads its log.

    nothing here, or too old ──> a backup of the primary, restored under the name of its log
    start ────────────────────> as any server's, from that directory
    from then on ─────────────> the log (`sow.server.api.followers`), applied (`Following`), logged
                                here again; a reload of the primary at its place in it

What it has is in a directory of its own (`sow.server.boot.followed_directory`). The primary is
called again whenever the connection ends or is silent. When the primary has started again, or keeps
the log behind us no more, this server has to start again, too (`is_over`).
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec
import orjson
from aiohttp import ClientError as CallFailed
from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector, hdrs, web

from sow.core.addresses import is_loopback
from sow.core.clock import SECOND_US, LogClock, monotonic_us
from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import (
    CONFIGURATIONS,
    Configuration,
    View,
)
from sow.engine.catalog import Catalog
from sow.engine.following import Following, FollowingEngine, with_windows
from sow.engine.output import HELD_US_MAX
from sow.errors import Damaged, DiskFull, NotKept, SowError, StoreError, clipped, is_no_room
from sow.server.api.nodes import Nodes, ServerNode, Upstream, nodes_of, report
from sow.server.api.status import StatusHandler
from sow.server.boot.followed_directory import (
    BACKED_UP,
    COMING,
    FOLLOWING,
    FollowedData,
    LogTail,
    check_goes_on,
    followed,
    held_in,
    opened,
    put_in_place,
    queues_of,
    remove,
    with_journal,
)
from sow.server.chained.upstream import failure_of
from sow.server.http.body_reading import beginning
from sow.server.http.preconditions import Heard
from sow.server.loop.runtime import ServerRuntime
from sow.store.backup import (
    ACCOUNT_FRAME,
    BEAT_FRAME,
    BLOCK_FRAME,
    BackupContents,
    BackupWriter,
    FrameReader,
    account_of,
    beat_of,
    entries_of,
)
from sow.store.directory import DataDirectory
from sow.store.protocols import LogEntry, OpenWindows, goes_on

log = logging.getLogger("sow.follower")

RETRY_S = 0.5
"""Pause before the primary is called again: a restart of it takes a second or more."""
COPY_PAUSE_S_MAX = 60.0
"""Pauses between copies that fail double up to this: a minute after there is room it goes on."""
SILENT_FACTOR = 2.0
"""Beats that may be missing before a connection counts as broken: networks lose one."""
BEATS_A_LAG = 3
"""Beats in the time that a follower may be behind: one may be late, and one lost."""
FAR_BEHIND_BYTES = 8 * 1024**2
"""So much of the log between two beats is far behind: the primary sends all that it has, then a
beat. It takes some tenth of a second to apply, and no commit alone is so large."""
CONNECTED_S = 5.0
"""How long a connection may take to be made."""
SAID_BYTES_MAX = 2000
"""So much of an error of the primary is read, or of the extent of its log: whatever answers at its
address."""


class PrimaryLog(msgspec.Struct):
    """What a primary says of its log: its name, and the bookmarks that it has."""

    log: str
    oldest: int
    newest: int


Adopt = Callable[[Configuration], Awaitable[object]]
"""Goes on under a configuration that was reloaded; raises ConfigError where that takes a start."""


class Follower:
    """Follows `upstream` for a server that has the configuration file `own`; `clock` is its
    clock, which shows the time of the log. `now_s` passes steadily, and `sleep` waits for so many
    seconds."""

    def __init__(
        self,
        upstream: Upstream,
        own: Configuration,
        clock: LogClock,
        now_s: Callable[[], float] = lambda: monotonic_us() / SECOND_US,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.upstream = upstream
        self.waits_for = "the primary has not answered yet"
        """Why it cannot start; without addresses and paths, as anybody may read it."""
        self._sleep = sleep
        self._is_copying = False
        self.clock = clock
        self.heard = Heard(upstream.url, lambda: own.follower.lag_us_max, now_s)
        self.is_over = asyncio.Event()
        """This server has to start again to go on."""
        self._own = own
        self._root = Path(own.data_directory)
        self._beat_s = own.follower.lag_us_max / SECOND_US / BEATS_A_LAG
        self._coming: deque[LogEntry] = deque()
        """Starts and reloads that are not reached yet."""
        self._waiting: deque[LogEntry] = deque()
        """The newest entries: a turn of views may go on in the next block, until a beat ends it."""
        self._since_beat_bytes = 0
        """What came of the log since the last beat."""
        self._open: OpenWindows | None = None
        self._is_lost = False
        self._tasks: list[asyncio.Task[None]] = []
        self._engine: FollowingEngine
        self._runtime: ServerRuntime
        self._following: Following
        self._adopt: Adopt
        self._status: StatusHandler
        self._nodes: Nodes

    gives_up = True
    """What the log has no place for, the primary has given up, and has kept."""

    @property
    def directory(self) -> Path:
        """What it has of the primary."""
        return self._root / FOLLOWING

    # Before the start.

    async def prepare(self) -> Configuration:
        """Have the primary's data, as far as that is needed; returns the configuration to start
        with. Waits for the primary where there is nothing to start with; raises StoreError."""
        goes_on, said, pause_s = True, "", RETRY_S
        while True:
            held = await asyncio.to_thread(held_in, self.directory)
            try:
                async with self._session() as calls:
                    await self._bring(calls, held if goes_on else None)
                    goes_on = True
                    held = await asyncio.to_thread(held_in, self.directory)
                    if held is not None:
                        await self._catch_up(calls, held)
            except NotKept as error:
                log.warning("%s: everything is copied again", error.detail)
                goes_on = False
            except (CallFailed, OSError, TimeoutError, StoreError) as error:
                # On a full disk it starts with what is there, and goes on when there is room.
                is_refusal = isinstance(error, StoreError) and not isinstance(error, DiskFull)
                if is_refusal and not self._is_copying:
                    raise
                why = clipped(failure_of(error))
                if why != said:
                    # Once: it may be a long wait.
                    said = why
                    log.warning("cannot follow %s yet: %s", self.upstream.url, why)
                if self._is_copying and is_no_room(error) and held is not None:
                    # It cannot go on, or there were no copy: only a new one helps.
                    log.warning("there is no room beside %s: it is deleted", self.directory)
                    await asyncio.to_thread(remove, self.directory)
                # A copy costs the primary and the disk much, a call next to nothing.
                pause_s = min(2 * pause_s, COPY_PAUSE_S_MAX) if self._is_copying else RETRY_S
                self.waits_for = f"{public_failure(error)}; next attempt in {pause_s:g} s"
            # More than before, also where catching up has failed half-way.
            held = await asyncio.to_thread(held_in, self.directory)
            if held is not None and goes_on:
                return followed(held.configuration, self._own)
            await self._sleep(pause_s)

    async def _bring(self, calls: ClientSession, held: FollowedData | None) -> None:
        """Copy everything where nothing is held; raises NotKept where the log does not go on."""
        self._is_copying = False
        async with calls.get(self._address("/v1/log/extent"), allow_redirects=False) as answer:
            await checked(answer)
            extent = _extent_in(await beginning(answer, SAID_BYTES_MAX))
        if held is not None:
            if held.log_id == extent.log and extent.oldest <= held.seq <= extent.newest:
                return
            raise NotKept(
                f"what is held ends at bookmark {held.seq} of log {held.log_id}, and "
                f"{self.upstream.url} has {extent.oldest} to {extent.newest} of log {extent.log}"
            )
        await self._copy(calls)

    async def _copy(self, calls: ClientSession) -> None:
        """Make the directory of a backup that the primary sends. Where that fails nothing of it is
        left: the disk may be full."""
        self._is_copying = True
        self.waits_for = "everything is copied from the primary"
        coming, copied = self._root / COMING, self._root / BACKED_UP
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        await asyncio.to_thread(remove, coming, copied)
        try:
            await self._copy_to(calls, copied, coming)
        except BaseException:
            await asyncio.to_thread(remove, coming, copied)
            raise
        self._is_copying = False

    async def _copy_to(self, calls: ClientSession, copied: Path, coming: Path) -> None:
        contents = await fetch_backup(calls, self._address("/v1/backup"), copied, self.heard.hear)
        await asyncio.to_thread(put_in_place, copied, coming, self.directory)
        log.info("copied everything of %s up to bookmark %s", self.upstream.url, contents.bookmark)

    async def _catch_up(self, calls: ClientSession, held: FollowedData) -> None:
        """Read the log up to now into the directory, with the windows that are open now; where the
        primary has started again meanwhile, up to its last start, however often that was."""
        path = f"/v1/log/entries?from={held.log_id}-{held.seq}&windows=true"
        address, hear = self._address(path), self.heard.hear
        self._open = await read_tail(calls, address, self.directory, held, hear)
        if self._open is not None:
            self.clock.go_on_from(self._open.time_us)

    def windows(self, configuration: Configuration) -> Catalog | None:
        """The windows that are open at the end of what is held, for a start; None: not known."""
        found, self._open = self._open, None
        return (
            None if found is None else run_to_completion(with_windows(configuration, found.windows))
        )

    # While the server runs.

    def begin(
        self,
        engine: FollowingEngine,
        runtime: ServerRuntime,
        adopt: Adopt,
        status: StatusHandler,
        nodes: Nodes,
    ) -> None:
        """Follow the log from the engine's newest record on; `adopt` goes on under a reloaded
        configuration, and `status` is what the primary gets to know of this server and of the
        `nodes` below it."""
        self._engine, self._runtime, self._adopt = engine, runtime, adopt
        self._following, self._status, self._nodes = Following(engine), status, nodes
        self.clock.go_on_from(engine.now_us)
        self.heard.apply(engine.now_us)
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._report())]

    async def close(self) -> None:
        """Follow no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self) -> None:
        while not self.is_over.is_set():
            try:
                async with self._session() as calls:
                    await self._read(calls)
                raise ConnectionResetError("it ended the connection")
            except NotKept as error:
                log.warning("%s: this server starts again", error.detail)
                self.is_over.set()
            except (CallFailed, OSError, TimeoutError, SowError) as error:
                if not self._is_lost:
                    log.warning("lost %s: %s", self.upstream.url, clipped(failure_of(error)))
                self._is_lost = True
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("the server failed to follow %s, and starts again", self.upstream.url)
                self.is_over.set()
            finally:
                self._note_received(0)

    async def _read(self, calls: ClientSession) -> None:
        """Read the log and apply it, until the connection ends."""
        after = f"{self._runtime.journal.log_id}-{self._engine.seq}"
        node = (await self._status.own()).url
        about = f"from={after}&beat={self._beat_s:.3f}&node={quote(node, safe='')}"
        address = self._address(f"/v1/log/entries?{about}")
        frames: list[tuple[bytes, bytes]] = []
        reader = FrameReader(lambda kind, content: frames.append((kind, content)))
        self._waiting.clear()
        async with calls.get(address, allow_redirects=False) as answer:
            await checked(answer)
            if self._is_lost:
                log.info("found %s again", self.upstream.url)
            self._is_lost = False
            async for data in answer.content.iter_any():
                self.heard.hear()
                reader.feed(data)
                some, frames[:] = [*frames], []
                for kind, content in some:
                    await self._take(kind, content)
                    if self.is_over.is_set():
                        return

    async def _take(self, kind: bytes, content: bytes) -> None:
        # What a full disk refuses stays in memory: no more is taken then.
        while (commit := self._runtime.commit).is_behind or commit.failure is not None:
            await asyncio.shield(commit.next())
        if kind == BLOCK_FRAME:
            self._note_received(self._since_beat_bytes + len(content))
            entries = entries_of(content)
            self.heard.hear(entries[-1].ts_us)
            self._waiting += entries
            has_turns = any(isinstance(one, View) for one in self._engine.configuration.topics)
            older_us = entries[-1].ts_us - (HELD_US_MAX if has_turns else 0)
            await self._apply(ended(self._waiting, 0, older_us))
        elif kind == ACCOUNT_FRAME:
            await self._take_account(account_of(content))
        elif kind == BEAT_FRAME:
            beat = beat_of(content)
            self._note_received(0)
            await self._apply(ended(self._waiting, beat.seq, 0))
            await self._reach(beat.seq)
            if beat.time_us:
                self.heard.hear(beat.time_us)
                await self._run(self._following.pass_time(beat.time_us))
        else:
            raise Damaged("what came is no log")

    def _note_received(self, since_beat_bytes: int) -> None:
        """So much of the log came since the last beat."""
        self._since_beat_bytes = since_beat_bytes
        self._runtime.note_far_behind(since_beat_bytes > FAR_BEHIND_BYTES)

    async def _apply(self, entries: Sequence[LogEntry]) -> None:
        """Apply entries, and between them what was reloaded there."""
        some: list[LogEntry] = []
        for entry in entries:
            if self._coming and self._coming[0].seq < entry.seq:
                await self._run(self._following.apply(some))
                some = []
                await self._reach(entry.seq - 1)
                if self.is_over.is_set():
                    return  # what follows is for who starts at this very place
            some.append(entry)
        await self._run(self._following.apply(some))

    async def _run(self, steps: Task[None]) -> None:
        await self._runtime.turns.run("following", steps)
        self.clock.go_on_from(self._engine.now_us)
        self.heard.apply(self._engine.now_us)
        self._runtime.bookmark_waits.release()

    # Accounts.

    async def _take_account(self, entry: LogEntry) -> None:
        """Take in an account, or keep it until its place is reached."""
        if entry.topic != CONFIGURATIONS.name:
            self._engine.take_account(entry)
        elif not self._engine.has_account(entry):
            check_goes_on(entry, self._engine.seq)
            self._coming.append(entry)

    async def _reach(self, seq: int) -> None:
        """Everything up to a record is applied: go on under what was in force from there on."""
        while self._coming and self._coming[0].seq <= seq and not self.is_over.is_set():
            entry = self._coming[0]
            await self._run(self._following.pass_time(entry.ts_us))
            self._engine.take_account(entry)
            await self._runtime.durable()
            self._coming.popleft()
            change = self._engine.configurations.all()[-1]
            if change.is_start:
                log.info("%s has started again, and so does this server", self.upstream.url)
                self.is_over.set()
                return
            try:
                directory = self._engine.configuration.journal.directory
                await self._adopt(
                    followed(with_journal(change.configuration, directory), self._own)
                )
            except SowError as error:
                log.warning("this takes a start: %s", error.detail)
                self.is_over.set()

    # The primary.

    async def _report(self) -> None:
        """Tell the primary now and then how far this server is."""
        while True:
            if self._is_lost:
                await asyncio.sleep(self._beat_s)
                continue
            try:
                own = await self._status.own()
                async with self._session() as calls:
                    listed = await report(calls, self._address(""), own, below=self._nodes.heard())
                self._status.be_listed_as(listed or own.url)
            except (CallFailed, OSError, TimeoutError, SowError):
                pass  # what reads the log reports the loss, and the journal its full disk
            except Exception:
                log.exception(
                    "the server failed to report to %s, and tries again", self.upstream.url
                )
            await asyncio.sleep(self._beat_s)

    async def above(self, _request: web.Request) -> Sequence[ServerNode]:
        """What the primary knows of all nodes; nothing while it is lost."""
        if self._is_lost:
            return ()
        async with self._session() as calls:
            return await nodes_of(calls, self._address(""))

    def _address(self, path: str) -> str:
        return self.upstream.url.rstrip("/") + path

    def _session(self) -> ClientSession:
        return session_with(self.upstream, SILENT_FACTOR * self._beat_s + CONNECTED_S)


def session_with(upstream: Upstream, silent_s: float) -> ClientSession:
    """A session with a server that may be silent for so long."""
    headers = {"Authorization": f"Bearer {upstream.token}"} if upstream.token else {}
    timeout = ClientTimeout(total=None, sock_connect=CONNECTED_S, sock_read=silent_s)
    headers["Accept-Encoding"] = "identity"
    checks = upstream.encryption
    if checks is True:
        # On this machine nobody else can answer, and a certificate is of another name.
        checks = not is_loopback(urlsplit(upstream.url).hostname or "")
    return ClientSession(
        headers=headers, timeout=timeout, connector=TCPConnector(ssl=checks, limit=4)
    )


async def read_tail(
    calls: ClientSession,
    address: str,
    path: Path,
    held: FollowedData,
    hear: Callable[[], object] = lambda: None,
) -> OpenWindows | None:
    """Append the log at an address up to now to a data directory that has what is `held`; returns
    the windows that are open there, None where a start makes them. Raises what `checked` does,
    StoreError, Damaged, OSError."""
    frames: list[tuple[bytes, bytes]] = []
    reader = FrameReader(lambda kind, content: frames.append((kind, content)))
    with closing(DataDirectory(path)) as directory, opened(directory) as journal:
        # What has just been put in force takes a start at this very place.
        queues = queues_of(held.configuration)
        tail = LogTail(journal, starts_here=held.since_seq == held.seq, queues=queues)
        async with calls.get(address, allow_redirects=False) as answer:
            await checked(answer)
            while not tail.is_over:
                hear()
                reader.feed(await answer.content.readany())
                some, frames[:] = [*frames], []
                for kind, content in some:
                    tail.take(kind, content)
                if answer.content.at_eof():
                    raise ConnectionResetError("it ended the connection")
    return tail.open


async def fetch_backup(
    calls: ClientSession, address: str, copied: Path, hear: Callable[[], object] = lambda: None
) -> BackupContents:
    """Write the backup at an address to a directory that is not there; `hear` is called whenever
    some of it comes. Raises what `checked` does, StoreError, Damaged, OSError."""
    with BackupWriter(copied) as writer:
        reader = FrameReader(writer.take)
        async with calls.post(address, allow_redirects=False) as answer:
            await checked(answer)
            async for data in answer.content.iter_any():
                hear()
                reader.feed(data)
        if writer.contents is None:
            raise ConnectionResetError("the backup ended before its end")
        return writer.contents


def ended(waiting: deque[LogEntry], seq: int, older_us: int) -> list[LogEntry]:
    """Take the entries whose turns have ended: up to a record, and those from before a time, since
    requests hold views back for so long at most. None is a part of a change."""
    found: list[LogEntry] = []
    while waiting and (waiting[0].seq + len(waiting[0]) - 1 <= seq or waiting[0].ts_us < older_us):
        found.append(waiting.popleft())
    while found and waiting and goes_on(found[-1], waiting[0]):
        waiting.appendleft(found.pop())
    return found


async def checked(answer: ClientResponse) -> None:
    """Raise what the primary has refused: NotKept where it has not the log behind us, StoreError
    for what no other attempt mends."""
    if answer.status == 200:
        return
    text = (await beginning(answer, SAID_BYTES_MAX)).decode(errors="replace")
    if (there := answer.headers.get(hdrs.LOCATION)) is not None:
        text = f"it redirects to {there}, which is not followed; if that is it, give its address"
    try:
        problem = orjson.loads(text)
        reason, detail = str(problem["reason"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        reason, detail = "", clipped(text)
    if reason in (NotKept.reason, "another log"):
        raise NotKept(detail)
    if answer.status in (401, 403, 404):
        raise StoreError(f"{answer.url.origin()} refuses to be followed: {detail}", reason=reason)
    raise ConnectionResetError(detail)


def _extent_in(text: bytes) -> PrimaryLog:
    try:
        return msgspec.json.decode(text, type=PrimaryLog, strict=False)
    except (msgspec.MsgspecError, UnicodeError):
        raise ConnectionResetError(
            "what answers there is no SOW server, or one of an earlier version"
        ) from None


def public_failure(error: Exception) -> str:
    """Why something failed, for those who are to know no addresses and paths."""
    if isinstance(error, SowError):
        return error.reason
    if isinstance(error, OSError) and error.errno and not isinstance(error, CallFailed):
        return os.strerror(error.errno)
    return "the primary does not answer"
