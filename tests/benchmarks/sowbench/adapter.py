"""What an adapter is: one file with a class `Adapter` of six methods.

`docs/performance.md` says how to write one, `--check FILE` what is wrong with it, and
`adapters/example.py` is a small one. `start` sets `address` and `pid`; another process makes an
adapter of its own, gives it the address, and follows. What a server does not have is refused with
`Cannot` and a reason, which then stands in the table instead of a figure.
"""

import importlib
import importlib.util
import select
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.benchmarks.processes import cpu_s
from tests.benchmarks.sockets import READ_BYTES
from tests.benchmarks.sowbench.load import Load
from tests.benchmarks.sowbench.questions import Answer

START_S_MAX = 20.0
WINDOW = 64
"""Batches that may be unacknowledged, for those that take more than one at a time."""
ADAPTERS = Path(__file__).parent / "adapters"
ORDERS = "orders"


class Missing(Exception):
    """The server is not installed; `make bench-peers` installs those that are on PyPI."""


class Cannot(Exception):
    """The server does not have this operation, and why."""


class Setup(NamedTuple):
    """What a server is started for: so that nobody pays for what a workload does not use."""

    followed: bool = False
    conflated_ms: int = 0
    """Followers are sent at most one update of a record in so long."""
    view: str = ""
    """A query of `nexmark`, asked again and again."""


class How(NamedTuple):
    """What a follower wants."""

    snapshot: bool = False
    """All records first, then updates."""
    conflated_ms: int = 0
    symbols: Sequence[str] = ()
    """A filter for each: records whose symbol is this. None is all records."""
    after: str = ""
    """The `place` at which an earlier follower was, to go on from there."""


class Follower(Protocol):
    """A connection that is sent updates."""

    socket: socket.socket
    alive: bytes
    """What the server has to hear now and then, so as not to give up a silent client."""
    place: str
    """Where it is, for `How.after`; empty where there is no such thing."""

    def read(self) -> bytes:
        """What has come, raw: bodies stand in it whole and in order, maybe cut by the end of a
        read. Raises ConnectionError when it is closed."""
        ...


class Following:
    """A connection that has subscribed: a follower that need not say that it is alive."""

    alive = b""
    place = ""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def read(self) -> bytes:
        """What has come."""
        piece = self.socket.recv(READ_BYTES)
        if not piece:
            raise ConnectionError("the server has closed the connection")
        return piece


@dataclass
class Pace:
    """When batches may be sent: `window` ahead of the acknowledged (a closed loop), or each at its
    moment, whatever was acknowledged (an open loop)."""

    step_s: float = 0.0
    begin_s: float = 0.0
    window: int = WINDOW

    def start(self) -> None:
        """Now is the moment of the first."""
        self.begin_s = time.monotonic()

    def allowed(self, acknowledged: int) -> int:
        """How many may have been sent by now."""
        if not self.step_s:
            return acknowledged + self.window
        return int((time.monotonic() - self.begin_s) / self.step_s) + 1

    def wait_s(self, sent: int) -> float | None:
        """How long until another may be sent; None if only an acknowledgement lets it."""
        if not self.step_s:
            return None
        return max(0.0, self.begin_s + sent * self.step_s - time.monotonic())


class Adapter(Protocol):
    """One server. `name` is for the table, `promise` what an acknowledgement means. If it is of
    several processes, those beside `pid` are `beside`. `ONLY` has workloads by variant, for those
    that do not take part in all."""

    VARIANTS: Sequence[str]
    """Ways of running it, the first of which `--servers NAME` means too."""
    name: str
    promise: str
    address: str
    pid: int

    def start(self, folder: Path, setup: Setup) -> None:
        """Start on what is in `folder`; again at the same address. Raises Missing or Cannot."""
        ...

    def stop(self, kill: bool = False) -> None:
        """End it, with SIGKILL if `kill`; a second time does nothing."""
        ...

    def publish(self, load: Load, pace: Pace) -> Generator[int]:
        """Send the batches of a load. Yields 0 when everything is made and nothing was sent, then
        how many are acknowledged, up to all of them."""
        ...

    def follow(self, how: How) -> Follower:
        """A follower that the server knows of. Raises Cannot."""
        ...

    def query(self, question: Any) -> Answer:
        """One answer of `questions` or `nexmark`, with how long it took. Raises Cannot."""
        ...

    def state(self) -> dict[int, bytes]:
        """The record of every key."""
        ...


