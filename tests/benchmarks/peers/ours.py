"""This server: durable, with an fsync for each group of commits."""

import http.client
import os
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import orjson

from tests.benchmarks.peers.load import Load
from tests.benchmarks.peers.peer import WINDOW
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import configuration
from tests.benchmarks.sockets import Client, frame

HEAD = b'{"c":"publish","t":"orders","n":%d,"cid":"1","a":"persisted"}\n'


class Ours:
    """One topic with a hash index, as it is usually run; `beside` is what else is configured."""

    name = "this server"
    durability = "fsync before each acknowledgement"

    def __init__(self, beside: str = "") -> None:
        self.server: ServerProcess
        self._http: http.client.HTTPConnection
        self._xml = configuration(index=True).replace("</SOW>", f"{beside}</SOW>")

    def open(self, folder: Path) -> None:
        """Start a server on the folder."""
        self.server = ServerProcess(self._xml, folder)
        self.server.__enter__()
        self._http = http.client.HTTPConnection(self.server.host, self.server.port)

    def publish(self, load: Load) -> Generator[int]:
        """Frames over a WebSocket, acknowledged once durable."""
        client = Client(self.server.host, self.server.port)
        made = frames(load)
        try:
            yield 0
            sent = acknowledged = 0
            while acknowledged < len(made):
                until = min(len(made), acknowledged + WINDOW)
                if sent < until:
                    client.socket.sendall(b"".join(made[sent:until]))
                    sent = until
                acknowledged = client.read()
                yield acknowledged
        finally:
            client.close()

    def get(self, path: str) -> bytes:
        """What HTTP says, over one connection that is kept."""
        self._http.request("GET", path)
        response = self._http.getresponse()
        body = response.read()
        assert response.status == 200, body[:500]
        return body

    def current(self) -> dict[int, bytes]:
        """All records, by a query."""
        rows = orjson.loads(self.get("/v1/topics/orders/records"))
        return {row["order"]["id"]: orjson.dumps(row) for row in rows}

    def cpu_s(self) -> float:
        """Of the server process."""
        return self.server.cpu_s

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.server.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Stop it, if it still runs."""
        self._http.close()
        try:
            self.server.__exit__(None, None, None)
        except subprocess.TimeoutExpired:
            raise AssertionError("the server did not stop") from None


def frames(load: Load) -> list[bytes]:
    """The batches of a load, each as a frame that is acknowledged once durable."""
    return [
        frame(HEAD % len(batch) + b"\n".join([body for _, body in batch]))
        for batch in load.batches()
    ]
