"""Authentication of requests, and the permissions that follow from it.

A route demands a permission (`sow.server.http.route`). No request reaches its handler before its
user is identified by its credentials; the permissions follow from the user's roles, and the route
checks its demand against them. Handlers find the permissions in the request: a handler checks what
only the body names, and whether they still hold after it has waited. A WebSocket client may
authenticate later, in a logon. When users or roles are reloaded (`sow.server.boot.reload`), the
users of live sessions are identified again.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from hmac import compare_digest
from ssl import SSLContext
from typing import NamedTuple, Protocol

from aiohttp import ClientError as CallFailed
from aiohttp import ClientSession, ClientTimeout, hdrs, web

from sow.core.security_definitions import Authentication, Security, User
from sow.engine.engine import Engine
from sow.errors import (
    Busy,
    ClientError,
    NotEntitled,
    SowError,
    TooManyLogons,
    Unauthenticated,
    clipped,
)
from sow.protocol.commands import Command, Identified
from sow.security.authentication.credentials import Credentials
from sow.security.authorization import EVERYTHING, Demand, Permissions, RoleSet
from sow.server.http.request_origin import client_address, open_transport
from sow.sessions.commands.audit import Audit, AuditEvent
from sow.sessions.queries.access_control import redact_error

log = logging.getLogger("sow")

AS_HEADER = "SOW-As"
"""The user that a request is made for, by one with Impersonate: a chained server, for its
clients."""
REFUSALS = (NotEntitled, Unauthenticated, TooManyLogons)
LOGGED_MAX = 10_000
"""Pairs of user and address whose first request was logged."""
FETCHED_BYTES_MAX = 1024 * 1024
"""Size of a key set: a thousand keys."""
FETCHED_S_MAX = 5.0
"""How long an issuer may take to answer: the client that logs on waits for it."""


class Identifies(Protocol):
    """What identifies users: the interface of an authenticator."""

    async def identify(self, shown: Credentials, address: str = "") -> User:
        """The user with these credentials; raises Unauthenticated, or TooManyLogons."""
        ...

    async def identify_again(self, shown: Credentials) -> User:
        """The current user of credentials that were accepted before; raises Unauthenticated."""
        ...

    def named(self, name: str) -> User:
        """The user of a name."""
        ...


class PresentedCredentials(NamedTuple):
    """Credentials as a client at an address presented them; `encryption` is the TLS context that
    verified the certificate."""

    credentials: Credentials
    address: str
    encryption: SSLContext | None = None


class SecuritySnapshot(NamedTuple):
    """The users and roles of one reading of the configuration."""

    authenticator: Identifies | None
    role_set: RoleSet

    def named(self, name: str) -> User:
        """The user of a name."""
        return User(name) if self.authenticator is None else self.authenticator.named(name)


class RequestAuthenticator:
    """Authenticates the requests of one server. `make` creates an authenticator and raises
    ConfigError. A request with `own_token`, if that is not empty, comes from the server itself."""

    def __init__(
        self,
        security: Security,
        make: Callable[[Authentication], Identifies],
        own_token: str,
        now_us: Callable[[], int],
        certificate_trusted: Callable[[SSLContext | None], bool],
    ) -> None:
        """`certificate_trusted` returns whether a certificate that a TLS context verified would be
        accepted now."""
        self._make = make
        self._certificate_trusted = certificate_trusted
        self._now_us = now_us
        self._own_token = own_token.encode()
        self._running: tuple[Engine, Audit, Callable[[], int]] | None = None
        self._logged: dict[tuple[str, ...], None] = {}
        self._security = self.read(security)

    def read(self, security: Security) -> SecuritySnapshot:
        """Read the users and the roles of a configuration; raises ConfigError."""
        by = security.authentication
        return SecuritySnapshot(None if by is None else self._make(by), RoleSet(security))

    def follow(self, engine: Engine, audit: Audit, now_us: Callable[[], int]) -> None:
        """All records are restored: error messages suggest names of the engine's topics, and
        actions are noted in `audit` at the time `now_us`."""
        self._running = engine, audit, now_us

    def _note(self, event: AuditEvent, rights: Permissions, what: str, **more: object) -> None:
        if self._running is not None:
            engine, audit, now_us = self._running
            # An idle engine's time stands still.
            engine.sequencer.moment(now_us())
            audit.note(event, rights, what, **more)

    def swap_security(self, snapshot: SecuritySnapshot) -> None:
        """Use these users and roles from now on."""
        self._security = snapshot

    @property
    def role_set(self) -> RoleSet:
        """The current roles."""
        return self._security.role_set

    # Requests.

    async def admit(self, request: web.Request, demand: Demand) -> Permissions:
        """The permissions of a request to a route with this demand, which the route checks; raises
        Unauthenticated, also for a client without credentials."""
        if demand == "nothing":
            return EVERYTHING
        rights, shown = await self.authenticate_request(request)
        if rights.user is None:
            rights.check("logon")
        request[ADMISSION] = Admission(rights, shown, self._security.role_set, self)
        return rights

    def ensure_still_authorized(self, rights: Permissions, under: RoleSet) -> None:
        """Raise Busy or Unauthenticated if permissions that were derived from the roles `under` are
        no longer valid."""
        now = self._security.role_set
        is_own = rights.is_open and under.authenticates
        if under is not now and (under.authenticates or now.authenticates) and not is_own:
            raise Busy("users and roles have been read again in this moment; send this again")
        if rights.expires_us is not None and rights.expires_us <= self._now_us():
            raise Unauthenticated("the credentials have expired")

    async def reauthorize_stream(self, request: web.Request) -> None:
        """Raise Busy or Unauthenticated unless the client may have the rest of its answer: its
        credentials are still accepted, with the same permissions."""
        admission, current = request[ADMISSION], self._security
        had = admission.rights
        if admission.under is not current.role_set and not had.is_open:
            found = await self.identify_again(admission.shown, current)
            rights = current.role_set.rights(found)
            if (rights.text, rights.owner) == (had.text, had.owner):
                admission = admission._replace(rights=rights, under=current.role_set)
                request[ADMISSION] = admission
        self.ensure_still_authorized(admission.rights, admission.under)

    async def authenticate_request(
        self, request: web.Request
    ) -> tuple[Permissions, PresentedCredentials | None]:
        """The permissions of a request, and its credentials; a request without any is anonymous."""
        authenticator, role_set = self._security
        if authenticator is None:
            return EVERYTHING, None
        transport = open_transport(request)
        certificate = transport and transport.get_extra_info("peercert")
        encryption = transport.get_extra_info("sslcontext") if transport and certificate else None
        if certificate and not self._certificate_trusted(encryption):
            certificate = None
        header = request.headers.getall(hdrs.AUTHORIZATION, ())
        if len(header) > 1:
            raise ClientError("the request has several Authorization headers; send one")
        credentials = Credentials.of_header(header[0] if header else "", certificate or None)
        if not credentials:
            return role_set.rights(None), None
        # Bytes of a header that are not UTF-8 are surrogates here.
        token = credentials.token.encode(errors="surrogatepass")
        if self._own_token and compare_digest(token, self._own_token):
            return EVERYTHING, None
        shown = PresentedCredentials(credentials, client_address(request), encryption)
        user = await authenticator.identify(shown.credentials, shown.address)
        if self._security.role_set is not role_set:
            # The roles were reloaded meanwhile.
            return await self.authenticate_request(request)
        rights = role_set.rights(user)
        acts_as = request.headers.get(AS_HEADER)
        if acts_as is not None and not rights.is_open:
            rights.check("impersonate")
            rights = role_set.rights(self.named(acts_as), user)
        self._note_logon(rights, shown.address)
        return rights, shown

    async def is_known(self, request: web.Request) -> bool:
        """Whether a request to a public address has credentials, or needs none; raises what
        `authenticate_request` does."""
        rights, _ = await self.authenticate_request(request)
        return rights.is_somebody

    async def may_administer(self, request: web.Request) -> bool:
        """Whether a request to a public address comes from an administrator."""
        try:
            rights, _ = await self.authenticate_request(request)
        except SowError:
            return False
        return rights.may("admin")

    def _note_logon(self, rights: Permissions, address: str) -> None:
        """Log the first request of a user from an address; again after many others."""
        client = (*rights.owner, address)
        if self._running is None or client in self._logged:
            return
        self._logged[client] = None
        if len(self._logged) > LOGGED_MAX:
            del self._logged[next(iter(self._logged))]
        log.info(
            "%s connects over HTTP from %s", rights.user and clipped(rights.user.name), address
        )
        self._note("logon", rights, "HTTP", address=address)

    def note_refused(self, request: web.Request, rights: Permissions, error: SowError) -> None:
        """Note a refused request in the audit, if credentials or permissions are the reason."""
        if isinstance(error, REFUSALS):
            what = f"{request.method} {request.path}"
            address = client_address(request)
            rights = self.anonymous if rights.is_open else rights
            self._note("refused", rights, what, address=address, reason=error.detail)

    def note_admin(self, request: web.Request, rights: Permissions) -> None:
        """Note in the audit that a request changes the server."""
        what = f"{request.method} {request.path}"
        self._note("admin", rights, what, address=client_address(request))

    @property
    def anonymous(self) -> Permissions:
        """The permissions of an anonymous client."""
        return self.role_set.rights(None)

    def redact(self, error: SowError, rights: Permissions) -> SowError:
        """An error without names that these permissions may not see."""
        if self._running is None:
            return redact_error(error, rights, (), {})
        engine = self._running[0]
        return redact_error(error, rights, engine.topics, engine.catalog.pattern_texts)

    # Logons.

    def must_identify(self, command: Command) -> bool:
        """Whether the client of a command has to be identified before it is executed."""
        return command.shows_credentials and self._security.authenticator is not None

    async def identify(self, command: Command, address: str) -> None:
        """Identify the client of a logon, and attach the result to the command."""
        authenticator, role_set = self._security
        if authenticator is None:
            return  # authentication was just disabled
        credentials = Credentials(command.user or "", command.password or "", command.token or "")
        shown = PresentedCredentials(credentials, address)
        try:
            found: User | SowError = await authenticator.identify(credentials, address)
        except SowError as error:
            found = error.with_traceback(None)
        command.be_identified(Identified(found, role_set, shown))

    async def identify_again(
        self, shown: object, snapshot: SecuritySnapshot | None = None
    ) -> User | None:
        """The user with the `shown` credentials, by the current users or those of `snapshot`;
        None: they are not accepted."""
        authenticator = (snapshot or self._security).authenticator
        if authenticator is None or not isinstance(shown, PresentedCredentials):
            return None
        credentials = shown.credentials
        if credentials.certificate and not self._certificate_trusted(shown.encryption):
            credentials = replace(credentials, certificate=None)
        try:
            return await authenticator.identify_again(credentials)
        except SowError:
            return None

    def named(self, name: str) -> User:
        """The user of a name, on whose behalf another user acts."""
        return self._security.named(name)


AUTHN = web.AppKey("authn", RequestAuthenticator)


class Admission(NamedTuple):
    """What admitted a request: its permissions, by the roles `under`, and the credentials `shown`
    that they follow from."""

    rights: Permissions
    shown: PresentedCredentials | None
    under: RoleSet
    by: RequestAuthenticator


ADMISSION = web.RequestKey("admission", Admission)


def permissions_of(request: web.Request) -> Permissions:
    """The permissions of a request; only for routes that authenticate.

    Call it after the request has been read, which can take as long as its client likes. Raises Busy
    and Unauthenticated if they are no longer valid.
    """
    rights, _, under, authenticator = request[ADMISSION]
    authenticator.ensure_still_authorized(rights, under)
    return rights


async def reauthorize_stream(request: web.Request) -> None:
    """Raise Busy or Unauthenticated unless a long answer may continue: the permissions are
    unchanged."""
    await request[ADMISSION].by.reauthorize_stream(request)


def credentials_user(request: web.Request) -> str | None:
    """The name of the user of a request; None where there are none."""
    user = permissions_of(request).user
    return None if user is None else user.name


def credentials_of(request: web.Request) -> object:
    """The credentials of a request."""
    return request[ADMISSION].shown


async def fetch(address: str) -> bytes:
    """The content of a URL: an issuer's keys. Raises OSError, TimeoutError."""
    timeout = ClientTimeout(total=FETCHED_S_MAX)
    try:
        async with (
            ClientSession(timeout=timeout) as calls,
            calls.get(address, allow_redirects=False) as answer,
        ):
            body = await answer.content.read(FETCHED_BYTES_MAX + 1)
            while len(body) <= FETCHED_BYTES_MAX and not answer.content.at_eof():
                body += await answer.content.read(FETCHED_BYTES_MAX + 1 - len(body))
            if answer.status != 200:
                raise OSError(f"it answers {answer.status}")
    except CallFailed as error:
        raise OSError(str(error)) from None
    if len(body) > FETCHED_BYTES_MAX:
        raise OSError(f"they are over {FETCHED_BYTES_MAX} bytes")
    return body
