"""The moment of an answer: the bookmark that it shows, and the least one that a request accepts.

Every answer under `/v1` has the header `SOW-Bookmark`: the moment that the handler names, else the
newest durable change. A request with `min_bookmark` waits until the server has reached that
bookmark: this is how a client reads its own writes on another node.
"""

from collections.abc import Callable

from aiohttp import web

from sow.core.clock import SECOND_US
from sow.errors import ClientError, clipped
from sow.history.bookmarks import number_of
from sow.server.loop.runtime import ServerRuntime

BOOKMARK_HEADER = "SOW-Bookmark"
"""The moment that an answer shows."""
STALE_HEADER = "SOW-Stale"
"""By how many seconds a follower lags, once it lags more than MaxLag."""
ADDRESSES = "/v1/"
"""Answers to addresses that begin so have a moment."""
WAIT_S = 5.0
"""How long a request waits for a bookmark by default: longer than a healthy node lags."""
WAIT_S_MAX = 60.0
"""The longest wait: proxies close connections that are silent for longer."""


class Heard:
    """How far a follower lags behind the server at `primary`.

    The lag is the time since the primary was last heard, and the log's time that is received but
    not applied. `now_s` is a monotonic clock; clocks of two machines are never compared.
    """

    def __init__(
        self, primary: str, lag_us_max: Callable[[], int], now_s: Callable[[], float]
    ) -> None:
        self.primary = primary
        self._lag_us_max = lag_us_max
        self._now_s = now_s
        self._heard_s = now_s()
        self._newest_us = self._applied_us = 0

    def hear(self, time_us: int = 0) -> None:
        """Note that a frame has arrived, up to this time of the log."""
        self._heard_s = self._now_s()
        self._newest_us = max(self._newest_us, time_us)

    def apply(self, time_us: int) -> None:
        """Note that the log is applied up to a time."""
        self._applied_us = max(self._applied_us, time_us)

    def lag_us(self) -> int:
        """The lag."""
        silent_us = int((self._now_s() - self._heard_s) * SECOND_US)
        return silent_us + max(0, self._newest_us - self._applied_us)

    def stale_s(self) -> int | None:
        """The lag in seconds, if it exceeds MaxLag."""
        lag_us = self.lag_us()
        return -(-lag_us // SECOND_US) if lag_us > self._lag_us_max() else None


class Moments:
    """Names the moments of a server's answers, once it `follow`s a runtime. `heard` is the lag of
    a follower."""

    def __init__(self, heard: Heard | None = None) -> None:
        self._runtime: ServerRuntime | None = None
        self._heard = heard

    def follow(self, runtime: ServerRuntime) -> None:
        """Begin: all records are restored."""
        self._runtime = runtime

    async def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Set the headers of an answer, unless its handler did; a signal of aiohttp."""
        if self._runtime is not None and request.path.startswith(ADDRESSES):
            bookmark = self._runtime.engine.sequencer.durable_seq
            response.headers.setdefault(BOOKMARK_HEADER, str(bookmark))
            stale_s = None if self._heard is None else self._heard.stale_s()
            if stale_s is not None:
                response.headers[STALE_HEADER] = str(stale_s)

    async def wait(self, text: str, wait_s: float | None) -> None:
        """Return once the server has reached a bookmark. Raises NotReached after `wait_s`,
        ClientError if `text` is no bookmark, AnotherLog."""
        runtime = self._runtime
        if runtime is not None:  # else the request waits for the start, which has an end of its own
            await runtime.reached(least_bookmark(text, runtime.journal.log_id), waited_s(wait_s))


MOMENTS = web.AppKey("moments", Moments)


def least_bookmark(text: str, log_id: str) -> int:
    """The number in a `min_bookmark`; raises ClientError, AnotherLog."""
    number = number_of(text, log_id)
    if number is None:
        raise ClientError(
            f"min_bookmark={clipped(text)} is not a bookmark; write one that the server gave",
            reason="invalid bookmark",
        )
    return number


def waited_s(wait_s: float | None) -> float:
    """The seconds to wait: those of the parameter `wait`, up to the longest, or the default."""
    return WAIT_S if wait_s is None else min(wait_s, WAIT_S_MAX)
