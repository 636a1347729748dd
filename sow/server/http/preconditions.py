"""Preconditions, ranges and moments: the state that a request knows, and that an answer shows.

Every answer under `/v1` has the header `SOW-Bookmark`: the moment that the handler names, else the
newest durable change. A request with `min_bookmark` waits until the server has reached that
bookmark: this is how a client reads its own writes on another node.

`If-Match` and `If-None-Match` (RFC 9110 §13; ranges: §14) name states by their tags, or any state
by `*`. A request that would change a record is executed if they hold in the step that changes it,
so of several clients that have read the same state one succeeds. Each format of a record has a tag
of its own, and any of them identifies the state; weak tags, as compressed answers have them, count
as well. A precondition that cannot be parsed is an error: if it were ignored, the request would do
what it was meant to prevent.

One range of bytes is answered with 206; several, and invalid ones, are ignored, as the full answer
is always right. `If-Range` names the answer that the client has a part of: a part of another one
would not fit. A range counts bytes as they are sent, and compressed bytes differ from one request
to the next, so compressed answers have no ranges.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from aiohttp import hdrs, web

from sow.core.clock import SECOND_US
from sow.errors import ClientError, Stale, clipped, invalid_bookmark
from sow.history.bookmarks import POSITION, is_of_log, number_of, turn_time
from sow.protocol.wire import STALE_OK
from sow.server.http.negotiation import CODING, IDENTITY
from sow.server.loop.runtime import ServerRuntime

BOOKMARK_HEADER = "SOW-Bookmark"
"""The moment that an answer shows."""
STALE_HEADER = "SOW-Stale"
"""By how many seconds a follower lags, once it lags more than MaxLag; or for how long a node that
leads a shared log does not know that it does, once that is more than a lease."""
ADDRESSES = "/v1/"
"""Answers to addresses that begin so have a moment."""
BEGINNINGS = ("bookmark", "from", "as_of")
"""Parameters that name the moment of an answer, or the one at which it begins."""
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

    def follow(self, primary: str) -> None:
        """Another server is the primary; "": this one is."""
        self.primary = primary

    @property
    def leads(self) -> bool:
        """This server is the primary, of a log that it has followed."""
        return not self.primary

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
        self._started = asyncio.Event()
        self._upstream_log: Callable[[], str] = str
        self.may_be_stale = heard is not None
        """Whether answers may have to say that they are."""
        self.doubt_s: Callable[[], int | None] | None = None
        """Of a node that leads a shared log: for how many seconds it does not know whether it still
        does; None: it does."""
        self.is_shared = False
        """Other servers of this log give bookmarks that may be newer than what is here."""

    def share(self, doubt_s: Callable[[], int | None] | None = None) -> None:
        """This is a node of a shared log. With `doubt_s` it leads: while that returns seconds,
        reads are refused unless they take stale answers."""
        self.is_shared, self.doubt_s = True, doubt_s
        self.may_be_stale |= doubt_s is not None

    def stale_s(self) -> int | None:
        """The seconds that answers have to name; None: none."""
        if self.doubt_s is not None:
            return self.doubt_s()
        return None if self._heard is None else self._heard.stale_s()

    def check(self, stale: str | None) -> None:
        """Raise Stale for a read while this server may not lead any more, unless it takes `stale`
        answers; ClientError if that is not how it says so."""
        if stale not in (None, STALE_OK):
            raise ClientError(f"stale={clipped(stale)} must be {STALE_OK}, or left out")
        if self.doubt_s is not None and stale is None and (seconds := self.doubt_s()) is not None:
            raise stale_error(seconds)

    def follow(self, runtime: ServerRuntime) -> None:
        """Begin: all records are restored."""
        self._runtime = runtime
        self._started.set()

    def follow_upstream(self, log_id: Callable[[], str]) -> None:
        """Begin: answers have the moments of another server, whose log has this name; "" until it
        is known."""
        self._upstream_log = log_id
        self._started.set()

    def end(self, why: str) -> None:
        """Hold no request any more, neither for the start nor for a bookmark: neither may come."""
        self._started.set()
        if self._runtime is not None:
            self._runtime.bookmark_waits.end(why)

    async def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Set the headers of an answer, unless its handler did; a signal of aiohttp."""
        if self._runtime is not None and request.path.startswith(ADDRESSES):
            bookmark = self._runtime.engine.sequencer.durable_seq
            response.headers.setdefault(BOOKMARK_HEADER, str(bookmark))
            if self.may_be_stale and (stale_s := self.stale_s()) is not None:
                response.headers[STALE_HEADER] = str(stale_s)

    def sought(self, parameters: Mapping[str, str]) -> str | None:
        """The bookmark that a request waits for. A follower may be behind the one at which it is to
        begin, which another server of the log has given."""
        least = parameters.get("min_bookmark")
        if least is not None or self._runtime is None or not (self._heard or self.is_shared):
            return least
        log_id = self._runtime.journal.log_id
        begins = (parameters.get(name, "") for name in BEGINNINGS)
        return next((text for text in begins if is_of_log(text, log_id)), None)

    async def wait(self, text: str, wait_s: float | None) -> None:
        """Return once the server has reached a bookmark. Raises NotReached after `wait_s`,
        ClientError if `text` is no bookmark, AnotherLog."""
        with suppress(TimeoutError):
            async with asyncio.timeout(waited_s(wait_s)):
                await self._started.wait()
        runtime = self._runtime
        if runtime is None:
            # A start has a wait of its own, behind which this one is made up for (`reach_moment`).
            check_bookmark(text)
            if log_id := self._upstream_log():
                least_bookmark(text, log_id)
            return
        # A follower has the time of the log, which may be behind that of a place, too.
        time_us = 0 if self._heard is None or self._heard.leads else turn_time(text)
        seq = least_bookmark(text, runtime.journal.log_id)
        await runtime.bookmark_waits.reached(seq, waited_s(wait_s), time_us)


