"""A network in memory: connections with delays, little buffers, losses and silence.

What is written arrives in order, in other pieces and later. A receiver that does not read fills the
connection, and then the sender waits. A link between two processes can be cut (its connections are
reset, others are refused) or fall silent (nothing arrives, nothing is closed, until it is healed).
"""

import asyncio
import itertools
from collections import deque
from contextvars import copy_context

from tests.simulation.nodes.virtual_loop import PROCESS

LATENCY_S = 0.002
SLOW_LATENCY_S = 0.05
SLOW_CHANCE = 0.03
KERNEL_BYTES = (2_000, 20_000, 200_000)
HIGH_BYTES = 65_536
PEER = ("127.0.0.1", 40_000)


class Network:
    """All listeners and connections; a link is the set of two processes' names."""

    def __init__(self, loop, chance):
        self.loop, self.chance = loop, chance
        self._numbers = itertools.count(1)
        self._ports = itertools.count(9_001)
        self._listeners = {}
        self._calls = {}
        self._connections = []
        self.silent, self.cut_links = set(), set()
        self._healed = asyncio.Event()

    def free_port(self):
        return next(self._ports)

    def on_call(self, number, call):
        """What to do when somebody connects to a listener."""
        if call is None:
            return self._calls.pop(number, None) is not None
        self._calls[number] = call
        return True

    async def bind(self, host, port, _shared=False):
        if port in self._listeners:
            raise OSError(98, "the port is taken")
        listener = self._listeners[port] = Listening(self, host, port)
        return [listener]

    def free(self, listener):
        if self._listeners.get(listener.port) is listener:
            del self._listeners[listener.port]

    async def dial(self, addr_infos, **_more):
        """In place of `aiohappyeyeballs.start_connection`."""
        port, caller = addr_infos[0][4][1], PROCESS.get()
        await asyncio.sleep(self.latency())
        while (listener := self._listeners.get(port)) is not None:
            link = frozenset((caller.name, listener.process.name))
            if link not in self.silent:
                break
            await self._healed.wait()
        if listener is None or link in self.cut_links:
            raise ConnectionRefusedError(111, "refused")
        one = Connection(self, link)
        self._connections.append(one)
        listener.backlog.append(one.ends[1])
        if (call := self._calls.get(listener.number)) is not None:
            call()
        return one.ends[0]

    def latency(self):
        slow = self.chance.random() < SLOW_CHANCE
        return (SLOW_LATENCY_S if slow else LATENCY_S) * self.chance.random()

    def next_number(self):
        return next(self._numbers)

    # Faults.

    def _open(self, holds):
        self._connections = [one for one in self._connections if not one.is_over]
        return [one for one in self._connections if holds(one)]

    def reset(self, link):
        """All connections of a link break."""
        for one in self._open(lambda one: one.link == link):
            one.reset()

    def cut(self, link):
        self.cut_links.add(link)
        self.reset(link)

    def be_silent(self, link):
        self.silent.add(link)

    def heal(self, link=None):
        """What was on its way arrives now."""
        for links in (self.silent, self.cut_links):
            links.clear() if link is None else links.discard(link)
        self._healed.set()
        self._healed = asyncio.Event()
        for one in self._open(lambda _one: True):
            for end in one.ends:
                end.pump_soon()

    def lose(self, process):
        """A process has died: the system closes what it had."""
        for listener in [*self._listeners.values()]:
            if listener.process is process:
                listener.close()
        for one in self._open(lambda one: process in one.processes):
            one.reset()

    def count(self):
        return len(self._open(lambda _one: True))


class Listening:
    """A listening socket."""

    def __init__(self, network, host, port):
        self._network, self.host, self.port = network, host, port
        self.number = network.next_number()
        self.process = PROCESS.get()
        self.backlog = deque()

    def fileno(self):
        return self.number

    family, type, proto = 2, 1, 6

    def dup(self):
        """The same, which stays open when that one is closed."""
        return Duplicate(self)

    def getsockname(self):
        return (self.host, self.port)

    def accept(self):
        if not self.backlog:
            raise BlockingIOError
        return self.backlog.popleft(), PEER

    def close(self):
        self._network.free(self)
        for end in self.backlog:
            end.connection.reset()


class Duplicate:
    """A listening socket that another one keeps open."""

    def __init__(self, listener):
        self._listener = listener

    def __getattr__(self, name):
        return getattr(self._listener, name)

    def close(self):
        pass


class Connection:
    """Two ends."""

    def __init__(self, network, link):
        self.network, self.link = network, link
        self.ends = (End(self), End(self))
        self.ends[0].other, self.ends[1].other = self.ends[1], self.ends[0]
        self.kernel_bytes = network.chance.choice(KERNEL_BYTES)

    @property
    def is_over(self):
        return all(end.is_lost for end in self.ends)

    @property
    def processes(self):
        return [end.process for end in self.ends]

    def reset(self):
        for end in self.ends:
            end.lose(ConnectionResetError(104, "reset"))


