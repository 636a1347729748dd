"""`sow demo`: a server, a market and its conflated topics in one terminal.

The server runs in this process, the market in another one that publishes over the network as a real
feed would. The view shows updates in and out per second of each topic, the savings of conflation,
and the records of a conflated topic as a real subscriber receives them.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from threading import Thread
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sow.cli.commands.pipeline import beside
from sow.cli.measuring import RATE_COLUMNS, Look, TopicRates, activity
from sow.cli.options import command
from sow.cli.output import as_json, json_text
from sow.cli.supervision import Beside, pipeline_words, supervised
from sow.cli.tables import Column, figures
from sow.client import Client
from sow.config import require, review
from sow.core.addresses import LOOPBACK
from sow.core.definitions import Configuration
from sow.errors import ClientError, SowError
from sow.server.api.topics import describe_topic
from sow.server.boot.app import Server

CONFIG = "demo.xml"
"""The demo's configuration, a file of the package."""
FOLLOWED = "quotes-C"
SHOWN = ("quotes", "quotes-fast", "quotes-C", "orders", "orders-C", "orders-open", "bars")
OPENED = "#/slider/quotes?interval=1s"
"""The page of the console that shows the demo."""
REFRESH_S = 1.0
"""Redraw interval: the figures are rates per second."""
QUOTE_COLUMNS = (
    Column("symbol"),
    Column("bid", is_number=True),
    Column("ask", is_number=True),
    Column("ts"),
)
RATE = 4000.0
"""Messages per second: about the median of the recorded feed (docs/recorded-data.md)."""


@command("sow demo", "sow demo --rate 500 --port 0")
@click.option("--rate", type=click.FloatRange(1), default=RATE, show_default=True,
              metavar="N", help="Mean messages per second; they come in bursts.")  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Do not open the console in a browser.")
@click.option("--seconds", type=click.FloatRange(0), default=0.0, metavar="S",
              help="Stop this long after the feed began; 0: at Ctrl-C.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True,
              metavar="P", help="Port to listen on; 0 for any free one.")  # fmt: skip
@click.option("--config", type=click.Path(), default=None,
              help="Another configuration with the topics quotes and orders.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the market.")
async def demo(
    rate: float, no_browser: bool, seconds: float, port: int, config: str | None, seed: int
) -> None:
    """Run a server with a live market and show what conflation does."""
    browses = not (no_browser or as_json()) and sys.stdout.isatty()
    with as_file(files("sow.cli") / CONFIG) as shipped:
        await _demo(config or str(shipped), rate, seconds, port, seed, browses)


async def _demo(
    path: str, rate: float, seconds: float, port: int, seed: int, browses: bool
) -> None:
    configuration = require(path, environment=os.environ)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with tempfile.TemporaryDirectory(prefix="sow-demo-") as data_directory:

        def as_demo(read: Configuration) -> Configuration:
            # A demo serves its own machine, whatever address the file has.
            return replace(read, host=LOOPBACK, port=port)

        server = Server(
            as_demo(configuration),
            Path(data_directory),
            reread=lambda: as_demo(require(path, environment=os.environ)),
            look=lambda: review(path, environment=os.environ),
        )
        url = await server.start()
        if not as_json():
            click.echo(f"sow: the console is at {url}/")
        if browses:
            # Some browsers block the process that starts them.
            Thread(target=open_page, args=(f"{url}/{OPENED}", os.environ), daemon=True).start()
        try:
            commands = {
                name: Beside(pipeline_words(name, path, url, Path(data_directory), {}))
                for name in beside(configuration)
                if not as_json()
            }
            async with (
                _feed(url, rate, seed, stop.set),
                supervised(
                    commands, lambda text: click.echo(f"sow: {text}", err=True), server.board.note
                ),
                Client(url, name="sow demo") as client,
            ):
                await _watch(DemoScreen(server, url, as_json()), client, seconds, stop)
        finally:
            await server.stop()


@asynccontextmanager
async def _feed(url: str, rate: float, seed: int, ended: Callable[[], None]) -> AsyncIterator[None]:
    """Run a market feed in a process of its own while this context is open.

    The demo needs the feed: when it ends by itself `ended` is called, and leaving the context
    raises ClientError with its error output.
    """
    arguments = ("-m", "sow.cli.market", url, str(rate), str(seed))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to the demo, which then ends it
    )

    async def follow() -> str:
        _, output = await process.communicate()
        ended()
        return output.decode(errors="replace").strip()

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        by_itself = following.done()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        output = await following
    if by_itself:
        why = output.splitlines()[-1] if output else f"it ended with code {process.returncode}"
        raise ClientError(f"the market feed stopped: {why}")


