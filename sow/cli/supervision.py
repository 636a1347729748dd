"""Supervision: of what runs beside a server, each in its own process, and by systemd.

A pipeline runs at a lower priority so that it does not slow the server down. If Spark or Java is
missing, or the pipeline fails again and again, the server goes on without it.

A killed server stops no children. So it holds one end of a pipe, the standard input of each child
process, and writes nothing: when the server is gone, that input ends. The child then stops itself
as the server would stop it (`end_with_input`), and after a while is killed with its process group.
A restarted server finds no old child at work for long.

`Edges` are the chained servers of `sow serve --edges N`, on one port. The server itself listens on
a port of this machine that nobody else need know. The port of the configuration is held by a socket
that does not listen; N processes listen on it together (SO_REUSEPORT), so that the system shares
out the connections. Each of them is a chained server (docs/chained.md). One that ends is started
again, and all end with this process, however it ends.

`Systemd` reports the state of `sow serve` in the protocol of sd_notify(3). A service of
`Type=notify` finds a socket in NOTIFY_SOCKET. The server sends the progress of its start, with
requests for more time; that it is ready; that it is alive, as often as WATCHDOG_USEC demands; that
it stops. The event loop sends these messages, so a hanging loop sends none and systemd ends the
process, which loses nothing acknowledged. Without these variables nothing happens.

`stopped` ends the process where something goes on after the server's end.
"""

import asyncio
import contextlib
import dataclasses
import importlib.util
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, TypeVar

import click
import orjson

from sow.core.addresses import authority
from sow.core.async_tasks import end_all
from sow.core.definitions import Configuration
from sow.errors import ClientError, StoreError

NICE = 10
"""Half of the way to the lowest priority: a pipeline gets what the server leaves, and does not
starve."""
PAUSE_S = 2.0
"""Pause before the first retry of a failed pipeline; it doubles with each further one."""
PAUSE_S_MAX = 60.0
"""The longest pause, so that a pipeline notices a server that is back for a minute."""
FIGURES = {
    "rows_in": "rows_in",
    "rows_out": "rows_out",
    "rows_per_s": "rows_per_s",
    "behind": "lag",
    "behind_s": "lag_seconds",
}
"""Figures of a pipeline to record, and its names for them."""
HEALTHY_S = 60.0
"""A run that lasted this long ends a series of failures."""
STOP_S_MAX = 3.0
"""Time for a pipeline to stop, within that of `sow serve`. Killing one loses nothing: an incomplete
batch runs again."""

GATEWAY = "Java ended before Spark began"
OF_JAVA = re.compile(r"Exception in thread \S+ (.+)")
"""What Java says when it ends; Python does not get it."""

Result = TypeVar("Result")
OnFigures = Callable[[Mapping[str, Any]], None]
Report = Callable[[str], None]
Note = Callable[..., None]
"""Called with a pipeline's name and its figures by name: `Board` in `sow.server.api.admin`."""


Offer = Callable[[str, Callable[[int | None], int]], None]
"""Called with a pipeline's name and what restarts it; `Board` as well."""


def _unnoted(_name: str, **_known: object) -> None:
    """Record nothing."""


def _unoffered(_name: str, _restart: Callable[[int | None], int]) -> None:
    """Nobody restarts it."""


class Beside(NamedTuple):
    """A command line to run beside a server, and the token that makes it the server itself, or None
    for a pipeline that logs on like any client.

    With `is_server` it is no pipeline but a server too: it has the same priority, its log is that
    of this process, and it is started again however it has ended, `pause_s` later at first.
    """

    words: Sequence[str]
    token: str | None = None
    is_server: bool = False
    pause_s: float | None = None


def pipeline_words(
    name: str, config: str, url: str, data_directory: Path, variables: Mapping[str, str]
) -> list[str]:
    """The command line that runs a pipeline beside a server at `url`."""
    found = [sys.executable, "-m", "sow.cli", "pipeline", "run", name]
    found += ["--config", config, "--url", url, "--data-dir", str(data_directory)]
    found.append("--until-input-ends")
    for variable, value in variables.items():
        found += ["--set", f"{variable}={value}"]
    return found


