"""The moment of an answer: the bookmark that it is as of, and one that it is to contain.

Every answer under `/v1` has the header `SOW-Bookmark`: the moment that a handler shows, else the
newest durable change. A request with `min_bookmark` waits until the server has reached that, which
is how a client reads its own writes on another node.
"""

from aiohttp import web

from sow.errors import ClientError, clipped
from sow.history.bookmarks import number_of
from sow.server.loop.runtime import ServerRuntime

BOOKMARK_HEADER = "SOW-Bookmark"
"""The moment that an answer shows."""
ADDRESSES = "/v1/"
"""How the addresses begin whose answers have a moment."""
WAIT_S = 5.0
"""How long a request waits for a bookmark by default: longer than a node lags that works."""
WAIT_S_MAX = 60.0
"""And at most: proxies close connections that are silent for longer."""


class Moments:
    """The moments of one server's answers; none before it `follow`s a runtime."""

    def __init__(self) -> None:
        self._runtime: ServerRuntime | None = None

    def follow(self, runtime: ServerRuntime) -> None:
        """All records are restored."""
        self._runtime = runtime

    async def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Say which moment an answer shows, unless it says so itself; a signal."""
        if self._runtime is not None and request.path.startswith(ADDRESSES):
            bookmark = self._runtime.engine.sequencer.durable_seq
            response.headers.setdefault(BOOKMARK_HEADER, str(bookmark))

    async def wait(self, text: str, wait_s: float | None) -> None:
        """Return once a bookmark is reached; raises NotYet if that takes too long, ClientError for
        what is no bookmark, and AnotherLog."""
        runtime = self._runtime
        if runtime is not None:  # else the request waits for the start, which has an end of its own
            await runtime.reached(least_bookmark(text, runtime.journal.log_id), waited_s(wait_s))


MOMENTS = web.AppKey("moments", Moments)


def least_bookmark(text: str, log_id: str) -> int:
    """The number of the bookmark `min_bookmark`; raises ClientError, AnotherLog."""
    number = number_of(text, log_id)
    if number is None:
        raise ClientError(
            f"min_bookmark={clipped(text)} is not a bookmark; write one that the server gave",
            reason="invalid bookmark",
        )
    return number


def waited_s(wait_s: float | None) -> float:
    """How long to wait where `wait` says so, or nothing."""
    return WAIT_S if wait_s is None else min(wait_s, WAIT_S_MAX)
