"""A shared log in a stream of NATS JetStream.

    append    a message to the stream's one subject; its reply address is of this attempt alone
    read      a consumer of its own, in pages: the next is requested when the last one was read
    last      the stream's state
    trim      a purge up to a position

Positions are the sequence numbers of the stream. A connection that ends is not mended: those who
wait for an answer have none, and the next call makes another one, to the next server; so does a
server through which nothing passes for long, as it may be cut off from the others. So nothing that
was written before is sent again by the library. Settings that lose what was answered are
refused before anything is appended (`nats_settings`), and while it runs: then the connection is
left, and the next one refused, until they are mended.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, NoReturn

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from sow.core.async_tasks import end_all, within
from sow.errors import LogTrimmed, LogUnanswered, TooLarge, UnsafeLog
from sow.shared_log import BLOCK_BYTES_MAX, StoredBlock
from sow.shared_log.adapters import nats_settings
from sow.shared_log.adapters.nats_settings import NatsPlace, SettingsGuard, shown, url_of

PAGE_BLOCKS, PAGE_BYTES = 256, 8 * BLOCK_BYTES_MAX
"""What a reader holds at most: a page of the largest blocks still fills a fast network."""
IN_FLIGHT_BYTES = 64 * BLOCK_BYTES_MAX
"""What waits for the socket: several times what a writer has on its way."""
NOT_FOUND, IN_USE = 10059, 10058
"""JetStream's numbers: a stream is not there; somebody else has made it just now."""
NO_PEERS, UNAVAILABLE = 10005, 503
"""What JetStream says until its servers know of each other: as a number, and as a class of them."""
STREAM_ANSWER_S, AGAIN_S = 1.0, 0.02
"""Asking for a stream costs nothing, so that is done again sooner than for an entry."""
NOT_YET_S = 0.2
"""Servers hear of each other in seconds."""
CUT_OFF_S = 10.0
"""A server through which no entry has passed for so long is left when it fails: an election takes
4 to 9 s."""
STORED = "$JS.ACK."
"""How the reply address of a message begins that comes from a stream; others are of the server."""
BEAT, NOBODY = "100", "503"
"""The server is there; it knows of nobody who takes a request."""
NEXT_PAGE = {"404", "408"}
"""How a page ends that nothing more came for; and, by its text, one that is full."""
COMPLETED = "Batch Completed"
"""A page has all its blocks; a reader that counts them knows that before."""
FAILED_S = 0.1
"""What the end of a connection may take that was never made."""
LOOK_S = 3.0
"""How often settings are looked at once more: who writes on learns late that they lose entries, and
each look is a question to the stream's leader and one to a server's monitor."""
NS = 1_000_000_000
"""Of a second: JetStream's unit of time."""


