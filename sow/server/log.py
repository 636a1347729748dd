"""`GET /v1/log`: the transaction log, in order, as NDJSON (contract §3, §8).

Rows come straight from the journal, so only what is durable is ever shown. Topics whose
Durability is transient have no bodies in the log and no rows here.
"""

import asyncio
from collections.abc import Callable, Iterator

import orjson
from aiohttp import web

from sow.engine import Engine
from sow.errors import ClientError, NotAvailable, StoreError
from sow.keyed_topic import KeyedTopic
from sow.keys import sow_key
from sow.server.driver import Driver
from sow.server.http import NDJSON
from sow.server.parameters import read_count, read_parameters, read_seconds
from sow.store.protocols import Entry
from sow.topics import Topic
from sow.wire import comma_list, timestamp

ROWS_DEFAULT = 10_000
ROWS_MAX = 1_000_000
WAIT_S_MAX = 60
POLL_S = 0.05


class LogDoor:
    """Reads ranges of the log."""

    def __init__(self, driver: Driver, engine: Engine) -> None:
        self._driver = driver
        self._engine = engine

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """A range of the log: `from` exclusive, `to` inclusive, at most `limit` rows."""
        asked = read_parameters(request, ("topics", "from", "to", "limit", "wait"))
        if "arrow" in request.headers.get("Accept", ""):
            raise NotAvailable("the log as Arrow is not available yet; accept application/x-ndjson")
        chosen = self._topics(asked.get("topics"))
        after = self._after(asked.get("from", "0"))
        until = _bookmark("to", asked["to"]) if "to" in asked else None
        limit = read_count(asked, "limit")
        limit = ROWS_DEFAULT if limit is None else limit
        if not 0 < limit <= ROWS_MAX:
            raise ClientError(f"limit={limit} must be from 1 to {ROWS_MAX}")
        wait_s = read_seconds(asked, "wait") or 0.0
        await self._wait(after, chosen, min(wait_s, WAIT_S_MAX))
        rows, reached = self._read(after, until, limit, chosen)
        response = web.StreamResponse(headers={"SOW-Bookmark": str(reached)})
        response.content_type = NDJSON
        await response.prepare(request)
        for start in range(0, len(rows), 1000):
            await response.write(b"".join(rows[start : start + 1000]))
        await response.write_eof()
        return response

    def _topics(self, names: str | None) -> dict[str, KeyedTopic]:
        wanted = comma_list(names) if names is not None else list(self._engine.topics)
        found = {name: self._engine.topic(name) for name in wanted}
        return {
            name: topic.records
            for name, topic in found.items()
            if isinstance(topic.definition, Topic) and topic.definition.durability == "persistent"
        }

    def _after(self, bookmark: str) -> int:
        if bookmark == "now":
            return self._driver.journal.last_seq
        after, journal = _bookmark("from", bookmark), self._driver.journal
        if after == 0:
            return journal.first_seq - 1
        if not journal.first_seq - 1 <= after <= journal.last_seq:
            raise ClientError(
                f"bookmark {after} is not kept; the oldest to go on from is "
                f"{journal.first_seq - 1}, the newest {journal.last_seq}",
                reason="invalid bookmark",
            )
        return after

    async def _wait(self, after: int, chosen: dict[str, KeyedTopic], wait_s: float) -> None:
        """Wait until there is something after `after`, or the time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while loop.time() < deadline and not self._read(after, None, 1, chosen)[0]:
            await asyncio.sleep(POLL_S)

    def _read(
        self, after: int, until: int | None, limit: int, chosen: dict[str, KeyedTopic]
    ) -> tuple[list[bytes], int]:
        """Rows, and the bookmark to go on from."""
        rows: list[bytes] = []
        reached = after
        try:
            for entry in self._driver.journal.read(after):
                for seq, row in entry_rows(entry, chosen.get(entry.topic)):
                    if seq <= after:
                        continue
                    if (until is not None and seq > until) or len(rows) == limit:
                        return rows, reached
                    reached = seq
                    if row is not None:
                        rows.append(row())
        except StoreError as error:
            error.status = 500
            raise
        return rows, reached


def _bookmark(name: str, text: str) -> int:
    """The sequence number that the parameter `name` holds; raises ClientError."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ClientError(
            f"{name}={text} is not a bookmark; write one that the server gave"
            + (", 0 or now" if name == "from" else ""),
            reason="invalid bookmark",
        )
    return int(text)


def entry_rows(
    entry: Entry, topic: KeyedTopic | None
) -> Iterator[tuple[int, Callable[[], bytes] | None]]:
    """Each record of an entry as its sequence number and its row; no row if not wanted."""
    if topic is None:
        yield entry.seq + len(entry) - 1, None
        return
    names = entry.identities
    if names is None:
        names = topic.identities_of(entry.bodies)
    ts = timestamp(entry.ts_us)
    for at, name in enumerate(names):
        key = str(sow_key(topic.domain, name)) if topic.keys else name
        head = {
            "seq": entry.seq + at,
            "bm": str(entry.seq + at),
            "ts": ts,
            "topic": topic.name,
            "op": entry.op,
            "k": key,
        }
        body = topic.line_bodies([entry.bodies[at]])[0] if entry.op == "publish" else None

        def row(head: dict[str, object] = head, body: bytes | None = body) -> bytes:
            text = orjson.dumps(head)
            return text + b"\n" if body is None else b'%b,"d":%b}\n' % (text[:-1], body)

        yield entry.seq + at, row