class End(asyncio.Transport):
    """One end: the socket before it is opened, its transport after that."""

    def __init__(self, connection):
        super().__init__({"peername": PEER, "sockname": PEER})
        self.connection, self.network = connection, connection.network
        self.loop = self.network.loop
        self.other = None
        self.process = PROCESS.get()
        self.context = copy_context()
        self.protocol = None
        self.is_lost = self.is_shut = self.has_ended = False
        self._is_closing = self._is_paused = self._is_full = False
        self._error = None
        self._coming = deque()
        """Pieces on their way to this end, each with its time; None is the end."""
        self._last_s = 0.0
        self._timer = None
        self._high = HIGH_BYTES
        self._bytes = 0
        """Bytes on their way from this end."""

    # As a socket.

    def setblocking(self, _flag):
        pass

    def send(self, data):
        self._send(data)
        return len(data)

    def shutdown(self, _how):
        self._send(None)

    def opened(self, protocol):
        """Go on as a transport, of the process that opens it."""
        self.process, self.context, self.protocol = PROCESS.get(), copy_context(), protocol
        protocol.connection_made(self)
        if self.is_lost:
            self._say_lost()
        self.pump_soon()
        return self

    # As a transport.

    def get_protocol(self):
        return self.protocol

    def set_protocol(self, protocol):
        self.protocol = protocol

    def is_closing(self):
        return self._is_closing or self.is_lost

    def write(self, data):
        if not self.is_closing() and data:
            self._send(bytes(data))

    def can_write_eof(self):
        return True

    def write_eof(self):
        self._send(None)

    def get_write_buffer_size(self):
        return max(0, self._bytes - self.connection.kernel_bytes)

    def get_write_buffer_limits(self):
        return (self._high // 4, self._high)

    def set_write_buffer_limits(self, high=None, low=None):
        self._high = HIGH_BYTES if high is None else high

    def pause_reading(self):
        self._is_paused = True

    def resume_reading(self):
        self._is_paused = False
        self.pump_soon()

    def is_reading(self):
        return not self._is_paused

    def close(self):
        """Close once all is sent."""
        if self._is_closing or self.is_lost:
            self._is_closing = True
            return
        self._is_closing = True
        self._send(None)
        self._look_sent()

    def abort(self):
        self._is_closing = True
        self.other.lose(ConnectionResetError(104, "reset"))
        self.lose(None)

    # On the way.

    def _send(self, data):
        if self.is_shut or self.is_lost:
            return
        self.is_shut = data is None
        other, chance = self.other, self.network.chance
        pieces = [data]
        if data is not None:
            self._bytes += len(data)
            if len(data) > 1 and chance.random() < 0.2:
                at = chance.randrange(1, len(data))
                pieces = [data[:at], data[at:]]
        for piece in pieces:
            other._last_s = max(other._last_s, self.loop.now_s + self.network.latency())
            other._coming.append((other._last_s, piece))
        other.pump_soon()
        if self.get_write_buffer_size() > self._high and not self._is_full:
            self._is_full = True
            self.protocol.pause_writing()

    def _look_sent(self):
        if self._is_full and self.get_write_buffer_size() <= self._high // 4:
            self._is_full = False
            self._call(self.protocol.resume_writing)
        if self._is_closing and not self.get_write_buffer_size() and not self.is_lost:
            self.lose(None)

    def pump_soon(self):
        """Let what has arrived be read, when it has."""
        if self._timer is not None or self.protocol is None or not self._coming:
            return
        if self.process is not None and not self.process.is_alive:
            return
        at_s = max(self.loop.now_s, self._coming[0][0])
        self._timer = self.loop.call_at(at_s, self._pump, context=self.context)

    def _pump(self):
        self._timer = None
        if self.connection.link in self.network.silent:
            return
        if self._coming and not self._is_paused and not self.is_lost:
            _, data = self._coming.popleft()
            if data is None:
                self.has_ended = True
                if not self.protocol.eof_received():
                    self.close()
            else:
                self.other._bytes -= len(data)
                self.protocol.data_received(data)
                if self.other.protocol is not None:
                    self.other._look_sent()
        if not self._is_paused and not self.is_lost:
            self.pump_soon()

    def _call(self, function, *arguments):
        self.loop.call_soon(function, *arguments, context=self.context)

    def lose(self, error):
        """The connection is over at this end."""
        if not self.is_lost:
            self.is_lost, self._error = True, error
            if self.protocol is not None:
                self._say_lost()

    def _say_lost(self):
        if self.process is None or self.process.is_alive:
            self._call(self.protocol.connection_lost, self._error)