MOMENTS = web.AppKey("moments", Moments)


def stale_error(seconds: int) -> Stale:
    """The error for a read of what may be out of date."""
    return Stale(
        f"the shared log has stored nothing for {seconds} s, so another node may lead: send this "
        f"to another node, or say stale={STALE_OK} to read what is here"
    )


def least_bookmark(text: str, log_id: str) -> int:
    """The number in a `min_bookmark`; raises ClientError, AnotherLog."""
    check_bookmark(text)
    return number_of(text, log_id) or 0


def check_bookmark(text: str) -> None:
    """Raise ClientError for a `min_bookmark` that is none, of whatever log."""
    if POSITION.fullmatch(text) is None:
        raise invalid_bookmark(
            f"min_bookmark={clipped(text)} is not a bookmark; write one that the server gave"
        )


def waited_s(wait_s: float | None) -> float:
    """The seconds to wait: those of the parameter `wait`, up to the longest, or the default."""
    return WAIT_S if wait_s is None else min(wait_s, WAIT_S_MAX)


TAG = re.compile(r'[ \t]*(?:(?:W/)?("[\x21\x23-\x7e\x80-\U0010ffff]*")[ \t]*)?(?:,|$)')
"""One element of a list of tags; it may be empty (RFC 9110 §5.6.1). No blank can match in two ways,
or thousands of them would take exponential time."""
ANY_STATE = frozenset("*")


class PreconditionFailed(ClientError):
    """The record is not in the state that the client expects; nothing was done."""

    reason = "precondition failed"
    status = 412


class Conditions(NamedTuple):
    """Tags of states: one of them has to be current (`match`), and of those that must not be
    (`none_match`); None if the header is missing."""

    match: frozenset[str] | None = None
    none_match: frozenset[str] | None = None

    @classmethod
    def of(cls, request: web.Request) -> "Conditions":
        """The conditions of a request; raises ClientError for a header that cannot be parsed."""
        return cls(_tags(request, hdrs.IF_MATCH), _tags(request, hdrs.IF_NONE_MATCH))

    @classmethod
    def of_reader(cls, request: web.Request) -> "Conditions":
        """The conditions of a read that may fail; `If-None-Match` of a read means 304
        (`sow.server.http.negotiation`)."""
        return cls(_tags(request, hdrs.IF_MATCH))

    @property
    def are_given(self) -> bool:
        """Whether there are any."""
        return self.match is not None or self.none_match is not None

    def check(self, tags: Sequence[str], is_there: bool) -> None:
        """Raise PreconditionFailed unless the conditions hold for a record in the state of `tags`,
        one for each format; a record that may not be seen has none, even if it exists."""
        if self.match is not None and (not tags or not self.match & {*tags, *ANY_STATE}):
            now = f"it is {tags[0]} now" if tags else "there is none"
            raise PreconditionFailed(
                f"If-Match: the record is in none of these states, {now}; read it again"
            )
        if self.none_match is not None and (
            (is_there and self.none_match == ANY_STATE) or self.none_match & {*tags}
        ):
            raise PreconditionFailed("If-None-Match: the record is there already")


def _tags(request: web.Request, name: str) -> frozenset[str] | None:
    lines = request.headers.getall(name, ())
    if not lines:
        return None
    text = ", ".join(lines).strip()
    if text == "*":
        return ANY_STATE
    found, at = [], 0
    while at < len(text):
        element = TAG.match(text, at)
        if element is None:
            break
        found += [element[1]] if element[1] else []
        at = element.end()
    if at < len(text) or not found:
        raise ClientError(
            f'{name}: {clipped(text)} is not a list of entity tags; write "12", as ETag gave it, '
            "or *"
        )
    return frozenset(found)


RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class RangeNotSatisfiable(ClientError):
    """A range that begins after the end of an answer of `size` bytes."""

    reason = "range not satisfiable"
    status = 416

    def __init__(self, size: int) -> None:
        super().__init__(f"Range: the answer has {size} bytes; write a range that begins in them")
        self.size = size


def has_ranges(request: web.Request) -> bool:
    """Whether the answer supports ranges."""
    coding: str = request.get(CODING, IDENTITY)
    return coding == IDENTITY


def range_of(request: web.Request, tag: str, size: int) -> tuple[int, int] | None:
    """The bounds of the requested range of the `size` bytes with the entity tag `tag`; None for all
    of them. Raises RangeNotSatisfiable."""
    headers = request.headers
    if hdrs.RANGE not in headers:
        return None
    found = RANGE.fullmatch(headers[hdrs.RANGE].strip())
    if found is None or request.method != hdrs.METH_GET or not has_ranges(request):
        return None
    if headers.get(hdrs.IF_RANGE, tag).strip() != tag:
        return None
    first, last = found.groups()
    if not first:
        if not last:
            return None
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise RangeNotSatisfiable(size)
    return start, stop
