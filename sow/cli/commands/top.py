"""`sow top`: shows what a server is doing, second by second.

In a terminal it draws a page in place, sorted by the key pressed; elsewhere it writes a line per
tick, like `redis-cli --stat`. If the server goes away it waits for it.

Requests cost the server time too, above all with very many topics. So the topics of a pattern count
as one, without figures of single ones, and ticks get longer as answers get slower, so that answers
take at most a tenth of the time.
"""

import asyncio
import contextlib
import os
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from http import HTTPStatus

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sow.cli.commands.admin import columns_for, listed, session_row
from sow.cli.connecting import server_command
from sow.cli.measuring import (
    NODE_COLUMNS,
    RATE_COLUMNS,
    SORTS,
    Activity,
    Look,
    Memory,
    activity,
    node_row,
    ordered,
    scraped,
)
from sow.cli.output import as_json, json_text, printable
from sow.cli.tables import figures, terminal_console
from sow.client import Client, Disconnected, Unreachable
from sow.client.http import understood
from sow.core.humanize import duration
from sow.errors import SowError

ASKING_MAX = 0.1
"""The share of time that answers may take, so that watching a server is always cheap."""
INTERVAL_S = 1.0
"""The shortest tick: rates are per second."""
SLOW_SHOWN = 5
"""Slow sessions to show; `sow sessions` lists all."""
NODES_SHOWN = 10
"""Nodes to show; `--json` has all."""
STYLES = {
    "red": "bold white on red", "orange": "bold black on dark_orange",
    "yellow": "bold black on yellow", "green": "bold black on green",
    "blue": "bold white on blue", "grey": "bold white on grey37",
}  # fmt: skip
"""How the colours of an environment look."""
LAG_MS = 1000
"""A session this far behind is highlighted: users notice the lag."""
LINE = ("time", "in/s", "lag", "queue", "sessions", "longest step", "first topic")
WIDTHS = (9, 10, 8, 9, 9, 13, 0)
STEPS = "sow_step_longest_seconds"
MEMORY = (
    "sow_queue_memory_bytes", "sow_queue_memory_limit_bytes",
    "sow_group_memory_bytes", "sow_group_memory_limit_bytes",
)  # fmt: skip
FULL = 0.9
"""From this part on memory is highlighted: the next thing is that clients lose by it."""
KEYS = {name[0]: name for name in SORTS if name != "records"} | {"c": "records"}
"""Sort options by key; r is the ratio."""


@server_command("sow top", "sow top --sort ratio", "sow top --json --count 1")
@click.option(
    "--sort",
    type=click.Choice(list(SORTS)),
    default="in",
    show_default=True,
    help="Sort order of topics; in a terminal keys change it.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=INTERVAL_S,
    show_default=True,
    metavar="S",
    help="Seconds of a tick.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N ticks.")
async def top(client: Client, sort: str, interval: float, count: int | None) -> None:
    """Show what a server is doing: rates, conflation, waiting messages, slow sessions.

    In a terminal a page until q or Ctrl-C; elsewhere, and with --json, a line each tick.
    """
    screen = TopScreen(client.url, sort, as_json())
    with screen.open(), keys(screen.press):
        shown = 0
        async for now in _ticks(client, interval, screen):
            screen.show(now)
            shown += 1
            if shown == count:
                return


async def _ticks(client: Client, interval_s: float, screen: "TopScreen") -> AsyncIterator[Activity]:
    began_s = time.monotonic()
    before = await _look(client)
    while True:
        took_s = time.monotonic() - began_s
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(screen.ended.wait(), pause_s(took_s, interval_s))
            return
        began_s = time.monotonic()
        try:
            now = await _look(client)
        except (Unreachable, Disconnected) as error:
            if not screen.waits:
                raise
            screen.show_away(error.detail)
        else:
            with understood(client.http.url):
                found = activity(before, now)
            yield found
            before = now


def pause_s(took_s: float, interval_s: float) -> float:
    """The pause before the next snapshot, after one that took this long."""
    return max(took_s / ASKING_MAX, interval_s) - took_s


async def _look(client: Client) -> Look:
    at_s = time.monotonic()
    topics = await listed(client, every=False)
    sessions = await client.http.json("GET", "/v1/sessions", kind=list)
    status = await _status(client)
    known = await scraped(client)
    if known is None:
        return Look(at_s, topics, sessions, None, status=status)
    sizes = [known[name][""] for name in MEMORY if name in known]
    memory = Memory(*sizes) if len(sizes) == len(MEMORY) else None
    return Look(at_s, topics, sessions, known.get(STEPS, {}), memory, status)


async def _status(client: Client) -> dict[str, object] | None:
    """What the server is; None if it is of an earlier version, which has no such address."""
    try:
        found: dict[str, object] = await client.http.json("GET", "/v1/status", kind=dict)
    except SowError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    return found