class NatsLog:
    """A client of the log at a place; each answer may take `answer_s`."""

    def __init__(self, place: NatsPlace, answer_s: float = 5.0) -> None:
        self.place = place
        self.answer_s = answer_s
        self._subject = f"{place.stream}.log"
        self._replicas = place.replicas or len(place.servers)
        self._guard = SettingsGuard(place)
        self._connection: NatsConnection | None = None
        self._left: NatsConnection | None = None
        """One that has served nothing for long."""
        self._connecting = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._next_server = secrets.randbelow(len(place.servers))

    async def append(self, block: bytes) -> int:
        """See `SharedLog`."""
        if len(block) > BLOCK_BYTES_MAX:
            raise TooLarge(
                f"a block of {len(block)} bytes; the shared log takes {BLOCK_BYTES_MAX} at a time"
            )
        what = "an append"
        answer = await self._answer(what, self._subject, block)
        if "error" in answer or answer.get("stream") != self.place.stream:
            self._unanswered(what, answer.get("error", answer))
        if answer.get("duplicate"):
            self._unanswered(what, "it says that it had the entry before")
        if self._connection is not None:
            self._connection.has_served()
        return int(answer["seq"])

    async def last(self) -> int:
        """See `SharedLog`."""
        return int((await self._state("its newest position"))["last_seq"])

    async def trim(self, before: int) -> None:
        """See `SharedLog`."""
        # A purge up to a later position would begin the stream there.
        before = min(before, await self.last() + 1)
        if before > 1:
            await self._api("a trim", f"STREAM.PURGE.{self.place.stream}", {"seq": before})

    async def read(self, after: int) -> AsyncGenerator[StoredBlock, None]:
        """See `SharedLog`."""
        what = f"a read from position {after}"
        connection = await self._connected(what)
        consumer = StreamReader(self, connection, what)
        try:
            await consumer.start(after)
            while True:
                stored = await consumer.next()
                if stored.position > after + 1:
                    self._check_trimmed(after, await self._state(what))
                yield stored
                after = stored.position
        except Error as error:
            self._unanswered(what, error)
        finally:
            await consumer.close()

    async def close(self) -> None:
        """End the connection."""
        found = [one for one in (self._connection, self._left) if one is not None]
        self._connection = self._left = None
        if self._watching is not None:
            await end_all([self._watching])
        await self._guard.close()
        for connection in found:
            await connection.close(self.answer_s)

    async def _state(self, what: str) -> dict[str, Any]:
        return dict((await self._info(what))["state"])

    async def _info(self, what: str) -> dict[str, Any]:
        return await self._api(what, f"STREAM.INFO.{self.place.stream}")

    def _check_trimmed(self, after: int, state: dict[str, Any]) -> None:
        if after + 1 < state["first_seq"]:
            raise LogTrimmed(
                f"the stream {self.place.stream} of NATS begins at position {state['first_seq']}, "
                f"and what follows {after} is needed",
                state["first_seq"] - 1,
            )

    async def _api(self, what: str, subject: str, request: object = None) -> dict[str, Any]:
        """An answer of JetStream's interface that is no error."""
        body = b"" if request is None else json.dumps(request).encode()
        answer = await self._answer(what, f"$JS.API.{subject}", body)
        if "error" in answer:
            self._unanswered(what, answer["error"])
        return answer

    async def _answer(self, what: str, subject: str, body: bytes) -> dict[str, Any]:
        connection = self._connection
        if connection is None or not connection.is_open or self._guard.refusal:
            connection = await self._connected(what)
        try:
            async with asyncio.timeout(self.answer_s):
                return await connection.ask(subject, body)
        except TimeoutError:
            self._unanswered(what, f"nothing came within {self.answer_s:g} s")
        except (Error, OSError, ValueError) as error:
            self._unanswered(what, error)

    def _unanswered(self, what: str, why: object) -> NoReturn:
        if self._connection is not None and self._connection.is_cut_off:
            self._leave()
        if isinstance(why, dict):
            why = why.get("description", why)
        raise LogUnanswered(
            f"NATS has not answered {what} of the stream {self.place.stream}: "
            f"{str(why) or type(why).__name__}"
        ) from (why if isinstance(why, Exception) else None)

    def _leave(self) -> None:
        """The next call makes another connection, which is checked."""
        if self._connection is not None:
            self._connection, self._left = None, self._connection

    async def _watch(self) -> None:
        """Settings may change under a connection: it is left then, and the next one is refused for
        as long as they lose entries."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._connection is None or not self._connection.is_open:
                continue
            try:
                self._guard.refuse(self._findings(await self._info("its settings")))
                await self._guard.look_again()
            except UnsafeLog:
                self._leave()
            except LogUnanswered:
                pass  # who appends gets to know

    async def _connected(self, what: str) -> "NatsConnection":
        """A connection, checked; another one if the last has ended."""
        async with self._connecting:
            if self._guard.refusal is not None:
                self._leave()
            connection = self._connection
            if connection is None or not connection.is_open:
                try:
                    async with asyncio.timeout(self.answer_s):
                        connection = await self._connect()
                except TimeoutError:
                    self._unanswered(what, f"no connection within {self.answer_s:g} s")
                except (Error, OSError, ValueError) as error:
                    self._unanswered(what, error)
            self._guard.check()
            return connection

    async def _connect(self) -> "NatsConnection":
        left, self._left = self._left, None
        if left is not None:
            await left.close(AGAIN_S)
        await self._guard.ask()
        error: Exception = OSError("no server was tried")
        for _ in self.place.servers:
            server = self.place.servers[self._next_server % len(self.place.servers)]
            self._next_server += 1
            try:
                connection = await NatsConnection.open(server, self.answer_s)
            except (Error, OSError, TimeoutError) as found:
                error = found
                continue
            try:
                await self._check_stream(connection)
            except BaseException:
                await connection.close(self.answer_s)
                raise
            self._connection = connection
            if self._watching is None and not self.place.unsafe:
                self._watching = asyncio.create_task(self._watch())
            return connection
        raise error

    def _findings(self, info: dict[str, Any]) -> list[str]:
        """What is unsafe in the settings of the stream."""
        config, stream = info["config"], self.place.stream
        return nats_settings.stream_findings(stream, config, self._subject, self._replicas)

    async def _check_stream(self, connection: "NatsConnection") -> None:
        """The stream is there and loses nothing; make it if there is none."""
        if connection.block_bytes_max < BLOCK_BYTES_MAX:
            raise UnsafeLog(
                f"NATS takes messages of {connection.block_bytes_max} bytes, an entry has up to "
                f"{BLOCK_BYTES_MAX}: write `max_payload: 1MB` into its configuration"
            )
        info = await self._stream_made(connection)
        self._guard.refuse(self._findings(info) + self._guard.placed(info.get("cluster") or {}))
        # Until this server has heard who takes the stream's subject, nobody does. What is for
        # another stream is refused by the one who takes it, which shows that somebody does.
        while await connection.is_deaf(self._subject):
            await asyncio.sleep(AGAIN_S)

    async def _stream_made(self, connection: "NatsConnection") -> dict[str, Any]:
        """What is known of the stream. Several nodes may make it at once; then some are never
        answered, as nobody is while the servers elect a leader, and servers that have just begun
        refuse what they do soon: so the request is sent again, nearly until the time is up."""
        now_s = asyncio.get_running_loop().time
        end_s = now_s() + self.answer_s - STREAM_ANSWER_S
        stream = self.place.stream
        config = {"name": stream, "subjects": [self._subject], "discard": "new"}
        more = {"num_replicas": self._replicas, "deny_delete": True, "duplicate_window": NS}
        make = json.dumps(
            {**nats_settings.KEEPS_ALL, **nats_settings.SETTINGS, **config, **more}
        ).encode()
        request = "INFO", b""
        while True:
            info: dict[str, Any] = {}
            with suppress(TimeoutError):
                async with asyncio.timeout(STREAM_ANSWER_S):
                    info = await connection.ask(f"$JS.API.STREAM.{request[0]}.{stream}", request[1])
            if "config" in info:
                return info
            error = info.get("error", {})
            number = error.get("err_code")
            if number == NO_PEERS or error.get("code") == UNAVAILABLE:
                if now_s() > end_s:
                    raise ValueError(error.get("description", error))
                await asyncio.sleep(NOT_YET_S)
                continue
            if error and number not in (NOT_FOUND, IN_USE):
                raise ValueError(error.get("description", error))
            request = ("CREATE", make) if number == NOT_FOUND else ("INFO", b"")


class EncryptedClient(Client):
    """The library takes tls:// for a wish: a server without TLS got the password in plain text."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if not info.get("tls_required"):
            raise Error("the address says tls://, and the server has no TLS: nothing was sent")
        await super()._process_info(info, initial_connection=initial_connection)


