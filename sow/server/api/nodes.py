"""The nodes of a log that a server knows: its followers, and the chained servers below it.

Each reports about itself every second or two, and a follower is known by its reading of the log as
well. One that is silent is listed for an hour more, as not heard of: its address says where to
look. What several chained servers share is their address (`sow serve --edges`); they differ by
their processes.

A node reports to the server above it: a follower to its primary, a chained server to its upstream,
which lists it in `/v1/status`. Both forward the reports of those below them. What the server above
knows is requested when a client requests it here.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from aiohttp import ClientError as CallFailed
from aiohttp import ClientSession, ClientTimeout
from prometheus_client.core import CounterMetricFamily as Counted
from prometheus_client.core import GaugeMetricFamily as Gauge

from sow.errors import TooLarge
from sow.server.http.body_reading import beginning
from sow.server.loop.log_checkpoint import LogMark

AS_PRIMARY, AS_FOLLOWER, AS_CHAINED = "primary", "follower", "chained"
"""The roles of a server."""


class ServerNode(msgspec.Struct, frozen=True):
    """One server of a log, as others see it, also in JSON; None: it was not heard of, or by an
    earlier version that does not say so."""

    url: str
    role: str
    bookmark: str | None = None
    state_hash: str | None = None
    lag_ms: int | None = None
    pid: int | None = None
    upstream: str | None = None
    """The address of the server that it follows or is chained to, as it calls it."""
    sessions: int | None = None
    checkpoint: LogMark | None = None
    """Of a node of a shared log: what it needs nothing before."""


UPSTREAM_FIGURES = (
    (Gauge, "connected", "Of a chained server: 1 while its upstream answers."),
    (Counted, "losses", "Losses of the upstream server."),
    (Counted, "reconnects", "Connections to it that were made again."),
    (Gauge, "subscriptions", "Subscriptions there that sessions share."),
    (Gauge, "subscribers", "Sessions that share them, once for each."),
    (Counted, "bytes", "Bytes of lines that have come from there."),
    (Counted, "lines", "Lines that have come from there."),
    (Gauge, "idle_seconds", "Time since the last of these lines, or the start."),
)
"""What a chained server counts: family, name and help."""
LOG_FIGURES = {
    "leads": "Of a node of a shared log: 1 where it leads.",
    "term": "How often a node has begun to lead.",
    "silent_seconds": "How long it knows nothing for certain: since its last durable entry where "
    "it leads, since an entry was read where it follows.",
    "void_entries": "Entries that were passed over since it started.",
}
"""What a node reports of its shared log, by the names of the metrics."""
HEARD_S = 30.0
"""Of a node that is silent for longer nothing is known any more: followers report every second or
two."""
REMEMBERED_S = 3600.0
"""So long a silent node is listed, and the log kept for it: a reboot and a deployment are over by
then, and a busy log of an hour still fits on a disk."""


NODES_MAX = 1_000
"""Nodes that are remembered: each answer of `/v1/status` lists them all."""
URL_CHARS_MAX = 2_000
"""Of a node's address, twice what a name of a host and a path need."""


