"""The settings of the servers of NATS: where they are, reading them, refusing those that lose.

JetStream answers an append once a majority of the stream's replicas has written it. It does not
wait for their disks unless the configuration of the server says so: by itself it syncs every two
minutes, and machines that lose their power together lose what was answered. Only the monitoring
port of each server knows (`/varz`). It is read before anything is appended, of a server that is
down as soon as it is back, and of one server after the other from then on, as each may have begun
again under other settings. The stream's own settings say how many replicas there are, and whether
it drops old entries by itself. Each finding is a sentence.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from sow.core.async_tasks import end_all
from sow.errors import ConfigError, UnsafeLog

REPLICAS_MIN = 3
"""Of two, none may fail."""
KEEPS_ALL = {
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "max_consumers": -1,
}
"""Limits of a stream that drops nothing by itself, takes the largest entry and as many readers as
there are nodes."""
SETTINGS = {
    "retention": "limits",
    "storage": "file",
    "sealed": False,
    "no_ack": False,
    # A header of one message would remove all that came before it.
    "allow_rollup_hdrs": False,
}


def server_findings(server: str, varz: Mapping[str, Any]) -> list[str]:
    """What is unsafe in the settings of a server, as its monitoring port says."""
    jetstream = varz.get("jetstream") or {}
    config = jetstream.get("config")
    if not config:
        return [
            f"NATS at {server} runs without JetStream, so it keeps nothing: write "
            "`jetstream { store_dir: ... , sync_interval: always }` into its configuration"
        ]
    if config.get("sync_always") is True:
        return []
    return [
        f"NATS {varz.get('version', '?')} at {server} answers before its disk has an entry, which "
        "is lost if machines lose their power together: write `sync_interval: always` into the "
        "section jetstream of its configuration (NATS 2.10 or newer) and start it again"
    ]


def unread_finding(server: str, monitor: str, why: str) -> str:
    """A server runs, and its settings cannot be read."""
    return (
        f"the settings of NATS at {server} cannot be read at {monitor}/varz ({why}), and only "
        "there it says whether it waits for its disk: write `http: 8222` into its configuration, "
        "or into <Monitor> where its monitoring port is"
    )


def replicas_finding(replicas: int, servers: int) -> list[str]:
    """A stream that is to have fewer replicas than a machine may die for."""
    if servers < REPLICAS_MIN or replicas >= REPLICAS_MIN:
        return []
    return [
        f"<Replicas> is {replicas} over {servers} servers of NATS, so one machine that dies takes "
        f"entries with it that were answered: write {REPLICAS_MIN}, or leave it out"
    ]


def stream_findings(
    stream: str, config: Mapping[str, Any], subject: str, replicas: int
) -> list[str]:
    """What is unsafe in the settings of a stream that is there."""
    found = []
    if (has := config.get("num_replicas", 1)) < replicas:
        found.append(
            f"the stream {stream} has {has} of {replicas} replicas: "
            f"`nats stream edit {stream} --replicas {replicas}`"
        )
    if config.get("persist_mode", "default") not in ("", "default"):
        found.append(
            f"the stream {stream} has persist_mode {config['persist_mode']}, so it answers before "
            "its disk has an entry: make another one without"
        )
    also = config.get("subject_transform") or config.get("sources")
    if config.get("subjects") != [subject] or also:
        found.append(
            f"the stream {stream} takes {config.get('subjects')}{' and more' if also else ''} and "
            f"not {subject} alone: write another <Stream>, which is made if there is none"
        )
    for name, value in {**KEEPS_ALL, **SETTINGS}.items():
        if (has := config.get(name, value)) != value:
            found.append(
                f"the stream {stream} has {name} {has}, so it loses or refuses entries by itself: "
                f"set {name} to {value}, or write another <Stream>, which is made if there is none"
            )
    return found


def placement_findings(
    stream: str, cluster: Mapping[str, Any], known: Collection[str]
) -> list[str]:
    """Servers that hold a replica and whose settings were never read, by name."""
    replicas = [one["name"] for one in cluster.get("replicas") or ()]
    members = [name for name in (cluster.get("leader"), *replicas) if name]
    return [
        f"the stream {stream} has a replica on the server {name} of NATS, which is not among "
        "<Servers>, so its settings cannot be read: add its address"
        for name in members
        if name not in known
    ]


UNREADABLE = (aiohttp.ClientError, OSError, TimeoutError, ValueError, TypeError, AttributeError)
"""What comes of a monitor that is none."""
MONITOR_PORT = 8222
"""NATS's own default."""


