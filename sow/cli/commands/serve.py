"""`sow serve`: runs a server until a signal stops it, and reports its state to systemd.

A server needs no file where its options say enough: the topics of --topic are one, and what
--follow and --upstream lead to has everything else. The folder of its data may be the user's own,
though, so one that holds something else is left alone.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from sow.cli.commands.init import DATA_DIRECTORY, starter_of
from sow.cli.commands.pipeline import beside, run_by_spark
from sow.cli.options import command, run, variables_option
from sow.cli.output import show
from sow.cli.supervision import (
    EDGES_MAX,
    Beside,
    Edges,
    KeptRunning,
    end_with_input,
    notify_of,
    pipeline_words,
    stopped,
    supervised,
)
from sow.client.connector import ClientAuth, checked_url
from sow.config import Loaded, Reviewed, exposed, load, loads, require, review
from sow.core.async_tasks import end_all, within
from sow.core.clock import LogClock
from sow.core.definitions import Configuration
from sow.errors import ClientError, SowError, StoreError
from sow.security.authentication.tokens import new_token
from sow.server.api.nodes import Upstream
from sow.server.boot.app import Machine, Server
from sow.server.boot.followed_directory import OWN_FOLDERS
from sow.server.boot.follower import Follower
from sow.server.boot.http_server import answering, listening
from sow.server.boot.log_follower import LogFollower
from sow.server.boot.log_member import LogMember
from sow.server.boot.routes import without_records
from sow.server.http import server_log
from sow.server.http.connections import read_tls
from sow.server.loop.runtime import LOOPS, loop_factory
from sow.store.manifest import MANIFEST_FILE

log = logging.getLogger("sow.serve")

STOP_S_MAX = 5.0
"""Time for stopping: less than the ten seconds after which Docker kills a container."""

FOLLOWERS_MAX = 256
"""More than any machine has cores."""
FOLLOWER_PAUSE_S = 0.2
"""Delay before a follower that has ended is started again: its clients go to the others."""

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
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="With --topic: pages of this address may use the server, such as "
    "http://localhost:5173; repeated.",
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
    help="For --follow, and for a node of a shared log, of a user with Admin and Read of "
    "everything; for --upstream, of one with Impersonate, who acts for the clients; or set "
    "SOW_TOKEN.",
)
@click.option(
    "--ca",
    envvar="SOW_CA",
    metavar="FILE",
    help="For --follow, --upstream and nodes of a shared log with https://: certificates of "
    "trusted authorities, in PEM form; or set SOW_CA.",
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
def serve(ctx: click.Context, /, **given: Any) -> None:
    """Run the server that CONFIG (config.xml) describes, or a server with the topics of --topic.

    Writes one line when it is ready: all records are loaded. Until then requests wait, and a long
    start reports its progress. SIGTERM or Ctrl-C stops it cleanly, at any time; SIGHUP reads CONFIG
    again and applies what can be changed, or reports why it does not.

    With --upstream it keeps no records: of CONFIG its topics and its log do not count. With --edges
    it keeps the records, and so many chained servers have its clients.
    """
    options = ServeOptions(**given)
    above = server_above(
        options.upstream, options.follow, options.token, options.ca, options.until_input_ends
    )
    chained, followed = (None, above) if options.follow else (above, None)
    is_given = ctx.get_parameter_source("config") is ParameterSource.COMMANDLINE
    text = starter_of(options.config, is_given, options.named, above is not None, options.origins)
    directory = options.data_dir
    if chained is not None:  # what it stores does not outlive it
        directory = ctx.with_resource(tempfile.TemporaryDirectory(prefix="sow-chained-"))
    check_folder(text, directory)
    loaded = loads(text, "--topic") if text else load(*options.file)
    for finding in loaded.findings:
        click.echo(finding.labelled, err=True)
    if loaded.configuration is None:
        ctx.exit(1)
    source = ConfigurationSource(options, text, loaded, directory)
    if not source.may_listen():
        ctx.exit(1)

    if options.until_input_ends:
        end_with_input()
    own_token = new_token()
    edges = Edges(options.edges, source.configuration, source.words(), own_token)
    ctx.call_on_close(edges.close)
    servers = Servers(options, source, edges, chained, own_token)
    make_loop = loop_factory(options.loop_wanted)
    serving = serve_until_stopped(
        source.configuration,
        servers.make,
        servers.ready,
        edges,
        followed,
        Upstream("", options.token or "", ClientAuth(ca=options.ca).context()),
    )
    run(stopped(serving, STOP_S_MAX), make_loop)


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """The command line, by the parameters of `serve`."""

    config: str
    named: tuple[str, ...]
    origins: tuple[str, ...]
    variables: dict[str, str]
    host: str | None
    port: int | None
    data_dir: str | None
    insecure: bool
    allow_loss: bool
    follow: str | None
    upstream: str | None
    token: str | None
    ca: str | None
    followers: int
    edges: int
    until_input_ends: bool
    no_pipelines: bool
    loop_wanted: str | None

    @property
    def file(self) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
        """What reads CONFIG: its path, and the variables in it."""
        return self.config, self.variables, os.environ


class ConfigurationSource:
    """The configuration of a server: of CONFIG, or of the `text` that stands for it, as `loaded`
    first. Options of the command line stay in force whenever it is read again."""

    def __init__(
        self, options: ServeOptions, text: str, loaded: Loaded, directory: str | None
    ) -> None:
        self._options = options
        self._text = text
        self._loaded = loaded
        given = {"host": options.host, "port": options.port, "data_directory": directory}
        self._given: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        assert loaded.configuration is not None
        self.configuration = self._as_given(loaded.configuration)

    def _as_given(self, configuration: Configuration) -> Configuration:
        if self._options.upstream is not None:
            # Chained servers of --edges have the file of their upstream, which applies it.
            applies = self._options.until_input_ends
            configuration = without_records(configuration, applies)
        return dataclasses.replace(configuration, **self._given)

    def reread(self) -> Configuration:
        """The configuration as it is now; raises ConfigError."""
        return self.configuration if self._text else self._as_given(require(*self._options.file))

    def look(self) -> Reviewed:
        """Its text as it is now, with what is wrong in it."""
        if self._text:
            return Reviewed("--topic", self._text, self._loaded.checked.findings)
        return review(*self._options.file)

    def words(self) -> list[str]:
        """The words of a command line that say the same to another process."""
        words = [] if self._text else [self._options.config]
        words += [word for one in self._options.named for word in ("--topic", one)]
        words += [word for one in self._options.origins for word in ("--origin", one)]
        pairs = map("=".join, self._options.variables.items())
        words += [word for pair in pairs for word in ("--set", pair)]
        return [*words, "--insecure"] if self._options.insecure else words

    def may_listen(self) -> bool:
        """Whether the server may listen where it says; reports a problem, if there is one."""
        wrong = exposed(self.configuration.host, self.configuration.security)
        if wrong is None:
            return True
        exposure, insecure = self._loaded.exposure, self._options.insecure
        place = "--host" if self._options.host or exposure is None else exposure.place
        text = f"warning: {wrong[0]}" if insecure else f"error: {wrong[0]}; {wrong[1]}"
        click.echo(f"{place}: {text}", err=True)
        return insecure


class Servers:
    """Makes the server, as often as it has to start again, and what runs beside it."""

    def __init__(
        self,
        options: ServeOptions,
        source: ConfigurationSource,
        edges: Edges,
        chained: Upstream | None,
        own_token: str,
    ) -> None:
        self._options = options
        self._source = source
        self._edges = edges
        self._chained = chained
        self._own_token = own_token

    def make(
        self,
        configuration: Configuration,
        follower: Follower | LogFollower | None,
        machine: Machine = Machine(),  # noqa: B008
        kind: Callable[..., Server] = Server,
    ) -> Server:
        """A server of this configuration; `follower` follows another one."""
        return kind(
            self._edges.inside(configuration),
            Path(configuration.data_directory),
            reread=lambda: self._edges.inside(self._source.reread()),
            allow_loss=self._options.allow_loss,
            own_token=self._own_token,
            look=self._source.look,
            follower=follower,
            upstream=self._chained,
            shares_port=self._options.until_input_ends and self._chained is not None,
            machine=machine,
        )

    def ready(self, url: str, public: str) -> dict[str, Beside]:
        """The server at `url` serves, its clients at `public`: what to run beside it."""
        options, configuration = self._options, self._source.configuration
        _announce(configuration, public)
        directory = Path(configuration.data_directory)
        by_server = {topic.name for topic in run_by_spark(configuration)}
        no_pipelines = options.no_pipelines or options.follow is not None
        running = {
            name: Beside(
                pipeline_words(name, options.config, url, directory, options.variables),
                self._own_token if name in by_server else None,
            )
            for name in ([] if no_pipelines else beside(configuration))
        }
        return running | _followers(
            options.followers, self._source.words(), url, public, configuration, self._own_token
        )


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


def _announce(configuration: Configuration, url: str) -> None:
    topics, directory = len(configuration.topics), configuration.data_directory
    with contextlib.suppress(OSError):  # nobody reads it, or it is a file on a full disk
        show(
            {"url": url, "topics": topics, "data_directory": directory},
            f"sow: listening on {url} ({topics} topics, data in {directory})",
        )
        sys.stdout.flush()


async def serve_until_stopped(
    configuration: Configuration,
    make: Callable[..., Server],
    ready: Ready,
    edges: Edges,
    upstream: Upstream | None = None,
    peers: Upstream = Upstream(""),  # noqa: B008
) -> bool:
    """Serve until SIGTERM or SIGINT; returns whether stopping finished in time. SIGHUP reads the
    configuration again. If there are `edges`, these have the clients. With `upstream` that server
    is followed, and this one, made by `make`, starts again where that is necessary to go on: so
    does a node of a shared log when another one leads; it calls others as `peers` says.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _not_reloaded)
    server: Server | None = None
    lines = server_log.begin(
        sys.stderr.write,
        lambda: (configuration if server is None else server.configuration).server_log,
    )
    shares = configuration.shared_log.engine != "local" and upstream is None
    corrupts = os.environ.get("SOW_TEST_CORRUPT") == "1"
    member = LogMember(configuration, peers=peers, corrupts=corrupts) if shares else None
    try:
        while True:
            is_over = None
            try:
                if member is None:
                    follower = upstream and Follower(upstream, configuration, LogClock())
                    server = make(configuration, follower)
                    is_over = None if follower is None else follower.is_over
                else:
                    if not await _done_unless(stop, _joined(member, edges.inside(configuration))):
                        return True
                    server, is_over = member.server(make, configuration.port)
                in_time = await _serve(server, stop, ready, edges, is_over)
            except StoreError as error:
                if member is None or not await member.tries_again(error):
                    raise
                continue
            if stop.is_set() or not in_time:
                return in_time
            # At the same address as before, which the system may have chosen.
            configuration = dataclasses.replace(configuration, port=server.port)
    finally:
        if member is not None:
            await within(STOP_S_MAX, member.leave())
        server_log.end(lines)


