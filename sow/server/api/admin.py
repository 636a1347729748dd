"""Administration: the configuration, the state of pipelines, backups and verifications.

The configuration file is shown whether or not the server runs by it. The handler reads no file and
starts no process: the caller that starts the server passes the function that reads the file, and
records on the `Board` what becomes of pipelines.

A backup is streamed to the client; the server writes no file. Each request reads and sums blocks in
its own thread, a few hundred kilobytes at a time, and sends them as fast as the client reads; a
client that reads nothing is disconnected. One backup runs at a time, because checkpoints and log
segments that it has yet to read are retained, and one verification, because it reads as much from
the disk.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, contextmanager
from dataclasses import asdict
from itertools import islice
from typing import Any, TypeVar

from aiohttp import web

from sow import __version__
from sow.config.diagnostics import Reviewed
from sow.core.definitions import Configuration, without_secrets
from sow.core.media_types import FRAMES
from sow.engine.engine import Engine
from sow.errors import Busy, ClientError, ConfigError, NotEntitled, SowError, UnknownRecord, shown
from sow.protocol.replies import timestamp
from sow.server.api.response_schemas import ConfigurationFile, PipelineRestarted, Reloaded, Verified
from sow.server.http.authn_middleware import permissions_of, reauthorize_stream
from sow.server.http.chunked_response import write_part
from sow.server.http.responses import json_response
from sow.server.http.route import operation, parameters_of, read_count, read_flag, route
from sow.server.loop.runtime import ServerRuntime
from sow.store.backup import CopiedStore, frames
from sow.store.restoring import VerifiedFile, verify_store

Piece = TypeVar("Piece")
VERIFY = "Read everything that is stored, and compare checksums"
SENT_BYTES = 256 * 1024
"""Read before it is sent: as much as a socket takes at once."""
BLOCKS_AT_ONCE = 16
"""Blocks verified between two checks that the client is still connected."""


class Board:
    """The state of pipelines that run beside the server, as last reported."""

    def __init__(self, now_us: Callable[[], int] = lambda: 0) -> None:
        self._now_us = now_us
        self._noted: dict[str, dict[str, Any]] = {}
        self._restarts: dict[str, Callable[[int | None], int]] = {}

    def note(self, name: str, **known: Any) -> None:
        """Add to what is known of a pipeline."""
        if known.get("error") is not None:
            known["error_ts"] = timestamp(self._now_us())
        self._noted[name] = {**self._noted.get(name, {}), **known}

    def offer(self, name: str, restart: Callable[[int | None], int]) -> None:
        """A pipeline runs beside this server; `restart` ends one of its runs."""
        self._restarts[name] = restart

    def restart(self, name: str, run: int | None) -> int:
        """Restart a pipeline, unless run number `run` is over; returns the number of the run that
        follows. Raises ClientError if it does not run beside this server."""
        restart = self._restarts.get(name)
        if restart is None:
            raise ClientError(
                f"pipeline {shown(name)} is not run by this server: it has no Autostart, or the "
                "server was started with --no-pipelines; restart it where sow pipeline run runs it"
            )
        return restart(run)

    def of(self, name: str) -> dict[str, Any]:
        """What is known of a pipeline."""
        return {**UNKNOWN, **self._noted.get(name, {})}


UNKNOWN: dict[str, Any] = {
    "state": "not run by this server",
    "error": None,
    "rows_in": None,
    "rows_out": None,
    "rows_per_s": None,
    "behind": None,
    "behind_s": None,
    "dead_letters": None,
    "error_ts": None,
    "run": None,
}
"""Reported of a pipeline without notes: another process may run it."""


class AdminHandler:
    """`/v1/config`, `/v1/pipelines`, `/v1/backup` and `/v1/verify` of one server.

    `store` is what a backup copies, `reload` reads the configuration again and applies it. `reread`
    gives the configuration that a reload would apply, and `look` reads the configuration file
    (None: there is none)."""

    def __init__(
        self,
        runtime: ServerRuntime,
        engine: Engine,
        store: CopiedStore,
        reload: Callable[[bool], Awaitable[list[str]]],
        reread: Callable[[], Configuration] | None,
        look: Callable[[], Reviewed] | None,
        board: Board,
    ) -> None:
        self._runtime = runtime
        self._engine = engine
        self._store = store
        self._reload = reload
        self._reread = reread
        self._look = look
        self._board = board
        self._under_way: set[str] = set()

    @route("GET", "/v1/config", "admin", "The configuration as understood")
    @operation("read_configuration", dict[str, Any])
    async def config(self, _request: web.Request) -> web.Response:
        """`GET /v1/config`: the configuration in effect, without secrets."""
        return json_response(without_secrets(self._engine.configuration))

    @route("POST", "/v1/config/reload", "admin", "Read config.xml again", ("allow_loss",))
    @operation("reload", Reloaded, refusals=(507,))
    async def reload(self, request: web.Request) -> web.Response:
        """`POST /v1/config/reload`: read the configuration file again; answers the changes."""
        allow_loss = read_flag(parameters_of(request), "allow_loss")
        try:
            changes = await self._reload(allow_loss)
            await self._runtime.durable()
            return json_response({"changes": changes})
        except ConfigError as error:
            raise ClientError(str(error), reason=error.reason) from None

    @route("GET", "/v1/config/file", "admin", "The configuration file as it is now")
    @operation("read_configuration_file", ConfigurationFile)
    async def file(self, _request: web.Request) -> web.Response:
        """`GET /v1/config/file`: its text, the findings of the checks, and the values it sets."""
        if self._look is None:
            return json_response({"file": None, "text": "", "findings": [], "values": None})
        # A file of some megabytes takes a while to check, and its disk may take longer.
        found = await asyncio.to_thread(self._look)
        values = await asyncio.to_thread(self._values)
        return json_response(
            {
                "file": found.file,
                "text": found.text,
                "findings": [{**asdict(one), "line": int(one.line)} for one in found.findings],
                "values": values,
            }
        )

    def _values(self) -> Configuration | None:
        """The configuration that a reload would apply; None if it would fail."""
        try:
            return None if self._reread is None else without_secrets(self._reread())
        except ConfigError:
            return None  # the findings say why

    @route("GET", "/v1/pipelines", "admin", "Pipelines, and how they run")
    @operation("list_pipelines", list[dict[str, Any]])
    async def pipelines(self, _request: web.Request) -> web.Response:
        """`GET /v1/pipelines`: each pipeline of the configuration and its state."""
        pipelines = self._engine.configuration.pipelines
        return json_response([{**one.described(), **self._board.of(one.name)} for one in pipelines])

    @route(
        "POST",
        "/v1/pipelines/{name}/restart",
        "admin",
        "End a pipeline's run, and begin another",
        ("run",),
    )
    @operation("restart_pipeline", PipelineRestarted)
    async def restart(self, request: web.Request) -> web.Response:
        """`POST /v1/pipelines/{name}/restart`: end the run of a pipeline, and begin another one; of
        the run that `run` numbers, at most once."""
        name, run = request.match_info["name"], read_count(parameters_of(request), "run")
        if name not in [one.name for one in self._engine.configuration.pipelines]:
            raise UnknownRecord(f"no pipeline {shown(name)}; GET /v1/pipelines lists them")
        return json_response({"name": name, "run": self._board.restart(name, run)})

    @route("POST", "/v1/backup", "admin", "A backup of everything, as of one moment")
    @operation("back_up", answers=(FRAMES,))
    async def backup(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/backup`: the whole store as of one moment, as frames; raises Busy."""
        if not permissions_of(request).reads_everything:
            raise NotEntitled(
                "a backup holds all records of all topics; beside Admin it takes an Allow of Read "
                "with <Topic>.*</Topic>, without Filter and Select"
            )
        with self._alone("backup"):
            pieces = gathered_frames(frames(self._store, self._runtime.now_us(), __version__))
            response = web.StreamResponse()
            response.content_type = FRAMES
            await response.prepare(request)
            async with aclosing(_in_a_thread(pieces)) as made:
                async for piece in made:
                    try:
                        await reauthorize_stream(request)
                    except SowError as error:
                        why = f"the rest may not be sent: {error.detail}"
                        raise ConnectionResetError(why) from None
                    await write_part(response, memoryview(piece))
            await response.write_eof()
            return response

    @route("POST", "/v1/verify", "admin", VERIFY)
    @operation("verify", Verified)
    async def verify(self, _request: web.Request) -> web.Response:
        """`POST /v1/verify`: read every block of the store again, and report damaged files; raises
        Busy."""
        with self._alone("verification"):
            found: list[VerifiedFile] = []
            async with aclosing(_in_a_thread(_some(verify_store(self._store)))) as made:
                async for some in made:
                    found += [one for one in some if one is not None]
        return json_response(
            {
                "whole": not any(one.problem for one in found),
                "files": [one._asdict() for one in found],
            }
        )

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        """Raises Busy if another one is running."""
        if what in self._under_way:
            raise Busy(f"a {what} is running already; try again when it is done")
        self._under_way.add(what)
        try:
            yield
        finally:
            self._under_way.discard(what)


def gathered_frames(found: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    """Joins frames up to what is sent at once; a longer one goes alone."""
    some: list[bytes] = []
    size = 0
    with closing(found):
        for one in found:
            some.append(one)
            size += len(one)
            if size >= SENT_BYTES:
                yield b"".join(some)
                some, size = [], 0
        if some:
            yield b"".join(some)


def _some(
    found: Generator[VerifiedFile | None, None, None],
) -> Generator[list[VerifiedFile | None], None, None]:
    with closing(found):
        while some := list(islice(found, BLOCKS_AT_ONCE)):
            yield some


async def _in_a_thread(pieces: Generator[Piece, None, None]) -> AsyncGenerator[Piece, None]:
    """The items of a generator, each made in a thread of its own, which also closes the generator
    when the current item is done."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, thread_name_prefix="copying")
    try:
        while (piece := await loop.run_in_executor(thread, next, pieces, None)) is not None:
            yield piece
    finally:
        thread.submit(pieces.close)
        thread.shutdown(wait=False)
