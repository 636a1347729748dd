"""What a node of a shared log keeps beside its data: the place up to which it has the log.

    data directory ──> everything of the log up to a place, and maybe more
    its file ────────> that place: the bookmark, and the state of the chain behind it
    its mark ────────> there if the records are not those of the log: nothing begins with them

So a start reads the log from there on, a node that was given a copy of another one's directory
goes on behind it, and the log may be trimmed up to there. What comes again is passed over, so the
place may be an earlier one, never a later: it is written after everything before it is durable in
the journal. A directory that does not hold what its file says is read for from the beginning.
"""

import asyncio
import logging
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sow.core.cooperative import run_to_completion
from sow.errors import SowError, StateDiffers, StoreError
from sow.server.loop.log_driver import LogDriver
from sow.server.loop.runtime import ServerRuntime
from sow.shared_log.entry import HASH_BYTES, ChainState, decode_lead
from sow.store.environment import sync_directory
from sow.store.files import rewrite
from sow.store.manifest import write_file

log = logging.getLogger("sow.log")

CHECKPOINT_FILE = "log-checkpoint.json"
MARK_FILE = "state-differs"
"""That it is there counts, whatever is in it: why, for people."""
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
KEPT_S = 2.0
"""Between two places that are written: what was logged since then is read again at a start, in a
tenth of a second."""


class LogMark(msgspec.Struct, frozen=True):
    """Up to which bookmark, and which position in the shared log, a node needs nothing of it."""

    bookmark: Annotated[str, Meta(pattern=r"^[0-9]{1,19}$")] = "0"
    position: Count = 0


class LogCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in a log: the state of its chain, and the newest record before it."""

    log: str
    bookmark: Count
    position: Count
    hash: str
    term: Count
    time_us: Count
    lead: dict[str, Any]
    replaced: tuple[str, ...] = ()

    @property
    def state(self) -> ChainState | None:
        """The state of the chain; None where that is none."""
        lead = decode_lead(msgspec.json.encode(self.lead))
        try:
            last_hash = bytes.fromhex(self.hash)
        except ValueError:
            return None
        if lead is None or len(last_hash) != HASH_BYTES or min(self.position, self.term) < 1:
            return None
        return ChainState(self.position, last_hash, self.term, self.time_us, lead, self.replaced)


def checkpoint_of(state: ChainState, bookmark: int) -> LogCheckpoint | None:
    """A state with the newest record before it; None where nobody has led yet."""
    lead = state.lead
    if lead is None:
        return None
    return LogCheckpoint(
        lead.log,
        bookmark,
        state.position,
        state.hash.hex(),
        state.term,
        state.time_us,
        lead._asdict(),
        state.replaced,
    )


def mark_of(checkpoint: LogCheckpoint | None) -> LogMark:
    """What is needed by a node that has this one; without one it needs all."""
    if checkpoint is None:
        return LogMark()
    return LogMark(str(checkpoint.bookmark), checkpoint.position)


def parse_checkpoint(text: bytes) -> LogCheckpoint | None:
    """A checkpoint; None for anything else."""
    try:
        found = msgspec.json.decode(text, type=LogCheckpoint)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return None if found.state is None else found


class _StatusSaid(msgspec.Struct):
    checkpoint: LogCheckpoint | None = None


def checkpoint_said(text: bytes) -> LogCheckpoint | None:
    """The checkpoint of a node whose `/v1/log/status` this is; None if it has none."""
    try:
        found = msgspec.json.decode(text, type=_StatusSaid).checkpoint
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return found if found is not None and found.state is not None else None


def read_checkpoint(directory: Path) -> LogCheckpoint | None:
    """That of a data directory; None if it has none that can be read: the log is read again."""
    try:
        return parse_checkpoint((directory / CHECKPOINT_FILE).read_bytes())
    except OSError:
        return None


def write_checkpoint(directory: Path, checkpoint: LogCheckpoint) -> None:
    """Replace that of a data directory, durably."""
    text = msgspec.json.encode(checkpoint)
    run_to_completion(write_file(directory / CHECKPOINT_FILE, (text,)))


def mark_differing(directory: Path, why: str) -> None:
    """Have no process begin with the records of a data directory, durably. On a full disk the mark
    is there, too, without the reason."""
    path = directory / MARK_FILE
    try:
        with rewrite(path) as file:
            sync_directory(directory)
            file.write(f"{why}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def check_trusted(directory: Path) -> None:
    """Raise StateDiffers for a data directory that is marked."""
    if (directory / MARK_FILE).exists():
        raise StateDiffers(
            f"{directory} has not the records that the other nodes of its log have, as its file "
            f"{MARK_FILE} says, and this node has stopped for that: {put_aside(directory)}"
        )


def put_aside(directory: Path) -> str:
    """What to do with a data directory that differs."""
    path = shlex.quote(str(directory))
    return (
        f"run mv {path} {shlex.quote(f'{directory}.differs')} and start the node again: it copies "
        "everything from the others. Keep the old directory for a bug report"
    )


class CheckpointKeeper:
    """Writes the place of `driver` to the data directory `directory`, from time to time while a
    server runs."""

    def __init__(self, driver: LogDriver, directory: Path) -> None:
        self.kept = read_checkpoint(directory)
        """The newest that was written."""
        self._driver = driver
        self.directory = directory
        self._task: asyncio.Task[None] | None = None

    def start(self, runtime: ServerRuntime) -> None:
        """Write for this server."""
        self._task = asyncio.create_task(self._run(runtime))

    async def close(self) -> None:
        """Write no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, runtime: ServerRuntime) -> None:
        while True:
            try:
                await self.keep(runtime)
            except SowError as error:
                # The journal says why; the place before stands, and is good.
                log.debug("the place in the shared log is not written: %s", error.detail)
            await asyncio.sleep(KEPT_S)

    async def keep(self, runtime: ServerRuntime) -> None:
        """Write the place of now, once everything before it is durable here."""
        bookmark = runtime.journal.last_seq
        state = self._driver.place(bookmark)
        await runtime.durable()
        checkpoint = checkpoint_of(state, bookmark)
        if checkpoint is None or (self.kept and checkpoint.position <= self.kept.position):
            return
        await asyncio.to_thread(write_checkpoint, self.directory, checkpoint)
        self.kept = checkpoint
