"""The moment of an answer: the bookmark that it is as of, and one that it is to contain.

Every answer under `/v1` has the header `SOW-Bookmark`: the moment that a handler shows, else the
newest durable change. A request with `min_bookmark` waits until the server has reached that, which
is how a client reads its own writes on another node.
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
"""By how many seconds a follower is behind, where that is more than it may be."""
ADDRESSES = "/v1/"
"""How the addresses begin whose answers have a moment."""
WAIT_S = 5.0
"""How long a request waits for a bookmark by default: longer than a node lags that works."""
WAIT_S_MAX = 60.0
"""And at most: proxies close connections that are silent for longer."""


class Heard:
    """What a follower has heard of the server at `primary`: how far its own state is behind.

    That is the time since the primary was last heard, and the log's time that is not applied yet;
    `now_s` passes steadily, and no clock of this machine is compared with one of another.
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
        """Something has come, of this time of the log."""
        self._heard_s = self._now_s()
        self._newest_us = max(self._newest_us, time_us)

    def apply(self, time_us: int) -> None:
        """What has come up to a time is applied."""
        self._applied_us = max(self._applied_us, time_us)

    def lag_us(self) -> int:
        """How far the state is behind."""
        silent_us = int((self._now_s() - self._heard_s) * SECOND_US)
        return silent_us + max(0, self._newest_us - self._applied_us)

    def stale_s(self) -> int | None:
        """The same in seconds, if it is more than MaxLag."""
        lag_us = self.lag_us()
        return -(-lag_us // SECOND_US) if lag_us > self._lag_us_max() else None


class Moments:
    """The moments of one server's answers; none before it `follow`s a runtime. `heard` is what a
    follower has heard."""

    def __init__(self, heard: Heard | None = None) -> None:
        self._runtime: ServerRuntime | None = None
        self._heard = heard

    def follow(self, runtime: ServerRuntime) -> None:
        """All records are restored."""
        self._runtime = runtime

    async def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Say which moment an answer shows, unless it says so itself; a signal."""
        if self._runtime is not None and request.path.startswith(ADDRESSES):
            bookmark = self._runtime.engine.sequencer.durable_seq
            response.headers.setdefault(BOOKMARK_HEADER, str(bookmark))
            stale_s = None if self._heard is None else self._heard.stale_s()
            if stale_s is not None:
                response.headers[STALE_HEADER] = str(stale_s)

    async def wait(self, text: str, wait_s: float | None) -> None:
        """Return once a bookmark is reached; raises NotReached if that takes too long, ClientError
        for what is no bookmark, and AnotherLog."""
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
