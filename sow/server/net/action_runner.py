"""Runs the actions of one server: calls web hooks for them, and gives them time when it stops.

    a run comes to a web hook ──> one POST, as a task beside the loop ──> answered: the run goes on

A call is a request of its own: it follows no redirect, keeps no cookie, and reads nothing of the
answer but its head, whatever the other side sends; all of it has one time limit. A run makes one
call at a time, and so does an action, whose runs go one after the other: there is no queue here.
"""

import asyncio
import logging
from collections.abc import Callable

from aiohttp import ClientError as CallFailed
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, hdrs

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


async def posted(call: WebhookCall) -> str:
    """Call a web hook; returns why it has failed, "" if it has not."""
    timeout = ClientTimeout(total=call.timeout_us / SECOND_US)
    headers = {RUN_HEADER: call.run, hdrs.CONTENT_TYPE: _media_type(call.body)}
    try:
        async with ClientSession(
            timeout=timeout,
            connector=TCPConnector(force_close=True, limit=1),
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
        answered(await posted(call), self._runtime.now_us())

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
