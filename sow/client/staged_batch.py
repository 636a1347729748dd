"""A batch that is applied atomically and exactly once, however often its connection breaks.

Chunks are staged under the name of a writer and the number of the batch, and committed at the end
(docs/http.md, "Staged writes"). Each request is idempotent: a chunk replaces itself, and a commit
that was applied is reported as done. So a writer that does not know whether its batch was applied
sends it again under the same name and number.
"""

import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from sow.client.http import Http
from sow.client.socket import Retry
from sow.client.tables import arrow
from sow.core.media_types import ARROW, JSON
from sow.errors import BadMessage, SowError

CHUNK_BYTES = 4 * 1024**2
"""Of a request: far below the server's default limit of 64 MB, and enough to hide a round trip."""
AWAY = 503
"""The status of errors that can be retried: no server answers, or it is not ready."""

DROPPED = "not staged"
"""The reason of a chunk whose batch was dropped while it was written."""


class RepeatableBatch:
    """Messages for `topic`, as the batch number `epoch` of `writer`; `delta` merges them into their
    records. `retry` says how long to wait for a server that does not answer."""

    def __init__(
        self,
        http: Callable[[], Http],
        retry: Retry,
        topic: str,
        writer: str,
        epoch: int,
        *,
        delta: bool,
    ) -> None:
        self._http = http
        self._retry = retry
        self._topic = topic
        self._path = f"/v1/writes/{quote(writer, safe='')}/{epoch}"
        self._op = "delta" if delta else "publish"
        # Unique, as chunks of an earlier process may still be staged.
        self._attempt = secrets.token_hex(8)
        self._chunks = 0
        self._rows = 0
        self._waiting: list[bytes] = []
        self._bytes = 0

    async def add(self, bodies: Sequence[bytes]) -> None:
        """Stage messages, many in one request; raises BadMessage with the index of the first bad
        one in the batch, and the errors that the server reports."""
        self._waiting += bodies
        self._bytes += sum(map(len, bodies))
        if self._bytes >= CHUNK_BYTES:
            await self._send()

    async def commit(self) -> str:
        """Apply the batch, unless it was applied already; returns a bookmark once it is durable."""
        if self._waiting:
            await self._send()
        part = {"part": 0, "attempt": self._attempt, "chunks": self._chunks, "rows": self._rows}
        parts = [part] if self._chunks else []
        body = {"topic": self._topic, "parts": parts}
        answer = await self._requested(f"{self._path}/commit", {}, orjson.dumps(body), JSON)
        return str(answer["bookmark"])

    async def forget(self) -> None:
        """Discard what was staged, if the server answers; it expires anyway."""
        with contextlib.suppress(SowError):
            await self._http().json("DELETE", self._path, {"topic": self._topic})

    async def _send(self) -> None:
        requested = {
            "topic": self._topic,
            "part": 0,
            "attempt": self._attempt,
            "chunk": self._chunks,
        }
        try:
            await self._requested(self._path, requested, _stream(self._waiting, self._op), ARROW)
        except BadMessage as error:
            error.index += self._rows
            raise
        except SowError as error:
            if error.reason != DROPPED:
                raise
            # An earlier attempt was applied meanwhile, and all chunks of the batch were dropped:
            # the commit returns that it was applied, or else what is missing.
        self._chunks += 1
        self._rows += len(self._waiting)
        self._waiting, self._bytes = [], 0

    async def _requested(
        self, path: str, requested: dict[str, object], body: bytes, kind: str
    ) -> Any:
        """The answer to an idempotent request, which is retried while no server answers."""

        async def send() -> Any:
            return await self._http().json("POST", path, requested, body=body, content_type=kind)

        try:
            return await send()
        except SowError as error:
            if error.status != AWAY:
                raise
            away = error
        async for _ in self._retry.attempts():
            try:
                return await send()
            except SowError as error:
                if error.status != AWAY:
                    raise
        raise away


def _stream(bodies: Sequence[bytes], op: str) -> bytes:
    pa = arrow()
    columns = {"value": pa.array(bodies, pa.binary()), "op": pa.array([op] * len(bodies))}
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())
