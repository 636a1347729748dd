"""`sow serve --edges N`: chained servers beside a server, on one port.

The server itself listens on a port of this machine that nobody else need know. The port of the
configuration is held by a socket that does not listen; N processes listen on it together
(SO_REUSEPORT), so that the system shares out the connections. Each of them is a chained server
(docs/chained.md). One that ends is started again, and all end with this process, however it ends
(`sow.cli.supervision`).
"""

import asyncio
import dataclasses
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence

from sow.cli.supervision import Beside
from sow.core.definitions import Configuration, authority
from sow.errors import ClientError, StoreError

EDGES_MAX = 256
"""More than any machine has cores."""
INSIDE = "127.0.0.1"
READY_S_MAX = 30.0
"""How long the first of them may take to listen: a hundred times what it takes."""
LOOK_S = 0.05
"""Interval of looks whether one serves: what a person does not notice."""
READY = b"HTTP/1.1 200"
PAUSE_S = 0.2
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
        one = Beside(words, self._token, is_server=True, pause_s=PAUSE_S)
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
