"""An event loop in virtual time, and processes on it that can be killed.

Nothing waits: when there is nothing to do, time passes to the next timer. Reading the clock takes a
little of it, and now and then some milliseconds, as on a busy machine, so that work that goes in
slices is interrupted anywhere. What threads do is done by a timer, at a random moment soon.

Nothing else of this machine is seen: the clocks that are read past the loop are its own (`alone`),
and garbage is collected when the run says so. So all that happens follows from the seed.

A process is a context variable: all its callbacks and tasks have inherited it. Killing it drops all
of them as they are; nothing is closed, no `finally` runs.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sow.server.loop.group_commit import JournalThread

READ_CLOCK_S = 2e-6
BUSY_S = 0.004
BUSY_CHANCE = 1 / 1_000
THREAD_S = 0.002
DISK_S = 0.003
SLOW_DISK_S = 0.1
SLOW_DISK_CHANCE = 0.02


class Process:
    """Everything that runs under one name, until it is killed."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.loop, self.name, self.is_alive = loop, name, True
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as a task of this process."""
        return self.loop.create_task(work, context=self.context.copy())

    def kill(self) -> None:
        """Drop all that it does and would do."""
        self.is_alive = False
        self.loop.drop(self)


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


def owner(context: Context) -> Process | None:
    """The process of a context."""
    return context.get(PROCESS)


class Ready:
    """In place of a selector: nothing outside happens, so time passes."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        assert timeout is not None, "nobody will ever do anything again"
        self._loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop whose time is its own, and whose network is given to it (`network`)."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._now_s, self._chance = 1_000.0, chance
        self._selector = Ready(self)
        self._kept: set[Any] = set()
        self.network: Any = None

    def time(self) -> float:
        draw = self._chance.random()
        self._now_s += BUSY_S * self._chance.random() if draw < BUSY_CHANCE else READ_CLOCK_S * draw
        return self._now_s

    def pass_time(self, by_s: float) -> None:
        """Nothing happens for so long."""
        self._now_s += by_s

    @property
    def now_s(self) -> float:
        """The time, without passing any."""
        return self._now_s

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def drop(self, process: Process | None) -> None:
        """Cancel all callbacks of a process, or all (None). Tasks are kept as they are until the
        end."""
        for handle in [*self._ready, *self._scheduled]:
            if process in (None, owner(handle._context)):
                handle.cancel()
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False
            self._kept.add(task)

    def call_soon(self, callback: Any, *arguments: Any, context: Context | None = None) -> Any:
        handle = super().call_soon(callback, *arguments, context=context)
        process = owner(handle._context)
        if process is not None and not process.is_alive:
            handle.cancel()
        return handle

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *arguments: Any) -> Any:
        done = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*arguments))
            except StopIteration as error:
                done.set_exception(RuntimeError(str(error)))
            except Exception as error:
                done.set_exception(error)

        self.call_later(THREAD_S * self._chance.random(), run)
        return done

    # The network.

    def add_reader(self, fd: Any, callback: Any, *arguments: Any) -> None:
        context = copy_context()
        self.network.on_call(fd, lambda: self.call_soon(callback, *arguments, context=context))

    def remove_reader(self, fd: Any) -> bool:
        return bool(self.network.on_call(fd, None))

    async def create_server(
        self, protocol_factory: Any, *_: Any, sock: Any = None, **_more: Any
    ) -> Any:
        def accept() -> None:
            try:
                while True:
                    sock.accept()[0].opened(protocol_factory())
            except BlockingIOError:
                pass

        self.add_reader(sock.fileno(), accept)
        self.call_soon(accept)
        return Accepting(self, sock)

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_more: Any) -> Any:
        protocol = protocol_factory()
        return sock.opened(protocol), protocol

    async def create_connection(
        self, protocol_factory: Any, *_: Any, sock: Any, **_more: Any
    ) -> Any:
        protocol = protocol_factory()
        return sock.opened(protocol), protocol


class Accepting:
    """What `create_server` of the loop returns."""

    def __init__(self, loop: VirtualLoop, sock: Any) -> None:
        self._loop, self._sock = loop, sock

    def close(self) -> None:
        """Accept no more; what connects from now on waits for somebody else."""
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    async def wait_closed(self) -> None:
        """Nothing is to be waited for."""


class VirtualWriter(JournalThread):
    """The thread of a journal, as a timer of the loop."""

    def start(self) -> None:
        pass

    def _give(self, one: Any) -> None:
        super()._give(one)
        chance = self.loop._chance
        slow = chance.random() < SLOW_DISK_CHANCE
        self.loop.call_later((SLOW_DISK_S if slow else DISK_S) * chance.random(), self.join)

    def join(self, timeout: float | None = None) -> None:
        if self.is_busy:
            self.work()


@contextmanager
def alone(loop: VirtualLoop) -> Iterator[None]:
    """While nothing but a seed decides what happens: clocks that are not read through the loop are
    its own as well, and nothing is collected by chance, which may begin work or end connections."""

    def now_s() -> float:
        return loop.now_s

    def now_us() -> int:
        return int(loop.now_s * 1e6)

    clock = SimpleNamespace(monotonic=now_s, perf_counter=now_s)
    with ExitStack() as stack:
        for name, made in {
            "sow.server.loop.scheduler.time": clock,
            "sow.server.boot.http_server.monotonic_us": now_us,
            "sow.server.chained.upstream.monotonic_us": now_us,
            "aiohttp.connector.monotonic": now_s,
            "sow.server.boot.app.owns_process": lambda: False,
        }.items():
            stack.enter_context(patch(name, made))
        if gc.isenabled():
            gc.disable()
            stack.callback(gc.enable)
        yield
