"""`sow serve`: runs a server until a signal stops it, and reports its state to systemd.

A service of `Type=notify` finds a socket in NOTIFY_SOCKET, of the protocol of sd_notify(3). The
server sends the progress of its start, with requests for more time; that it is ready; that it is
alive, as often as WATCHDOG_USEC demands; that it stops. The event loop sends these messages, so a
hanging loop sends none and systemd ends the process, which loses nothing acknowledged. Without
these variables nothing happens.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from sow.cli.commands.init import DATA_DIRECTORY, document, named_topic
from sow.cli.commands.pipeline import beside, run_by_spark
from sow.cli.edges import EDGES_MAX, Edges
from sow.cli.options import command, run, variables_option
from sow.cli.output import show
from sow.cli.supervision import Beside, KeptRunning, end_with_input, pipeline_words, supervised
from sow.client.connector import checked_url
from sow.config import Reviewed, exposed, load, loads, require, review
from sow.core.clock import LogClock
from sow.core.definitions import Configuration, JournalSettings
from sow.errors import ClientError, SowError
from sow.security.authentication.tokens import new_token
from sow.server.boot.app import Server
from sow.server.boot.follower import Follower, Upstream
from sow.server.http import server_log
from sow.server.loop.event_loop import LOOPS, loop_factory
from sow.store.manifest import MANIFEST_FILE

log = logging.getLogger("sow.serve")

STOP_S_MAX = 5.0
"""Time for stopping: less than the ten seconds after which Docker kills a container."""

FOLLOWERS_MAX = 256
"""More than any machine has cores."""
FOLLOWER_PAUSE_S = 0.2
"""Delay before a follower that has ended is started again: its clients go to the others."""
NOTHING_CONFIGURED = "<SOWConfig><Name>chained</Name></SOWConfig>"
"""A chained server without a file: everything has its default."""

Ready = Callable[[str, str], Mapping[str, Beside]]
"""Called with the server's address, and that of its clients: reports that it is ready; returns
commands to run beside it."""


@command(
    "sow serve",
    "sow serve --topic quotes:/symbol --topic orders:/id",
    "sow serve desk.xml --port 9000 --set HOME=/srv/sow",
)
@click.argument("config", default="config.xml", type=click.Path())
@click.option(
    "--topic",
    "named",
    multiple=True,
    metavar="NAME:KEY",
    help="Without CONFIG: a json topic, such as quotes:/symbol; repeated.",
)
@variables_option
@click.option("--host", metavar="H", help="Address to listen on, instead of Listen in CONFIG.")
@click.option(
    "--port",
    metavar="P",
    type=click.IntRange(0, 65535),
    help="Port, instead of Listen in CONFIG; 0 for any free one.",
)
@click.option(
    "--data-dir",
    metavar="D",
    type=click.Path(file_okay=False),
    help="Directory of all data, instead of DataDirectory in CONFIG.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond loopback although there is no authentication.",
)
@click.option(
    "--allow-loss",
    is_flag=True,
    help="Remove records that have no topic in CONFIG: they move to removed/ in the directory.",
)
@click.option(
    "--follow",
    metavar="URL",
    help="Follow the server at URL: the same topics and records, to read. Definitions come from "
    "there; of CONFIG only Listen, Sessions, Follower, Limits and paths count.",
)
@click.option(
    "--upstream",
    metavar="URL",
    help="Be a chained server: have clients of its own, and the records of the server at URL.",
)
@click.option(
    "--token",
    envvar="SOW_TOKEN",
    metavar="TOKEN",
    help="For --follow, of a user with Admin and Read of everything; for --upstream, of one with "
    "Impersonate, who acts for the clients; or set SOW_TOKEN.",
)
@click.option(
    "--followers",
    metavar="N",
    type=click.IntRange(0, FOLLOWERS_MAX),
    default=0,
    help="Have N servers beside this one follow it, on the ports after its own; 0 for none.",
)
@click.option(
    "--edges",
    metavar="N",
    type=click.IntRange(0, EDGES_MAX),
    default=0,
    help="Have N chained servers beside this one take the clients, on one port; 0 for none.",
)
@click.option("--until-input-ends", is_flag=True, help="End with the standard input.")
@click.option("--no-pipelines", is_flag=True, help="Start no Spark pipelines beside the server.")
@click.option(
    "--loop",
    "loop_wanted",
    type=click.Choice(LOOPS),
    help="The event loop to run on; the default is uvloop if it is installed.",
)
@click.pass_context
def serve(
    ctx: click.Context,
    config: str,
    named: tuple[str, ...],
    variables: dict[str, str],
    host: str | None,
    port: int | None,
    data_dir: str | None,
    insecure: bool,
    allow_loss: bool,
    follow: str | None,
    upstream: str | None,
    token: str | None,
    followers: int,
    edges: int,
    until_input_ends: bool,
    no_pipelines: bool,
    loop_wanted: str | None,
) -> None:
    """Run the server that CONFIG (config.xml) describes, or a server with the topics of --topic.

    Writes one line when it is ready: all records are loaded. Until then requests wait, and a long
    start reports its progress. SIGTERM or Ctrl-C stops it cleanly, at any time; SIGHUP reads CONFIG
    again and applies what can be changed, or reports why it does not.

    With --upstream it keeps no records: of CONFIG its topics and its log do not count. With --edges
    it keeps the records, and so many chained servers have its clients.
    """
    starter = _starter(ctx, named, data_dir) if named else _bare(ctx, config, upstream)
    loaded = loads(starter, "--topic") if starter else load(config, variables, os.environ)
    for finding in loaded.findings:
        click.echo(finding.labelled, err=True)
    if loaded.configuration is None:
        ctx.exit(1)
    given: dict[str, Any] = {"host": host, "port": port, "data_directory": data_dir}

    chained = _chained(ctx, given, upstream, None if until_input_ends else token, follow)

    def as_given(configuration: Configuration) -> Configuration:
        configuration = configuration if chained is None else without_records(configuration)
        changes = {name: value for name, value in given.items() if value is not None}
        return dataclasses.replace(configuration, **changes)

    def reread() -> Configuration:
        # Options of the command line stay in force.
        return inside(
            configuration if starter else as_given(require(config, variables, os.environ))
        )

    def look() -> Reviewed:
        if starter:
            return Reviewed("--topic", starter, loaded.checked.findings)
        return review(config, variables, os.environ)

    configuration = as_given(loaded.configuration)
    place = "--host" if host or loaded.exposure is None else loaded.exposure.place
    if not _may_listen(configuration, place, insecure):
        ctx.exit(1)

    own_token = new_token()
    followed = None if follow is None else Upstream(checked_url(follow), token or "")
    if until_input_ends:
        end_with_input()
    words = _words("" if starter else config, named, variables, insecure)
    takers = Edges(edges, configuration, words)
    ctx.call_on_close(takers.close)
    inside = takers.inside

    def ready(url: str, public: str) -> dict[str, Beside]:
        _announce(configuration, public)
        directory = Path(configuration.data_directory)
        engines = {topic.name for topic in run_by_spark(configuration)}
        running = {
            name: Beside(
                pipeline_words(name, config, url, directory, variables),
                own_token if name in engines else None,
            )
            for name in ([] if no_pipelines or followed else beside(configuration))
        }
        return running | _followers(followers, words, url, public, configuration, own_token)

    make_loop = loop_factory(loop_wanted)

    def make(configuration: Configuration, follower: Follower | None) -> Server:
        return Server(
            inside(configuration),
            Path(configuration.data_directory),
            reread=reread,
            allow_loss=allow_loss,
            own_token=own_token,
            look=look,
            follower=follower,
            upstream=chained,
            shares_port=until_input_ends and chained is not None,
        )

    serving = serve_until_stopped(configuration, make, ready, takers, followed)
    if not run(serving, make_loop):
        click.echo(f"sow: gave up stopping after {STOP_S_MAX:g} s; no data is lost", err=True)
        # Something holds a thread; acknowledged messages are in the journal.
        os._exit(1)


def _starter(ctx: click.Context, named: Sequence[str], data_dir: str | None) -> str:
    """The configuration of the topics of --topic."""
    if ctx.get_parameter_source("config") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--topic replaces CONFIG; add the topic to the file")
    directory = Path(DATA_DIRECTORY)
    # A folder of this name often holds the user's own data.
    is_taken = directory.is_dir() and any(directory.iterdir())
    if data_dir is None and is_taken and not (directory / MANIFEST_FILE).exists():
        raise ClientError(
            f"the folder {DATA_DIRECTORY} here holds something else; choose where to keep "
            "records: --data-dir DIRECTORY"
        )
    return document([*map(named_topic, named)])


def _followers(
    count: int,
    words: Sequence[str],
    url: str,
    public: str,
    configuration: Configuration,
    token: str,
) -> dict[str, Beside]:
    """So many servers to run beside the one at `url`, on the ports after that of its clients;
    `token` makes them the server itself."""
    port, directory = urlsplit(public).port or 0, Path(configuration.data_directory)
    found = {}
    for number in range(1, count + 1):
        own = [sys.executable, "-m", "sow.cli", "serve", *words, "--follow", url]
        own += ["--host", configuration.host, "--port", str(port + number)]
        own += ["--data-dir", str(directory / "followers" / str(number)), "--until-input-ends"]
        found[f"follower {number}"] = Beside(own, token, is_server=True, pause_s=FOLLOWER_PAUSE_S)
    return found


def _words(
    config: str, named: Sequence[str], variables: Mapping[str, str], insecure: bool
) -> list[str]:
    """The words of a command line that say the same to another process."""
    words = [config] if config else [word for one in named for word in ("--topic", one)]
    words += [word for each in variables.items() for word in ("--set", "=".join(each))]
    return [*words, "--insecure"] if insecure else words


def _bare(ctx: click.Context, config: str, upstream: str | None) -> str:
    """The configuration of a chained server for which there is no file."""
    is_given = ctx.get_parameter_source("config") is not ParameterSource.DEFAULT
    return "" if upstream is None or is_given or Path(config).exists() else NOTHING_CONFIGURED


def _chained(
    ctx: click.Context,
    given: dict[str, Any],
    upstream: str | None,
    token: str | None,
    follow: str | None,
) -> tuple[str, str] | None:
    """The upstream of a chained server and the token for it. It keeps nothing that outlives it."""
    if upstream is None:
        return None
    if follow is not None:
        raise click.UsageError(
            "a server with --follow has the records, and one with --upstream has none: give one"
        )
    scratch = tempfile.TemporaryDirectory(prefix="sow-chained-")
    given["data_directory"] = ctx.with_resource(scratch)
    return checked_url(upstream), token or ""


def without_records(configuration: Configuration) -> Configuration:
    """What of a configuration counts for a chained server: its upstream has the rest."""
    return dataclasses.replace(configuration, topics=(), pipelines=(), journal=JournalSettings())


def _may_listen(configuration: Configuration, place: str, insecure: bool) -> bool:
    """Whether the server may listen there; reports a problem of `place`, if there is one."""
    wrong = exposed(configuration.host, configuration.security)
    if wrong is None:
        return True
    text = f"warning: {wrong[0]}" if insecure else f"error: {wrong[0]}; {wrong[1]}"
    click.echo(f"{place}: {text}", err=True)
    return insecure


def _announce(configuration: Configuration, url: str) -> None:
    topics, directory = len(configuration.topics), configuration.data_directory
    show(
        {"url": url, "topics": topics, "data_directory": directory},
        f"sow: listening on {url} ({topics} topics, data in {directory})",
    )
    sys.stdout.flush()


async def serve_until_stopped(
    configuration: Configuration,
    make: Callable[[Configuration, Follower | None], Server],
    ready: Ready,
    edges: Edges,
    upstream: Upstream | None = None,
) -> bool:
    """Serve until SIGTERM or SIGINT; returns whether stopping finished in time. SIGHUP reads the
    configuration again. If there are `edges`, these have the clients. With `upstream` that server
    is followed, and this one, made by `make`, starts again where that is necessary to go on.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    lines = server_log.begin(sys.stderr.write, lambda: server.configuration.server_log)
    try:
        while True:
            follower = upstream and Follower(upstream, configuration, LogClock())
            server = make(configuration, follower)
            is_over = None if follower is None else follower.is_over
            in_time = await _serve(server, stop, ready, edges, is_over)
            if stop.is_set() or not in_time:
                return in_time
            # At the same address as before, which the system may have chosen.
            configuration = dataclasses.replace(configuration, port=server.port)
    finally:
        server_log.end(lines)