def used_s(adapter: Adapter) -> float:
    """Processor time that all processes of a server have used."""
    return sum(map(cpu_s, (adapter.pid, *getattr(adapter, "beside", ()))))


def takes_part(spec: str, workload: str) -> bool:
    """Whether a spec is measured in a workload."""
    kind, variant = _found(spec)
    return workload in getattr(kind, "ONLY", {}).get(variant, (workload,))


METHODS = ("start", "stop", "publish", "follow", "query", "state")


def exchanged(
    connection: socket.socket, frames: Sequence[bytes], acks: Callable[[bytes], int], pace: Pace
) -> Generator[int]:
    """`publish` for who speaks through a socket: a frame for each batch, and how many batches are
    acknowledged in all with the next piece of what has come."""
    with connection:
        connection.setblocking(False)
        yield 0
        sent = acknowledged = 0
        rest = memoryview(b"")
        while acknowledged < len(frames):
            until = min(len(frames), pace.allowed(acknowledged))
            if sent < until and not rest:
                rest, sent = memoryview(b"".join(frames[sent:until])), until
            left_s = pace.wait_s(sent) if sent < len(frames) else None
            writers = [connection] if rest else []
            readable, writable, _ = select.select([connection], writers, [], left_s)
            if writable:
                rest = rest[connection.send(rest) :]
            if readable:
                piece = connection.recv(READ_BYTES)
                if not piece:
                    raise ConnectionError("the server has closed the publisher's connection")
                acknowledged = acks(piece)
                yield acknowledged


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def connected(port: int | str) -> socket.socket:
    """A connection to what was just started, as soon as it listens."""
    give_up = time.monotonic() + START_S_MAX
    while True:
        try:
            found = socket.create_connection(("127.0.0.1", int(port)))
        except ConnectionRefusedError:
            if time.monotonic() > give_up:
                raise
            # There is nothing to wait on but the port itself.
            time.sleep(0.02)
        else:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found


def ended(process: "subprocess.Popen[bytes] | None", kill: bool) -> None:
    """End a process, and wait until it has ended; nothing for None."""
    if process is None:
        return
    if kill:
        process.kill()
    process.terminate()
    try:
        process.wait(START_S_MAX)
    finally:
        process.kill()
        process.wait()


# Which there are.


def made(spec: str, address: str = "") -> Adapter:
    """The adapter of a spec, `NAME`, `NAME-VARIANT` or `FILE.py[:VARIANT]`."""
    kind, variant = _found(spec)
    adapter: Adapter = kind(variant or kind.VARIANTS[0])
    adapter.address = address
    return adapter


def _found(spec: str) -> tuple[Any, str]:
    file, _, variant = spec.partition(":") if ".py" in spec else (spec, "", "")
    if file.endswith(".py"):
        about = importlib.util.spec_from_file_location(Path(file).stem, file)
        if about is None or about.loader is None or not Path(file).exists():
            raise SystemExit(f"there is no adapter {file}: name a file with a class Adapter")
        module = importlib.util.module_from_spec(about)
        about.loader.exec_module(module)
    else:
        file, _, variant = spec.partition("-")
        if not (ADAPTERS / f"{file}.py").exists():
            raise SystemExit(f"there is no adapter {file}; there are {', '.join(names())}")
        module = importlib.import_module(f"{__package__}.adapters.{file}")
    kind = getattr(module, "Adapter", None)
    if kind is None:
        raise SystemExit(f"{file} has no class Adapter")
    if variant and variant not in kind.VARIANTS:
        raise SystemExit(f"{file} has no variant {variant}; it has {', '.join(kind.VARIANTS)}")
    return kind, variant


def names() -> list[str]:
    """The adapters that are here, ours first; the example is only for tests."""
    found = {path.stem for path in ADAPTERS.glob("*.py")} - {"__init__", "example", "sow"}
    return ["sow", *sorted(found)]


def specs(asked: Iterable[str]) -> list[str]:
    """Every variant of those asked for."""
    found = []
    for spec in asked:
        kind, variant = _found(spec)
        if variant:
            found.append(spec)
        else:
            between = ":" if spec.endswith(".py") else "-"
            found += [f"{spec}{between}{each}" for each in kind.VARIANTS]
    return found
