"""Runs the actions of one server: calls web hooks for them, and gives them time when it stops.

    a run comes to a web hook ──> one POST, as a task beside the loop ──> answered: the run goes on

A call is a request of its own: it follows no redirect, keeps no cookie, and reads nothing of the
answer but its head, whatever the other side sends; all of it has one time limit. A run makes one
call at a time, and so does an action, whose runs go one after the other: there is no queue here.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

from aiohttp import ClientError as CallFailed
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, hdrs
from aiohttp.abc import AbstractResolver, ResolveResult

from sow.core.clock import SECOND_US
from sow.core.media_types import JSON, PLAIN_TEXT
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.actions import Actions, Answered, WebhookCall

log = logging.getLogger("sow")

LAST_S = 5.0
"""A stop waits so long for actions on shutdown: half of what service managers wait. What has not
ended then is done after the next start."""
LOOK_S = 0.02
"""How often a stop looks whether they have: nobody notices it, and it costs nothing."""
BUFFER_BYTES = 16 * 1024
"""Of an answer that nobody reads."""
RUN_HEADER = "Idempotency-Key"
"""Equal in calls that are made again, so that the other side can tell."""


LOOKUPS_MAX = 32
"""Names that are looked up at a time: a name server that is away takes half a minute for each."""


class HookResolver(AbstractResolver):
    """Looks hosts up in threads that nothing else waits for, the end of the process included: those
    that asyncio shares would be taken by a name server that does not answer."""

    def __init__(self) -> None:
        self.running = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host; raises OSError."""
        if self.running >= LOOKUPS_MAX:
            raise OSError(f"{LOOKUPS_MAX} names are being looked up already")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Any]] = loop.create_future()

        def end(found: list[Any] | OSError) -> None:
            self.running -= 1
            if answer.done():
                return  # nobody waits any more
            if isinstance(found, OSError):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        def look_up() -> None:
            found: list[Any] | OSError
            try:
                found = socket.getaddrinfo(
                    host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                )
            except (OSError, UnicodeError) as error:
                found = OSError(str(error))
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(end, found)

        self.running += 1
        Thread(target=look_up, name="webhook", daemon=True).start()
        return [
            ResolveResult(
                hostname=host, host=address[0], port=port, family=kind, proto=protocol, flags=0
            )
            for kind, _, protocol, _, address in await answer
        ]

    async def close(self) -> None:
        """Its threads end by themselves."""


RESOLVER = HookResolver()
"""Of all calls of the process."""


async def posted(call: WebhookCall) -> str:
    """Call a web hook; returns why it has failed, "" if it has not."""
    timeout = ClientTimeout(total=call.timeout_us / SECOND_US)
    headers = {RUN_HEADER: call.run, hdrs.CONTENT_TYPE: _media_type(call.body)}
    try:
        async with ClientSession(
            timeout=timeout,
            connector=TCPConnector(force_close=True, limit=1, resolver=RESOLVER),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=BUFFER_BYTES,
        ) as calls:
            answer = await calls.post(
                call.url, data=call.body, headers=headers, allow_redirects=False
            )
            answer.close()
            return "" if 200 <= answer.status < 300 else f"the web hook answers {answer.status}"
    except TimeoutError:
        return f"the web hook has not answered in {timeout.total:g} s"
    except (CallFailed, OSError, ValueError) as error:
        return f"the web hook cannot be called: {type(error).__name__}"


def _media_type(body: bytes) -> str:
    """JSON, or text."""
    is_json = body.lstrip()[:1] in (b"{", b"[")
    return JSON if is_json else f"{PLAIN_TEXT}; charset=utf-8"


class ActionRunner:
    """What `actions` need of a running server; their lines are written by `echo`."""

    def __init__(
        self, runtime: ServerRuntime, actions: Actions, echo: Callable[[str], object]
    ) -> None:
        self._runtime = runtime
        self._actions = actions
        actions.post_by(self._post, echo, log.warning)

    def begin(self) -> None:
        """Everything is there: actions run where this server takes changes."""
        self._actions.begin()

    def _post(self, call: WebhookCall, answered: Answered) -> None:
        self._runtime.begin(self._call(call, answered))

    async def _call(self, call: WebhookCall, answered: Answered) -> None:
        try:
            why = await posted(call)
        except Exception:
            log.exception("a web hook is not called")
            why = "the server failed on it; its log says why"
        answered(why, self._runtime.now_us())

    async def close(self) -> None:
        """The server stops: do what is to be done then."""
        actions, loop = self._actions, self._runtime.loop
        actions.shut_down()
        until_s = loop.time() + LAST_S
        while actions.ends and loop.time() < until_s:
            self._runtime.wake()
            await asyncio.sleep(LOOK_S)
        if actions.ends:
            log.warning("actions on shutdown have not ended: they go on after the next start")