class NatsConnection:
    """A connection to one server: requests, each answered at an address of its own."""

    def __init__(self, server: str) -> None:
        self._served_s = 0.0
        self._client = EncryptedClient() if url_of(server).scheme == "tls" else Client()
        self._inbox = ""
        self._waiting: dict[str, asyncio.Future[Msg]] = {}

    @classmethod
    async def open(cls, server: str, answer_s: float) -> "NatsConnection":
        """Connect to a server, and to no other one later."""
        self = cls(server)
        url = url_of(server)
        try:
            await self._client.connect(
                shown(server),
                # The library would send them as they stand in the address: %40 is an @.
                user=url.user,
                password=url.password,
                token=url.user if url.password is None else None,
                allow_reconnect=False,
                # By itself it knocks at a closed door sixty times before it gives up.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=max(1, round(answer_s)),
                ping_interval=max(1, round(answer_s / 2)),
                max_outstanding_pings=1,
                pending_size=IN_FLIGHT_BYTES,
                error_cb=_ignored,
                closed_cb=self._ended,
            )
            self._inbox = self._client.new_inbox()
            await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
            self.has_served()
        except BaseException:
            await self.close(FAILED_S)  # its error is what is said, and not that this took long
            raise
        return self

    @property
    def is_open(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self._client.is_connected

    def has_served(self) -> None:
        """An entry has passed: one that is cut off says what it knows of the stream, too."""
        self._served_s = asyncio.get_running_loop().time()

    @property
    def is_cut_off(self) -> bool:
        """Whether it may see nothing of the others."""
        return asyncio.get_running_loop().time() - self._served_s > CUT_OFF_S

    @property
    def block_bytes_max(self) -> int:
        """The largest message that the server takes."""
        return self._client.max_payload

    async def ask(
        self, subject: str, body: bytes, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """What is answered to this request; no answer to another one is taken for it."""
        token = secrets.token_hex(8)
        waiting = self._waiting[token] = asyncio.get_running_loop().create_future()
        try:
            reply = f"{self._inbox}.{token}"
            await self._client.publish(subject, body, reply, headers)
            message = await waiting
        finally:
            self._waiting.pop(token, None)
        if (status := status_of(message)) == NOBODY:
            raise OSError("nobody serves the stream at the moment")
        if status:
            raise OSError(f"status {status}")
        return dict(json.loads(message.data))

    async def is_deaf(self, subject: str) -> bool:
        """Whether nobody takes what is sent to a stream's subject; nothing is stored."""
        try:
            await self.ask(subject, b"", {"Nats-Expected-Stream": "none of this name"})
        except OSError:
            return self.is_open
        return False

    async def subscribe(self, came: asyncio.Queue[Msg]) -> tuple[Any, str]:
        """An address whose messages come into a queue."""
        inbox = self._client.new_inbox()
        return await self._client.subscribe(inbox, cb=came.put), inbox

    async def send(self, subject: str, body: object, reply: str = "") -> None:
        """Send a request that is answered elsewhere, or that nobody waits for."""
        await self._client.publish(subject, json.dumps(body).encode(), reply=reply)

    async def close(self, wait_s: float) -> None:
        """End it; on a silent line, without a word."""
        with suppress(Error, OSError):
            await within(wait_s, self._client.close())
        await self._ended()

    async def _answered(self, message: Msg) -> None:
        waiting = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def _ended(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(OSError("the connection has ended"))


class StreamReader:
    """A reader's place in the stream, on the server; it goes when nobody asks for a while."""

    def __init__(self, log: NatsLog, connection: NatsConnection, what: str) -> None:
        self._log, self._connection, self._what = log, connection, what
        self._name = f"sow-{secrets.token_hex(8)}"
        self._came: asyncio.Queue[Msg] = asyncio.Queue()
        self._silent_s = log.answer_s
        self._left = self._taken = 0
        self._deaf_s = 0.0
        self._subscription: Any = None
        self._inbox = ""

    async def start(self, after: int) -> None:
        """Begin behind a position; raises LogTrimmed."""
        log, stream = self._log, self._log.place.stream
        log._check_trimmed(after, await log._state(self._what))
        self._subscription, self._inbox = await self._connection.subscribe(self._came)
        config = {
            "name": self._name,
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": round((60 + 4 * self._silent_s) * NS),
        }
        request = {"stream_name": stream, "config": config}
        await log._api(self._what, f"CONSUMER.CREATE.{stream}.{self._name}", request)

    async def next(self) -> StoredBlock:
        """The next block; it waits for one as long as the server says that it is there."""
        while True:
            if self._left == 0:
                await self._request_page()
            try:
                async with asyncio.timeout(self._silent_s):
                    message = await self._came.get()
            except TimeoutError:
                self._log._unanswered(self._what, f"silent for {self._silent_s:g} s")
            if message.reply.startswith(STORED):
                self._left -= 1
                self._deaf_s = 0.0
                self._connection.has_served()
                return self._block(message)
            if (status := status_of(message)) == NOBODY:
                await self._wait_for_it()
            elif status != BEAT:
                self._end_page(status, message)

    async def _request_page(self) -> None:
        self._left = PAGE_BLOCKS
        beat_s = self._silent_s / 3
        page = {
            "batch": PAGE_BLOCKS,
            "max_bytes": PAGE_BYTES,
            "expires": round(max(30.0, 4 * beat_s) * NS),
            "idle_heartbeat": round(beat_s * NS),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._log.place.stream}.{self._name}"
        await self._connection.send(subject, page, self._inbox)

    async def _wait_for_it(self) -> None:
        """This server has not yet heard of the consumer, which is on another one; or it is gone."""
        if self._deaf_s > self._silent_s:
            self._log._unanswered(self._what, "its consumer is gone")
        self._deaf_s += AGAIN_S
        await asyncio.sleep(AGAIN_S)
        self._left = 0

    def _end_page(self, status: str, message: Msg) -> None:
        said = (message.headers or {}).get("Description", "")
        if said == COMPLETED and self._left == PAGE_BLOCKS:
            return  # the page before
        if status not in NEXT_PAGE and "MaxBytes" not in said and said != COMPLETED:
            self._log._unanswered(self._what, f"{status} {said}")
        self._left = 0

    def _block(self, message: Msg) -> StoredBlock:
        sequence = message.metadata.sequence
        self._taken += 1
        if sequence.consumer != self._taken:
            self._log._unanswered(self._what, "a block was lost on its way")
        return StoredBlock(sequence.stream, message.data)

    async def close(self) -> None:
        """Let the server forget it, if it listens."""
        if self._subscription is not None and self._connection.is_open:
            subject = f"$JS.API.CONSUMER.DELETE.{self._log.place.stream}.{self._name}"
            with suppress(Error, OSError):
                await self._subscription.unsubscribe()
                await self._connection.send(subject, {})


def status_of(message: Msg) -> str:
    """The status that the server says; "" for an answer."""
    return (message.headers or {}).get("Status", "")


async def _ignored(_error: Exception) -> None:
    """Those who wait for an answer get it."""