class FeedPosition:
    """How far a follower has read the log."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.readers = 0

    def reached(self, seq: int) -> None:
        """It has been sent everything up to a record."""
        self.seq = seq


class Nodes:
    """The nodes below one server; `now_s` passes steadily."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.log_figures: Callable[[], Mapping[str, float]] = dict
        """`LOG_FIGURES` of the server itself; none where it is no node of a shared log."""
        self._said: dict[str, ServerNode] = {}
        self._read: dict[str, FeedPosition] = {}
        self._heard_s: dict[str, float] = {}

    def have_log(self, figures: Callable[[], Mapping[str, float]]) -> None:
        """The server itself is a node of a shared log, with these `LOG_FIGURES`."""
        self.log_figures = figures

    def note(self, *nodes: ServerNode) -> None:
        """Nodes have reported; raises TooLarge, and notes none then."""
        for node in nodes:
            self._check(node.url)
        for node in nodes:
            name = f"{node.url} {node.pid}" if node.role == AS_CHAINED else node.url
            self._said[name] = node
            self._heard_s[name] = self._now_s()
        self._forget()

    def remember(self, *nodes: ServerNode) -> None:
        """Another server has known these nodes: they are silent until they report here."""
        for node in nodes:
            if node.url not in self._said:
                self._said[node.url] = msgspec.structs.replace(node, role=AS_FOLLOWER)
                self._heard_s[node.url] = self._now_s() - 2 * HEARD_S
        self._forget()

    @contextmanager
    def reading(self, url: str, seq: int) -> Iterator[FeedPosition]:
        """A follower reads the log behind record `seq` while this is open. Raises TooLarge."""
        self._check(url)
        reading = self._read[url] = FeedPosition(seq)
        self._heard_s[url] = self._now_s()
        reading.readers += 1
        self._forget()
        try:
            yield reading
        finally:
            reading.readers -= 1
            self._heard_s[url] = self._now_s()

    def all(self) -> list[ServerNode]:
        """What is known of each, those first that were heard."""
        heard = self.heard()
        there = {node.url for node in heard}
        silent = {
            node.url: ServerNode(
                node.url, node.role, upstream=node.upstream, checkpoint=node.checkpoint
            )
            for node in self._said.values()
            if node.url not in there
        }
        return [*heard, *silent.values()]

    def heard(self) -> list[ServerNode]:
        """Those that have reported of late."""
        self._forget()
        since_s = self._now_s() - HEARD_S
        return [node for name, node in self._said.items() if self._heard_s[name] >= since_s]

    def counts(self) -> Mapping[str, int]:
        """How many have reported of late, by their role."""
        return {AS_FOLLOWER: 0, AS_CHAINED: 0} | Counter(node.role for node in self.heard())

    def lags_s(self) -> Mapping[str, float]:
        """How far each is behind, by its address; of several at one address the most."""
        lags: dict[str, float] = {}
        for node in self.heard():
            lags[node.url] = max(lags.get(node.url, 0.0), (node.lag_ms or 0) / 1000)
        return lags

    def positions(self) -> dict[str, int]:
        """The records behind which followers need the log, by their addresses."""
        self._forget()
        return {url: reading.seq for url, reading in self._read.items()}

    def marks(self) -> dict[str, LogMark]:
        """Up to where nodes of a shared log need nothing of it, by their addresses."""
        self._forget()
        said = self._said.values()
        return {one.url: one.checkpoint for one in said if one.checkpoint is not None}

    def _check(self, url: str) -> None:
        if len(url) > URL_CHARS_MAX:
            raise TooLarge(f"a node's address has {URL_CHARS_MAX} characters at most")

    def _forget(self) -> None:
        """Forget those that are silent for long, and the most silent ones where there are many."""
        since_s = self._now_s() - REMEMBERED_S
        silent = [url for url in self._heard_s if not self._is_reading(url)]
        silent.sort(key=self._heard_s.__getitem__)
        too_many = len(self._heard_s) - NODES_MAX
        for at, url in enumerate(silent):
            if at >= too_many and self._heard_s[url] >= since_s:
                break
            for known in (self._read, self._said, self._heard_s):
                known.pop(url, None)

    def _is_reading(self, url: str) -> bool:
        reading = self._read.get(url)
        return reading is not None and reading.readers > 0


STATUS_S_MAX = 1.0
"""How long the server above may take to say what it knows: people look at the answer once a second,
and one that is lost is not called."""
STATUS_BYTES_MAX = NODES_MAX * (2 * URL_CHARS_MAX + 1_000)
"""So much is read of it."""
NO_HEADERS: Mapping[str, str] = {}


class Upstream(NamedTuple):
    """The server above: its address, a token of its, if it needs one, the TLS context for https://
    (True: the machine's certificates), and a token to report by where that is another one."""

    url: str
    token: str = ""
    encryption: ssl.SSLContext | bool = True
    report_token: str = ""


class StatusSaid(msgspec.Struct):
    """What matters of `/v1/status`."""

    nodes: list[ServerNode] = []


async def report(
    calls: ClientSession,
    url: str,
    own: ServerNode,
    headers: Mapping[str, str] = NO_HEADERS,
    below: Sequence[ServerNode] = (),
) -> str:
    """Tell the server at `url` of this one and those `below`; returns the address under which it
    lists this one, empty where it refuses. Raises ClientError of aiohttp, OSError, TimeoutError."""
    said = msgspec.to_builtins(own)
    path = f"/v1/nodes/{quote(said.pop('url'), safe='')}"
    if below:
        said["below"] = msgspec.to_builtins(below)
    async with calls.put(url + path, json=said, headers=headers, allow_redirects=False) as answer:
        if answer.status != 200:
            return ""
        text = await answer.content.read(URL_CHARS_MAX + 1_000)
    try:
        return msgspec.json.decode(text, type=ServerNode).url
    except msgspec.MsgspecError:
        return own.url


async def nodes_of(
    calls: ClientSession, url: str, headers: Mapping[str, str] = NO_HEADERS
) -> list[ServerNode]:
    """What the server at `url` knows of all nodes; none where it does not say so in time."""
    try:
        async with (
            asyncio.timeout(STATUS_S_MAX),
            calls.get(
                f"{url}/v1/status",
                headers=headers,
                allow_redirects=False,
                timeout=ClientTimeout(total=STATUS_S_MAX),
            ) as answer,
        ):
            text = await beginning(answer, STATUS_BYTES_MAX)
        return msgspec.json.decode(text, type=StatusSaid).nodes[:NODES_MAX]
    except (CallFailed, OSError, TimeoutError, msgspec.MsgspecError):
        return []
