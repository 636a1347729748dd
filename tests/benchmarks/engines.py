"""An engine in this process, driven as a server would drive it, without a disk or a socket."""

from collections.abc import Iterable, Sequence

from sow.config import loads
from sow.core.definitions import Configuration
from sow.engine.engine import Engine
from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.server.boot.app import new_session_name
from sow.server.net.command_pump import ReceiveQueue
from sow.sessions.commands.executor import Executor
from sow.streaming.sessions import Session
from tests.executing import execute_all
from tests.store.in_memory import MemoryJournal

FRAME_US = 400
"""Time that passes between two frames: 100 records each make 250,000 a second."""


def parsed(xml: str) -> Configuration:
    """A configuration that is known to be right."""
    loaded = loads(xml)
    assert loaded.configuration is not None, loaded.findings
    return loaded.configuration


class EngineDriver:
    """Publishes to an engine; every frame is a group that is durable at once."""

    def __init__(self, xml: str) -> None:
        self.engine = Engine(parsed(xml))
        self.executor = Executor(self.engine, MemoryJournal(), new_session_name)
        self.now_us = 1_000_000
        self._client: Session | None = None

    def publish(
        self, frames: Iterable[bytes], frame_us: int = FRAME_US, topic: str = "orders"
    ) -> None:
        """Publish frames of lines to a topic."""
        for frame in frames:
            self.now_us += frame_us
            self.engine.publish(topic, frame.split(b"\n"), self.now_us)
            self._turn()

    def send(self, frames: Iterable[bytes]) -> None:
        """Carry out frames as a client sends them, one after the other."""
        if self._client is None:
            self._client = self.executor.sessions.open(LINES, self.now_us)
        inbox = ReceiveQueue()
        for frame in frames:
            self.now_us += FRAME_US
            inbox.add(frame)
            while inbox.bytes:
                execute_all(self.executor, self._client, inbox.take(), self.now_us)
            self._turn()

    def _turn(self) -> None:
        due_us = self.engine.due_us()
        if due_us is not None and due_us <= self.now_us:
            self.engine.advance(self.now_us)
        group = self.engine.flush()
        self.engine.sequencer.release(group)
        for session in group.sessions:
            while session.pull(self.engine.sequencer.released, self.now_us) is not None:
                pass

    def load(self, bodies: Sequence[bytes], size: int = 1000, topic: str = "orders") -> None:
        """Publish bodies in large frames and bring the indexes up to date."""
        frames = (b"\n".join(bodies[at : at + size]) for at in range(0, len(bodies), size))
        self.publish(frames, topic=topic)
        while self.engine.catalog.refresh_indexes(100_000):
            pass

    def subscribe(self, condition: str) -> None:
        """A session of its own with one filtered subscription, read as soon as it can be."""
        session = self.ask(b'{"c":"subscribe","t":"orders","filter":"%b"}' % condition.encode())
        assert self.executor.subscriptions.of(session), f"no subscription to {condition}"

    def ask(self, line: bytes, session: Session | None = None) -> Session:
        """Carry out one line for a session, a new one if there is none, which reads as soon as it
        can."""
        session = session or self.executor.sessions.open(LINES, self.now_us)
        for command in read_frame(line):
            self.executor.execute(session, command, self.now_us)
        self._turn()
        return session