async def _watch(screen: "DemoScreen", client: Client, seconds: float, stop: asyncio.Event) -> None:
    """Refresh the screen every second until `stop` or, unless `seconds` is 0, until so many have
    passed since the feed began; the start of the feed does not count."""
    ending: asyncio.TimerHandle | None = None
    follower = asyncio.create_task(screen.follow(client))
    with screen.open() as show:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), REFRESH_S)
            show()
            if seconds and ending is None and screen.has_begun:
                ending = asyncio.get_running_loop().call_later(seconds, stop.set)
    if ending is not None:
        ending.cancel()
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)


class DemoScreen:
    """The demo's view of `server` at `url`: a live page in a terminal, else a line of figures each
    second, as JSON with `as_json`."""

    def __init__(self, server: Server, url: str, as_json: bool) -> None:
        self._server = server
        self._url = url
        self._as_json = as_json
        self._records: dict[str, Any] = {}
        self._delivered = 0
        self._before = self._look()
        self._last: list[TopicRates] = []

    @property
    def has_begun(self) -> bool:
        """Mark that the feed has published."""
        return any(topic.updates for topic in self._server.engine.topics.values())

    async def follow(self, client: Client) -> None:
        """Subscribe to a conflated topic and keep its records."""
        try:
            async with client.sow_and_subscribe(FOLLOWED, oof=True) as subscription:
                async for message in subscription:
                    if message.c in ("sow", "p"):
                        self._delivered += message.c == "p"
                        self._records[message.k or ""] = message.document()
                    elif message.c == "oof":
                        self._records.pop(message.k or "", None)
        except SowError as error:
            click.echo(f"sow: cannot follow {FOLLOWED}: {error.detail}", err=True)

    @contextlib.contextmanager
    def open(self) -> Iterator[Callable[[], None]]:
        """Yields the function to call at each refresh."""
        if not sys.stdout.isatty() or self._as_json:
            yield self._print
            if self._as_json:
                topics = [one.document() for one in self._last]
                click.echo(json_text({"url": self._url, "topics": topics}))
            return
        with Live(console=Console(), auto_refresh=False, screen=False) as live:

            def show() -> None:
                live.update(self._page(self._rates(), live.console), refresh=True)

            show()
            yield show

    def _print(self) -> None:
        self._last = self._rates()
        if not self._as_json:
            parts = [one.sentence() for one in self._last if one.kind == "conflated"]
            click.echo(f"{self._url}  " + "  ".join(parts))

    def _look(self) -> Look:
        """The figures that the server would report over HTTP for the shown topics."""
        now_us, topics = self._server.runtime.now_us(), self._server.engine.topics
        described = [describe_topic(topics[name], now_us) for name in SHOWN if name in topics]
        return Look(now_us / 1e6, described, (), None)

    def _rates(self) -> list[TopicRates]:
        """The rates since the last call."""
        before, self._before = self._before, self._look()
        return activity(before, self._before).topics

    def _page(self, rates: list[TopicRates], console: Console) -> Group:
        """As many quotes as fit, leaving room for the commands to try."""
        hints, width = self._hints(), console.width
        hinted = sum(1 + (len(line) - 1) // width for line in hints.splitlines())
        # Two headings, those of the tables, two blank lines, and the cursor's line.
        room = max(1, console.height - len(rates) - hinted - 7)
        quotes = sorted(self._records.values(), key=lambda quote: str(quote["symbol"]))[:room]
        followed = f"{FOLLOWED} as a subscriber sees it: {self._delivered:,} updates so far"
        return Group(
            _heading(f"SOW demo  {self._url}"),
            figures(RATE_COLUMNS, [one.row() for one in rates], width),
            Text(""),
            _heading(followed),
            figures(QUOTE_COLUMNS, [*map(_quote, quotes)], width),
            Text(""),
            Text(hints, style="dim"),
        )

    def _hints(self) -> str:
        return (
            f"console: {self._url}/\n"
            f"sow watch quotes-C --url {self._url}\n"
            f"curl '{self._url}/v1/topics/quotes-C/records?top_n=3'\n"
            "Ctrl-C stops the demo and removes its data."
        )


def _heading(text: str) -> Text:
    return Text(text, style="bold", no_wrap=True, overflow="ellipsis")


def _quote(record: Mapping[str, Any]) -> dict[str, str]:
    prices = {side: f"{record[side]:.2f}" for side in ("bid", "ask")}
    return {"symbol": record["symbol"], **prices, "ts": record["ts"][11:23]}


DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
"""Variables that name the display of X11 or Wayland."""
WITH_DISPLAY = ("darwin", "win32")


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether there is a display to show a page on."""
    return platform in WITH_DISPLAY or any(environment.get(name) for name in DISPLAYS)


def open_page(
    url: str,
    environment: Mapping[str, str],
    platform: str = sys.platform,
    browse: Callable[[str], bool] = webbrowser.open,
) -> bool:
    """Open a page if there is a display; returns whether the browser started."""
    if not has_display(environment, platform):
        return False
    try:
        return browse(url)
    except (webbrowser.Error, OSError):
        return False