@asynccontextmanager
async def supervised(
    commands: Mapping[str, Beside], report: Report, note: Note = _unnoted, offer: Offer = _unoffered
) -> AsyncIterator["list[KeptRunning]"]:
    """Keep these commands running, by name, while this context is open."""
    of_spark = [name for name, one in commands.items() if not one.is_server]
    if of_spark and importlib.util.find_spec("pyspark") is None:
        report(f"Spark is not installed, so these do not run: {', '.join(of_spark)}")
        for name in of_spark:
            note(name, state="failed", error="Spark is not installed")
        commands = {name: one for name, one in commands.items() if one.is_server}
    kept = [KeptRunning(name, one, report, note) for name, one in commands.items()]
    for one in kept:
        offer(one.name, one.restart)
    tasks = [asyncio.create_task(one.keep()) for one in kept]
    try:
        yield kept
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class KeptRunning:
    """A command that is kept running. Its runs are numbered from 1."""

    def __init__(self, name: str, one: Beside, report: Report, note: Note) -> None:
        self.name = name
        self._one = one
        self._report = report
        self._note = partial(note, name)
        self._run = 0
        self._again = asyncio.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._dead_letters = 0
        """Of all runs: one that fails takes none of them back."""

    def restart(self, run: int | None = None) -> int:
        """End the run with this number, or the present one, and begin another at once; returns the
        number of that. A run that is over is not ended again, so a request may be repeated."""
        if run in (None, self._run) and not self._again.is_set():
            self._again.set()
            self._note(state="restarting")
        return self._run + self._again.is_set()

    def signal(self, number: int) -> None:
        """Send a signal to the process of the present run, if there is one."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _began(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    async def keep(self) -> None:
        """Run the command again and again, until this is cancelled."""
        first_s = PAUSE_S if self._one.pause_s is None else self._one.pause_s
        pause_s = first_s
        while True:
            started_s = time.monotonic()
            self._again.clear()
            self._run += 1
            self._note(state="running", run=self._run)
            ended = await self._unless_again(_run(self._one, self._take, self._began))
            if ended is None:
                pause_s = first_s
                continue
            code, last = ended
            if code == 0 and not self._one.is_server:
                self._note(state="done")
                await self._again.wait()
                continue
            self._note(state="failed", error=last or f"ended with code {code}")
            if time.monotonic() - started_s > HEALTHY_S:
                pause_s = first_s
            kind = "" if self._one.is_server else "pipeline "
            wrong = last or f"{kind}{self.name} ended with code {code}"
            self._report(f"{wrong}; trying again in {pause_s:g} s")
            await self._unless_again(asyncio.sleep(pause_s))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _unless_again(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        """The result of some work; None if a restart is requested before its end."""
        doing = asyncio.ensure_future(work)
        asking = asyncio.ensure_future(self._again.wait())
        try:
            await asyncio.wait((doing, asking), return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            doing.cancel()
            asking.cancel()
            await asyncio.gather(doing, asking, return_exceptions=True)

    def _take(self, figures: Mapping[str, Any]) -> None:
        """Note the figures of a batch."""
        self._dead_letters += figures.get("dead_letters", 0)
        known = {mine: figures[its] for mine, its in FIGURES.items() if its in figures}
        self._note(**known, dead_letters=self._dead_letters)


async def _run(
    one: Beside, on_figures: OnFigures, began: Callable[["subprocess.Popen[bytes]"], None]
) -> tuple[int, str]:
    """Run a command to its end; returns its exit code and the last line of its error output."""
    # By the environment, which other users cannot read, unlike a command line.
    token = {} if one.token is None else {"SOW_TOKEN": one.token}
    process = subprocess.Popen(
        one.words,
        env={**os.environ, **token},
        stdin=subprocess.PIPE,  # which ends with this process
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to the server, which then stops it
    )
    began(process)
    if not one.is_server:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    loop = asyncio.get_running_loop()

    def on_line(figures: Mapping[str, Any]) -> None:
        loop.call_soon_threadsafe(on_figures, figures)

    Thread(target=_read_figures, args=(process, on_line), name="figures", daemon=True).start()
    passes_on = sys.stderr.write if one.is_server else None
    followed = loop.run_in_executor(None, _follow, process, passes_on)
    try:
        return await asyncio.shield(followed)
    finally:
        if not followed.done():
            await _stop(process, followed)
        assert process.stdin is not None
        process.stdin.close()


def _read_figures(process: "subprocess.Popen[bytes]", on_figures: OnFigures) -> None:
    """Hand on the figures that a process writes, one JSON object per line; runs in a thread."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            try:
                figures = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # output of Spark or of a library
            if isinstance(figures, dict) and "rows_in" in figures:
                with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended
                    on_figures(figures)


def _follow(
    process: "subprocess.Popen[bytes]", passes_on: Callable[[str], object] | None = None
) -> tuple[int, str]:
    """Read the error output of a process to its end; runs in a thread. Its last sentence is the
    reason, with that of Java where Java has ended first."""
    last = of_java = ""
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            text = line.decode(errors="replace").strip()
            if passes_on is not None:
                passes_on(f"{text}\n")
            last = text.removeprefix("sow: ") if text.startswith("sow: ") else last
            of_java = found[1] if (found := OF_JAVA.match(text)) else of_java
    return process.wait(), f"{last} ({of_java})" if of_java and GATEWAY in last else last


async def _stop(process: "subprocess.Popen[bytes]", followed: "asyncio.Future[Any]") -> None:
    process.terminate()
    await asyncio.wait([followed], timeout=STOP_S_MAX)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its Java too
    await followed