async def _serve(
    server: Server,
    stop: asyncio.Event,
    ready: Ready,
    edges: Edges,
    is_over: asyncio.Event | None = None,
) -> bool:
    """Serve until `stop` or until it `is_over`; returns whether stopping finished in time."""
    tasks: set[asyncio.Task[None]] = set()
    others: list[KeptRunning] = []

    def reload() -> None:
        for one in others:
            one.signal(signal.SIGHUP)
        task = asyncio.create_task(_reload(server))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    notify = notify_of(os.environ)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    # A follower waits for its primary where it has nothing to start with.
    if not await _done_unless(stop, server.open()):
        return True
    address = server.address
    notify.starting(server.startup_status)
    if not await _done_unless(stop, server.restore()):
        notify.stopping()
        return True
    async with supervised(edges.beside(address), log.warning) as started:
        others += started
        if await _done_unless(stop, edges.listening()):
            public = edges.url(address)
            notify.ready(f"serving at {public}")
            beside_it = ready(address, public)
            async with supervised(beside_it, log.warning, server.board.note, server.board.offer):
                await _first_of(stop, is_over)
                if stop.is_set():
                    notify.stopping()
    try:
        await asyncio.wait_for(server.stop(), STOP_S_MAX)
    except TimeoutError:
        return False
    return True


