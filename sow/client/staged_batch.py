"""A batch that is applied once and as a whole, however often its connection breaks.

It is staged piece by piece, under the name of a writer and a number of its own, and committed at
the end (docs/http.md, "Staged writes"). Each of these requests may be sent again: a piece takes its
own place again, and of a commit the server knows that it was done. So whoever does not know what
became of a batch, sends it again under its name and number.
"""

import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from sow.client.http import Http
from sow.client.retry import Retry
from sow.client.tables import arrow
from sow.core.media_types import ARROW, JSON
from sow.errors import BadMessage, SowError

CHUNK_BYTES = 4 * 1024**2
"""Of one request: far below the 64 MB that a server takes by default, and enough that a round trip
is nothing beside it."""
AWAY = 503
"""The status of all that may be tried again: nobody answers, or not yet."""

DROPPED = "not staged"
"""The reason of a piece whose batch was dropped while it was written."""


class RepeatableBatch:
    """Messages for `topic`, as the batch number `epoch` of `writer`; `delta` merges them into their
    records. `http` gives the requests, `retry` says for how long a server that is away is waited
    for."""

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
        # Not those of an earlier process, of which some may be staged still.
        self._attempt = secrets.token_hex(8)
        self._chunks = 0
        self._rows = 0
        self._waiting: list[bytes] = []
        self._bytes = 0

    async def add(self, bodies: Sequence[bytes]) -> None:
        """Stage messages, many in one request; raises BadMessage with the index of the first bad
        one, counted from the first of the batch, and what the server answers as an error."""
        self._waiting += bodies
        self._bytes += sum(map(len, bodies))
        if self._bytes >= CHUNK_BYTES:
            await self._send()

    async def commit(self) -> str:
        """Apply all of them, unless that was done already; returns a bookmark, once that is
        durable."""
        if self._waiting:
            await self._send()
        part = {"part": 0, "attempt": self._attempt, "chunks": self._chunks, "rows": self._rows}
        parts = [part] if self._chunks else []
        body = {"topic": self._topic, "parts": parts}
        answer = await self._requested(f"{self._path}/commit", {}, orjson.dumps(body), JSON)
        return str(answer["bookmark"])

    async def forget(self) -> None:
        """Take back what was staged, if that can be had; it goes after some time by itself, too."""
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
            # An earlier try that was given up has been applied meanwhile, and its pieces are gone
            # with this one: the commit is told that it was done, or else what is missing.
        self._chunks += 1
        self._rows += len(self._waiting)
        self._waiting, self._bytes = [], 0

    async def _requested(
        self, path: str, requested: dict[str, object], body: bytes, kind: str
    ) -> Any:
        """The answer to a request that may be sent again, of a server that may be away."""

        async def ask() -> Any:
            return await self._http().json("POST", path, requested, body=body, content_type=kind)

        try:
            return await ask()
        except SowError as error:
            if error.status != AWAY:
                raise
            away = error
        async for _ in self._retry.attempts():
            try:
                return await ask()
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