@dataclass(frozen=True, kw_only=True)
class NatsPlace:
    """Where a log is; `<Log>` of config.xml."""

    servers: Sequence[str]
    stream: str = "sow"
    replicas: int | None = None
    """As many as there are servers."""
    monitors: Sequence[str] = ()
    """Port 8222 of each server's host."""
    unsafe: bool = False

    def __post_init__(self) -> None:
        try:
            hosts = [url_of(one).host for one in self.servers]
        except ValueError:
            hosts = [None]
        if not all(hosts):
            raise ConfigError(
                "<Servers> of the shared log has what is no address of NATS: write each as "
                "nats://10.0.0.1:4222"
            )

    @property
    def monitor_urls(self) -> list[str]:
        """Where each server shows its settings."""
        if self.monitors:
            return [one.rstrip("/") for one in self.monitors]
        hosts = [url_of(one).host for one in self.servers]
        return [str(URL.build(scheme="http", host=str(one), port=MONITOR_PORT)) for one in hosts]


class SettingsGuard:
    """Asks each server for its settings and refuses those that lose."""

    def __init__(self, place: NatsPlace) -> None:
        self._place = place
        self.refusal: UnsafeLog | None = None
        self._names: set[str] = set()
        """Of servers whose settings are known."""
        self._servers = [*zip(place.servers, place.monitor_urls, strict=False)]
        self._unread = dict(self._servers)
        self._later: asyncio.Task[None] | None = None
        self._looks = 0

    def check(self) -> None:
        """Raise what was found."""
        if self.refusal is not None:
            raise self.refusal

    def refuse(self, findings: list[str]) -> None:
        """Refuse what was found, unless it may be unsafe."""
        if findings and not self._place.unsafe:
            self.refusal = UnsafeLog("; ".join(findings))
            raise self.refusal

    def placed(self, cluster: dict[str, Any]) -> list[str]:
        """Replicas on servers whose settings nobody has read, unless one is down."""
        if self._unread or self._place.unsafe:
            return []
        return placement_findings(self._place.stream, cluster, self._names)

    async def ask(self) -> None:
        """Read those that are not known; raises UnsafeLog."""
        self.refusal = None
        if self._place.unsafe:
            return
        servers = self._place.servers
        replicas = self._place.replicas or len(servers)
        findings = replicas_finding(replicas, len(servers))
        if len(self._place.monitor_urls) != len(servers):
            findings.append(
                f"<Monitor> has {len(self._place.monitor_urls)} addresses for {len(servers)} of "
                "<Servers>: write one for each server, in the same order"
            )
        async with session() as http:
            each = [self._ask_one(http, *one) for one in self._unread.items()]
            for found in await asyncio.gather(*each):
                findings += found
        self.refuse(findings)
        if self._unread and self._later is None:
            self._later = asyncio.create_task(self._ask_later())

    async def _ask_one(self, http: aiohttp.ClientSession, server: str, monitor: str) -> list[str]:
        where = shown(server)
        try:
            varz = await settings_at(http, monitor)
            findings = server_findings(where, varz)
        except UNREADABLE as error:
            # A server that is down answers nothing that could be lost; it is read once it is back.
            why = str(error) or type(error).__name__
            return [unread_finding(where, monitor, why)] if await is_up(server) else []
        if not findings:
            self._names.add(varz.get("server_name", ""))
            self._unread.pop(server, None)  # two may read it at once
        return findings

    async def look_again(self) -> None:
        """Read those of one server again, of each in its turn: it may have begun once more, under
        others. Raises UnsafeLog."""
        server, monitor = self._servers[self._looks % len(self._servers)]
        self._looks += 1
        if server in self._unread:
            return
        with suppress(*UNREADABLE):  # a server that is down loses nothing
            async with session() as http:
                varz = await settings_at(http, monitor)
            if findings := server_findings(shown(server), varz):
                self._unread[server] = monitor
                self.refuse(findings)

    async def _ask_later(self) -> None:
        """Until all are known, or one is refused: `check` says it then."""
        with suppress(UnsafeLog):
            while self._unread:
                await asyncio.sleep(1)
                await self.ask()
        self._later = None

    async def close(self) -> None:
        """Ask no more."""
        if self._later is not None:
            await end_all([self._later])


def url_of(server: str) -> URL:
    """A server's address, with its scheme."""
    return URL(server if "://" in server else f"nats://{server}")


def shown(server: str) -> str:
    """The same without what is secret."""
    return str(url_of(server).with_user(None))


def session() -> aiohttp.ClientSession:
    """To read settings; a monitor that is silent is none."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2))


async def settings_at(http: aiohttp.ClientSession, monitor: str) -> dict[str, Any]:
    """The settings of a server; raises one of UNREADABLE."""
    async with http.get(f"{monitor}/varz") as answer:
        return dict(await answer.json(content_type=None))


async def is_up(server: str) -> bool:
    """Whether a server of NATS greets there."""
    url = url_of(server)
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(url.host, url.port or 4222)
            try:
                return (await reader.read(5)).startswith(b"INFO")
            finally:
                writer.close()
                await writer.wait_closed()
    except (OSError, TimeoutError):
        return False