async def _first_of(stop: asyncio.Event, is_over: asyncio.Event | None) -> None:
    """Wait for one of them."""
    waiting = [asyncio.ensure_future(one.wait()) for one in (stop, is_over) if one is not None]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


async def _done_unless(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Run work unless `stop` comes before its end; returns whether it finished."""
    doing, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
    doing.cancel()
    stopping.cancel()
    try:
        await doing
    except asyncio.CancelledError:
        return False
    return True


async def _reload(server: Server) -> None:
    """Handle SIGHUP. A mistake in the file does not stop the server; the log names every reason why
    nothing changed: the file, a long start, a stop."""
    with contextlib.suppress(SowError):
        await server.reload()


Send = Callable[[bytes], object]

STARTING_EVERY_S = 5.0
"""Interval at which a start requests more time: that of the log's progress lines."""
STARTING_MORE_US = 30_000_000
"""The time requested: six intervals, so that one late request does no harm."""


def sender(address: str) -> Send:
    """Sends datagrams to the socket at an address; a missing socket is no error."""
    place = "\0" + address[1:] if address.startswith("@") else address

    def send(message: bytes) -> None:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end,
        ):
            end.setblocking(False)  # the server never waits for its supervisor
            end.sendto(message, place)

    return send


def notify_of(environment: Mapping[str, str], process_id: int | None = None) -> "Systemd":
    """Notifications as the environment of this process requests them."""
    address = environment.get("NOTIFY_SOCKET", "")
    wanted = environment.get("WATCHDOG_USEC", "")
    own = str(os.getpid() if process_id is None else process_id)
    # The watchdog may be meant for another process than this one.
    mine = environment.get("WATCHDOG_PID", own) == own
    watchdog_us = int(wanted) if mine and wanted.isascii() and wanted.isdigit() else 0
    return Systemd(sender(address) if address else None, watchdog_us)