READ_BYTES = 4_096
"""Events that poll() waits for: none but the end."""
ORPHAN_S_MAX = 3.0
"""Time to stop: as long as a stopping server waits."""


def end_with_input(patience_s: float = ORPHAN_S_MAX, descriptor: int = 0) -> threading.Thread:
    """Stop this process when the input `descriptor` ends, and kill it `patience_s` later, with its
    group if it leads one; returns the thread that waits for that."""
    waiting = threading.Thread(target=_wait, args=(patience_s, descriptor), daemon=True)
    waiting.start()
    return waiting


def _wait(patience_s: float, descriptor: int) -> None:
    # Not a file object: its lock would be held when the process ends.
    with contextlib.suppress(OSError):
        while os.read(descriptor, READ_BYTES):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience_s)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


EDGES_MAX = 256
"""More than any machine has cores."""
INSIDE = "127.0.0.1"
READY_S_MAX = 30.0
"""How long the first of them may take to listen: a hundred times what it takes."""
LOOK_S = 0.05
"""Interval of looks whether one serves: what a person does not notice."""
READY = b"HTTP/1.1 200"
EDGE_PAUSE_S = 0.2
"""Delay before one that has ended is started again: clients that come back find the others."""


class Edges:
    """So many chained servers, at the address of a configuration; `words` are options and the file
    that they are started with, and by `token` they report to it. Without any, the server has its
    clients itself."""

    def __init__(
        self, count: int, configuration: Configuration, words: Sequence[str], token: str = ""
    ) -> None:
        self._count = count
        self._token = token
        self._security = configuration.security
        self._words = words
        self._host, self._port = configuration.host, configuration.port
        self._held: socket.socket | None = None
        if count:
            self._held = _held(self._host, self._port)
            self._port = self._held.getsockname()[1]

    def inside(self, configuration: Configuration) -> Configuration:
        """The configuration of the server that they are chained to: it listens on this machine
        alone, and believes them which addresses their clients have."""
        if not self._count:
            return configuration
        proxies = (*configuration.security.trusted_proxies, INSIDE)
        security = dataclasses.replace(configuration.security, tls=None, trusted_proxies=proxies)
        limits = dataclasses.replace(configuration.limits, connections_per_address_max=None)
        return dataclasses.replace(
            configuration, host=INSIDE, port=0, security=security, limits=limits
        )

    def url(self, address: str) -> str:
        """The address for clients of the server at this one."""
        if not self._count:
            return address
        return f"{self._security.scheme}://{authority(self._host, self._port)}"

    def beside(self, url: str) -> Mapping[str, Beside]:
        """What is to run beside the server at `url`."""
        words = [sys.executable, "-m", "sow.cli", "serve", *self._words, "--upstream", url]
        words += ["--host", self._host, "--port", str(self._port), "--until-input-ends"]
        one = Beside(words, self._token, is_server=True, pause_s=EDGE_PAUSE_S)
        return {f"chained server {number + 1}": one for number in range(self._count)}

    async def listening(self) -> None:
        """Return once one of them serves; raises StoreError."""
        if not self._count:
            return
        try:
            async with asyncio.timeout(READY_S_MAX):
                while not await self._answers():
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise StoreError(f"none of the {self._count} chained servers listens") from None

    async def _answers(self) -> bool:
        context = ssl._create_unverified_context() if self._security.tls else None
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = await reader.read(len(READY))
        except OSError:
            return False
        writer.transport.abort()
        return answer == READY

    def close(self) -> None:
        """Release the port."""
        if self._held is not None:
            self._held.close()


def _held(host: str, port: int) -> socket.socket:
    """A socket that has the port and does not listen; raises ClientError and StoreError."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ClientError(
            "this system does not let processes share a port, so there is no --edges; start "
            "`sow serve --upstream` on several ports, behind a proxy"
        )
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    held = socket.socket(family, kind)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        # A server that shares its port with nobody refuses this.
        held.bind(address)
    except OSError as error:
        held.close()
        raise StoreError(
            f"cannot listen on {authority(host, port)}: {error.strerror}; choose another with "
            "--port",
            reason="address in use",
        ) from None
    return held


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


async def stopped(serving: Coroutine[Any, Any, bool], wait_s: float) -> None:
    """Serve, and end the process where something goes on after its end: a call that cannot be
    cancelled, or that holds a thread, such as one of a silent name server. The loop would wait for
    it without limit."""
    try:
        in_time = await serving
    finally:
        is_alone = await end_all(asyncio.all_tasks() - {asyncio.current_task()})
    threads = asyncio.ensure_future(asyncio.get_running_loop().shutdown_default_executor())
    await asyncio.wait((threads,), timeout=wait_s)
    if not (in_time and is_alone and threads.done()):
        click.echo(f"sow: gave up stopping after {wait_s:g} s; no data is lost", err=True)
        os._exit(1)  # acknowledged messages are in the journal