class TopScreen:
    """The view of the server at `url`: a page in a terminal, else a line per tick."""

    def __init__(
        self, url: str, sort: str, as_json: bool = False, console: Console | None = None
    ) -> None:
        self.ended = asyncio.Event()
        """End the command."""
        self._url = url
        self._sort = sort
        self._as_json = as_json
        self._console = console or terminal_console()
        self._live: Live | None = None
        self._last: Activity | None = None
        self._headed = False
        self._away: str | None = None

    @property
    def waits(self) -> bool:
        """Whether a user can see that the server is away."""
        return self._live is not None

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Draw while this context is open."""
        if self._as_json or not self._console.is_terminal:
            yield
            return
        waiting = Text(f"sow top  {self._url}: the first figures come after one tick", style="dim")
        with Live(waiting, console=self._console, auto_refresh=False, screen=True) as self._live:
            yield
        # Leave the last page on the screen.
        if self._last is not None:
            self._console.print(self.page(self._last))

    def press(self, key: str) -> None:
        """Handle a pressed key."""
        if key == "q":
            self.ended.set()
        elif key in KEYS:
            self._sort = KEYS[key]
            if self._last is not None:
                self._draw()

    def show(self, now: Activity) -> None:
        """Draw, or write, what happened."""
        self._last, self._away = now, None
        if self._live is not None:
            self._draw()
        elif self._as_json:
            click.echo(json_text(now.document()))
        else:
            self._print(now)

    def show_away(self, why: str) -> None:
        """The server does not answer: say so above the last figures."""
        self._away = why
        self._draw()

    def _draw(self) -> None:
        if self._live is not None:
            page = (
                Text(printable(self._away or "")) if self._last is None else self.page(self._last)
            )
            self._live.update(page, refresh=True)

    def page(self, now: Activity) -> RenderableType:
        """The page, cut to the screen."""
        console, slow = self._console, now.slow[:SLOW_SHOWN]
        parts: list[RenderableType] = [self._heading(now), Text("")]
        below: list[RenderableType] = [Text(""), self._slow(now)] if slow else []
        nodes = now.nodes[:NODES_SHOWN]
        if nodes:
            rows = [*map(node_row, nodes)]
            below += [Text(""), figures(NODE_COLUMNS, rows, console.width)]
        # The heading, the table's own, the line of keys, and those of slow sessions and nodes.
        lines = sum(len(some) + 2 for some in (slow, nodes) if some)
        room = max(1, console.height - 5 - lines)
        topics = ordered(now.topics, self._sort)
        rows = [one.row() for one in topics[:room]]
        parts += [figures(RATE_COLUMNS, rows, console.width), *below]
        left = len(topics) - len(rows)
        parts.append(self._keys(f"{left:,} more; " if left else ""))
        return Group(*parts)

    def _heading(self, now: Activity) -> Text:
        text = Text(f"sow top  {self._url}", no_wrap=True, overflow="ellipsis")
        if now.status is not None:
            text.append(f"  {printable(str(now.status['name']))}")
            if (environment := now.status.get("environment")) is not None:
                text.append("  ")
                style = STYLES.get(str(now.status.get("colour")), "bold")
                text.append(f" {printable(str(environment))} ", style=style)
        text.append("\n")
        if self._away is not None:
            text.append(f"away; waiting for it: {printable(self._away)}", style="bold red")
            return text
        away = f" ({now.away:,} away)" if now.away else ""
        text.append(f"in {now.in_per_s:,.0f}/s  sessions {now.sessions:,}{away}  ")
        late = "bold red" if now.lag_ms >= LAG_MS else ""
        text.append(f"lag {duration(now.lag_ms / 1000)}  queue {now.queued:,}", style=late)
        if now.memory is not None:
            memory, of = now.memory, ""
            if now.largest is not None:
                part = now.largest["client_bytes"] / max(1.0, memory.queues_max)
                of = f" ({printable(now.largest['client'] or now.largest['id'])} {part:.0%})"
            full = "bold red" if max(memory.queues_part, memory.groups_part) >= FULL else ""
            parts = f"queues {memory.queues_part:.0%}{of} groups {memory.groups_part:.0%}"
            text.append(f"  memory: {parts}", style=full)
        if now.longest is not None:
            step, took_s = now.longest
            text.append(f"  longest step {duration(took_s)} ({step})", style="dim")
        return text

    def _slow(self, now: Activity) -> Table:
        shown = now.slow[:SLOW_SHOWN]
        styles = ["bold red" if one["lag_ms"] >= LAG_MS else "" for one in shown]
        rows = [*map(session_row, shown)]
        return figures(columns_for(rows), rows, self._console.width, styles)

    def _keys(self, before: str) -> Text:
        named = " ".join(f"{key}={name}" for key, name in KEYS.items())
        text = f"{before}by {self._sort}; sort: {named}; q ends"
        return Text(text, style="dim", no_wrap=True, overflow="ellipsis")

    def _print(self, now: Activity) -> None:
        """A line with the total of all topics, and the first one."""
        if not self._headed:
            self._headed = True
            click.echo(_line(LINE))
        longest = "" if now.longest is None else duration(now.longest[1])
        first = next(iter(ordered(now.topics, self._sort)), None)
        busiest = "" if first is None else printable(first.sentence())
        cells = (
            time.strftime("%H:%M:%S"), f"{now.in_per_s:,.0f}", duration(now.lag_ms / 1000),
            f"{now.queued:,}", f"{now.sessions:,}", longest, busiest,
        )  # fmt: skip
        click.echo(_line(cells))


def _line(cells: Sequence[str]) -> str:
    """Cells below each other, whatever the figures."""
    return " ".join(map(str.ljust, cells, WIDTHS)).rstrip()


@contextlib.contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Call `pressed` with each key, on the running loop; Ctrl-C keeps its meaning."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        for key in os.read(descriptor, 64).decode(errors="ignore"):
            pressed(key)

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, read)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