class Systemd:
    """Sends notifications by `send`, if there is one; `watchdog_us` is the silence in microseconds
    after which systemd kills the process, 0 for none."""

    def __init__(self, send: Send | None, watchdog_us: int = 0) -> None:
        self._send = send
        # Half of it, as sd_watchdog_enabled(3) advises: one late message is no failure.
        self._alive_every_s = watchdog_us / 2_000_000
        self._timer: asyncio.TimerHandle | None = None

    def starting(self, progress: Callable[[], str]) -> None:
        """Report the progress of the start, now and until it is over."""
        self._notify(f"STATUS={_line(progress())}", f"EXTEND_TIMEOUT_USEC={STARTING_MORE_US}")
        self._later(STARTING_EVERY_S, lambda: self.starting(progress))

    def ready(self, status: str) -> None:
        """Report that the server serves, and from now on that it is alive."""
        self._notify("READY=1", f"STATUS={_line(status)}")
        self._alive()

    def _alive(self) -> None:
        self._cancel()
        if self._alive_every_s:
            self._notify("WATCHDOG=1")
            self._later(self._alive_every_s, self._alive)

    def stopping(self) -> None:
        """Report that the server stops; the last notification."""
        self._cancel()
        self._notify("STOPPING=1", "STATUS=stopping")

    def _notify(self, *assignments: str) -> None:
        if self._send is not None:
            self._send("\n".join(assignments).encode())

    def _later(self, after_s: float, what: Callable[[], None]) -> None:
        self._cancel()
        if self._send is not None:
            self._timer = asyncio.get_running_loop().call_later(after_s, what)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _line(text: str) -> str:
    """One line: the next one would be another assignment."""
    return " ".join(text.split())
