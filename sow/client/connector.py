"""How a client reaches its server: address, credentials, trust, and its HTTP connections.

A token or a password is sent with every request and with the handshake of every WebSocket, in the
`Authorization` header. Credentials are sent only to the server at the given address, and never
shown: not in errors, not by `repr`. A token that expires can be given as a function, which is
called for each connection and each request.

A TLS connection takes some turns of the loop to close. If the loop ends with the client
(`asyncio.run`, a command), its socket would be left open, and the garbage collector would warn of
it. So the connector keeps the connections that are not closed yet, and its `close` waits for them;
connections that the server does not close are aborted.

A redirect would send messages, session names and credentials to an address that the caller did not
give, also for the handshake of a WebSocket. So it is an error with its target: a caller that trusts
it gives it as the address.
"""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
from aiohttp import hdrs
from aiohttp.client import ClientTimeout
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from sow.client.errors import Disconnected, Unreachable, is_away, none_answers
from sow.core.addresses import URL_DEFAULT, Addresses, listed
from sow.errors import AnotherLog, ClientError, NotPrimary, SowError, clipped, shown

GOODBYE_S = 1.0
"""How long a server may take to close a connection: a few turns of its loop and a round trip."""


class Connector(aiohttp.TCPConnector):
    """A connector whose `close` waits for its connections; `context` is the TLS context."""

    def __init__(self, context: ssl.SSLContext | bool) -> None:
        super().__init__(ssl=context)
        self._still_open: dict[asyncio.Future[None], asyncio.Transport] = {}

    async def connect(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        """A connection for a request, a new one or one from the pool."""
        connection = await super().connect(req, traces, timeout)
        protocol, transport = connection.protocol, connection.transport
        gone = None if protocol is None else protocol.closed
        if gone is not None and transport is not None and gone not in self._still_open:
            self._still_open[gone] = transport
            gone.add_done_callback(self._has_gone)
        return connection

    def _has_gone(self, gone: asyncio.Future[None]) -> None:
        self._still_open.pop(gone, None)
        if not gone.cancelled():
            # Retrieved, so that asyncio does not warn: its user has got the error.
            gone.exception()

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Close all connections, and return when they are closed."""
        await super().close(abort_ssl=abort_ssl)
        if self._still_open:
            await asyncio.wait([*self._still_open], timeout=GOODBYE_S)
        for transport in [*self._still_open.values()]:
            transport.abort()
        # The transport closes its socket in the turn after connection_lost.
        await asyncio.sleep(0)


def refused_redirects(addresses: Addresses) -> aiohttp.TraceConfig:
    """A trace that makes an aiohttp session raise Unreachable if a server redirects."""

    async def refuse(
        _session: object, _context: object, seen: aiohttp.TraceRequestRedirectParams
    ) -> None:
        seen.response.close()
        requested = str(seen.response.url)
        url = next((one for one in addresses.all if requested.startswith(one)), requested)
        there = clipped(seen.response.headers.get(hdrs.LOCATION, "nowhere"))
        raise Unreachable(
            f"{url} redirects to {there}, which is not followed; if that is the server, "
            "give its address"
        )

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace


CONNECT_S = 10.0
"""Timeout of a connection: TCP sends a lost packet again after 1, 3 and 7 seconds."""
CONNECT_ELSEWHERE_S = 3.5
"""The same where there is another address to go on at: two of these packets."""

Token = str | Callable[[], str]
"""A token, or a function that returns one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuth:
    """The credentials of a client (`token`, or `user` and `password`, or a `certificate` with its
    `key`), and the file of certificates, in PEM form, that it trusts (`ca`; None: those that the
    machine trusts)."""

    token: Token | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def headers(self) -> dict[str, str]:
        """The headers of each request; raises ClientError for invalid credentials."""
        if self.token is not None and self.user is not None:
            raise ClientError(
                "a token identifies the user; give it, or user and password, not both"
            )
        if self.token is not None:
            token = self.token() if callable(self.token) else self.token
            if not token or not token.isascii() or not token.isprintable() or " " in token:
                raise ClientError("the token is empty or has invalid characters; copy it again")
            return {"Authorization": f"Bearer {token}"}
        if self.user is None:
            return {}
        if self.password is None:
            raise ClientError(f"user {self.user} has no password; give password as well")
        if ":" in self.user:
            raise ClientError(f"user {self.user} has a colon, which ends a name in HTTP")
        credentials = base64.b64encode(f"{self.user}:{self.password}".encode())
        return {"Authorization": f"Basic {credentials.decode()}"}

    def context(self) -> ssl.SSLContext | bool:
        """The TLS context for addresses with https://; True for the machine's own certificates.
        Raises ClientError for a file that cannot be used."""
        if self.ca is None and self.certificate is None:
            return True
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise ClientError(
                f"ca {self.ca} cannot be used ({error.strerror or error}); it is the file of the "
                "certificates, in PEM form, by which the server is trusted"
            ) from None
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except (OSError, ssl.SSLError) as error:
                raise ClientError(
                    f"certificate {self.certificate} cannot be used ({error.strerror or error}); "
                    "give its file and that of its key, in PEM form"
                ) from None
        return context


ANYBODY = ClientAuth()
"""No credentials."""


class HttpSession:
    """The HTTP connections of a client, from the first `opened()` to `close`, all in one event
    loop; `traces` are hooks of aiohttp's."""

    def __init__(
        self,
        addresses: Addresses,
        access: ClientAuth,
        traces: Callable[[], list[aiohttp.TraceConfig]],
    ) -> None:
        self._connect_s = CONNECT_ELSEWHERE_S if addresses.are_several else CONNECT_S
        self._access = access
        self._traces = traces
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def opened(self) -> aiohttp.ClientSession:
        """The session of aiohttp, opened with the first call; raises ClientError."""
        self.check_loop()
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s)
            connector = Connector(self._access.context())
            self._session = aiohttp.ClientSession(
                timeout=timeout, connector=connector, trace_configs=self._traces()
            )
            self._loop = asyncio.get_running_loop()
        return self._session

    def check_loop(self) -> None:
        """Raises ClientError if no event loop runs, or another than that of the connections."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if self._session is not None:
                return  # nothing is created or awaited here
            raise ClientError(
                "no event loop is running; call this in a coroutine, or use sow.client.sync"
            ) from None
        if self._session is not None and loop is not self._loop:
            raise ClientError(
                "this client has connections of another event loop; use and close it in one "
                "asyncio.run, and create another client in each further one"
            )

    async def close(self) -> None:
        """Close them all."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def checked_url(url: str) -> str:
    """The address without its final slash, with http:// if it has no scheme; raises ClientError for
    another scheme, or no host."""
    text = (url if "://" in url else f"http://{url}").rstrip("/")
    scheme, _, rest = text.partition("://")
    if "@" in rest.partition("/")[0]:
        # It would appear in every error, and is not shown here.
        raise ClientError("the address has a user in it; give user and password separately")
    if scheme not in ("http", "https") or not rest or not _names_a_host(text):
        raise ClientError(f"{shown(url)} is not an address such as {URL_DEFAULT}")
    return text