async def _joined(member: LogMember, configuration: Configuration) -> None:
    """Wait until a node knows who leads, while requests get to know why they wait."""
    sockets = await listening(configuration, False)
    try:
        encryption = read_tls(configuration.security.tls).context
        async with answering(sockets, encryption, lambda: member.waits_for):
            await member.joined()
    finally:
        for one in sockets:
            one.close()


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
    notify.starting(server.startup_status)
    if not await _done_unless(stop, server.open()):
        return True
    address = server.address
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
                await (stop.wait() if is_over is None else _done_unless(stop, is_over.wait()))
                if stop.is_set():
                    notify.stopping()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _not_reloaded)
    return await within(STOP_S_MAX, server.stop())


def _not_reloaded() -> None:
    """Handle SIGHUP while there is no server, which by itself would end the process."""
    log.warning("not reloaded: the server is not there yet; send SIGHUP again once it is ready")


async def _done_unless(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Run work unless `stop` comes before its end; returns whether it finished."""
    doing, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not await end_all((doing, stopping)) or doing.cancelled():
        return False
    doing.result()
    return True


async def _reload(server: Server) -> None:
    """Handle SIGHUP. A mistake in the file does not stop the server; the log names every reason why
    nothing changed: the file, a long start, a stop."""
    with contextlib.suppress(SowError):
        await server.reload()


OF_FOLLOWERS = {*OWN_FOLDERS, "followers"}
"""What followers have in the folder."""


def check_folder(starter: str, data_directory: str | None) -> None:
    """Raise ClientError where a server without a file would keep its records among other things,
    since it was given no directory: a folder of this name often holds the user's own data."""
    directory = Path(DATA_DIRECTORY)
    if not starter or data_directory is not None or not directory.is_dir():
        return
    holds = {one.name for one in directory.iterdir()}
    if holds - OF_FOLLOWERS and MANIFEST_FILE not in holds:
        raise ClientError(
            f"the folder {DATA_DIRECTORY} here holds something else; choose where to keep "
            "records: --data-dir DIRECTORY"
        )


def server_above(
    upstream: str | None, follow: str | None, token: str | None, ca: str | None, is_beside: bool
) -> Upstream | None:
    """The server that has the records, or is followed. One that runs `is_beside` it trusts it, and
    its token is that server's own: a follower is let in by it, a chained server reports by it and
    shows what its clients show."""
    if upstream is not None and follow is not None:
        raise click.UsageError(
            "a server with --follow has the records, and one with --upstream has none: give one"
        )
    url = upstream or follow
    if url is None:
        return None
    found = Upstream(checked_url(url), token or "")
    if is_beside:
        return found if follow else found._replace(token="", report_token=found.token)
    return found._replace(encryption=ClientAuth(ca=ca).context())
