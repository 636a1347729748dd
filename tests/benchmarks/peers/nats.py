"""NATS JetStream: a stream that keeps the last message of each subject, in files.

Its protocol is spoken here without a library. `sync` is how often it has its files written:
``always``, before each acknowledgement, or as it does by itself, every two minutes.
"""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path

from tests.benchmarks.peers.load import Load
from tests.benchmarks.peers.peer import WINDOW, Missing, connected, ended, free_port
from tests.benchmarks.processes import cpu_s
from tests.benchmarks.sockets import READ_BYTES

STREAM = {
    "name": "orders",
    "subjects": ["orders.*"],
    "storage": "file",
    "max_msgs_per_subject": 1,
    "allow_direct": True,
}
HEAD = re.compile(rb"MSG (\S+) \d+ (?:\S+ )?(\d+)\r\n")
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"no_responders":false,"headers":false}\r\n'


class Nats:
    """A server of its own."""

    def __init__(self, sync: str) -> None:
        self._sync = sync
        self.name = f"NATS JetStream, sync {sync}"
        self.durability = (
            "fsync before each acknowledgement"
            if sync == "always"
            else "fsync every 2 minutes: they may go with the machine"
        )
        self.port = 0
        self._process: subprocess.Popen[bytes]

    def open(self, folder: Path) -> None:
        """Start a server on the folder, and make the stream if there is none."""
        program = shutil.which("nats-server")
        if program is None:
            raise Missing("nats-server")
        self.port = free_port()
        settings = folder / "nats.conf"
        interval = "sync_interval: always" if self._sync == "always" else ""
        settings.write_text(f'jetstream {{ store_dir: "{folder}"\n{interval} }}\n')
        self._process = subprocess.Popen(
            [program, "-c", str(settings), "-p", str(self.port), "-a", "127.0.0.1"],
            stderr=subprocess.DEVNULL,
        )
        with connected(self.port) as client:
            said = self._ask(client, "$JS.API.STREAM.CREATE.orders", json.dumps(STREAM).encode())
            assert b'"error"' not in said, said[:500]

    @staticmethod
    def _ask(client: socket.socket, subject: str, body: bytes) -> bytes:
        messages = Messages(client, b"inbox")
        client.sendall(b"PUB %b inbox %d\r\n%b\r\n" % (subject.encode(), len(body), body))
        while True:
            for message in messages.read():
                return message

    def publish(self, load: Load) -> Generator[int]:
        """A message for each record, since NATS has no batches; all of one sent together."""
        frames = [
            b"".join([b"PUB orders.%d inbox %d\r\n%b\r\n" % (k, len(d), d) for k, d in batch])
            for batch in load.batches()
        ]
        sizes = [len(batch) for batch in load.batches()]
        with connected(self.port) as client:
            messages = Messages(client, b"inbox")
            yield 0
            sent = acknowledged = rest = 0
            while acknowledged < len(frames):
                until = min(len(frames), acknowledged + WINDOW)
                if sent < until:
                    client.sendall(b"".join(frames[sent:until]))
                    sent = until
                for said in messages.read():
                    assert b'"seq"' in said, said[:500]
                    rest += 1
                while acknowledged < sent and rest >= sizes[acknowledged]:
                    rest -= sizes[acknowledged]
                    acknowledged += 1
                yield acknowledged

    def current(self) -> dict[int, bytes]:
        """The last message of every subject, by a consumer of its own."""
        held: dict[int, bytes] = {}
        with connected(self.port) as client:
            about = json.loads(self._ask(client, "$JS.API.STREAM.INFO.orders", b""))
        count = about["state"]["messages"]
        with connected(self.port) as client:
            messages = Messages(client, b"all")
            settings = {
                "stream_name": "orders",
                "config": {"deliver_subject": "all", "deliver_policy": "all", "ack_policy": "none"},
            }
            body = json.dumps(settings).encode()
            client.sendall(
                b"PUB $JS.API.CONSUMER.CREATE.orders nobody %d\r\n%b\r\n" % (len(body), body)
            )
            while len(held) < count:
                for subject, message in messages.read_with_subjects():
                    held[int(subject.rpartition(b".")[2])] = message
        return held

    def cpu_s(self) -> float:
        """Of the server process."""
        return cpu_s(self._process.pid)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Stop it, if it still runs."""
        ended(self._process)


class Messages:
    """What comes to one subject of a connection, cut anywhere."""

    def __init__(self, client: socket.socket, subject: bytes) -> None:
        self._client = client
        self._rest = b""
        client.sendall(CONNECT + b"SUB %b 1\r\n" % subject)

    def read(self) -> list[bytes]:
        """The messages of one read; possibly none."""
        return [message for _, message in self.read_with_subjects()]

    def read_with_subjects(self) -> list[tuple[bytes, bytes]]:
        """The same with what each was published to."""
        piece = self._client.recv(READ_BYTES)
        assert piece, "NATS has closed the connection"
        data, at, found = self._rest + piece, 0, []
        while (end := data.find(b"\r\n", at)) >= 0:
            head = HEAD.match(data, at)
            if head is None:
                line = data[at:end]
                assert not line.startswith(b"-ERR"), line
                if line == b"PING":
                    self._client.sendall(b"PONG\r\n")
                at = end + 2
                continue
            stop = head.end() + int(head[2])
            if len(data) < stop + 2:
                break
            found.append((head[1], data[head.end() : stop]))
            at = stop + 2
        self._rest = data[at:]
        return found