def checked_urls(given: str | Sequence[str]) -> list[str]:
    """The addresses of a list, or of text with commas; raises ClientError."""
    return [checked_url(url) for url in listed(given)]


Found = TypeVar("Found")


async def first_answer(
    addresses: Addresses,
    attempt: Callable[[str], Awaitable[Found]],
    for_writes: bool = False,
    is_repeatable: bool = True,
    without: Sequence[str] = (),
) -> Found:
    """What `attempt` returns at the first address of a round that answers.

    A follower that refuses names the primary, which is tried next. What is not `is_repeatable` is
    not tried again where it may have arrived. Addresses in `without` are left out. Raises the error
    of `attempt` that is not of a server that is away, and else, if no address answers, what speaks
    against each.
    """
    tried = list(without)
    errors: list[SowError] = []
    while (url := addresses.next(tried, for_writes)) is not None:
        tried.append(url)
        try:
            found = await attempt(url)
        except NotPrimary as error:
            errors.append(error)
            if error.primary:
                addresses.lead_to(error.primary, url)
            for_writes = True
        except SowError as error:
            if isinstance(error, Disconnected) and not is_repeatable:
                raise
            if not (is_away(error) or (isinstance(error, AnotherLog) and addresses.are_several)):
                raise
            errors.append(error)
            addresses.leave(url)
        else:
            if not for_writes:
                addresses.use(url)
            return found
    raise none_answers(errors) from errors[0].__cause__


def _names_a_host(url: str) -> bool:
    """Whether there is a host, and the port is a number if there is one."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
