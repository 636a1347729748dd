"""The doorman: who asks, and whether he may.

Every address says what it demands (`sow.server.boot.routes`), and no request reaches its handler
before the doorman has found it met: who it is by what the request shows, what he may do by the
roles. Handlers find these rights with the request. A WebSocket may say who it is later, in a logon.
With the users or roles read again, the users of live sessions are found out anew.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hmac import compare_digest
from ssl import SSLContext
from typing import NamedTuple, Protocol

from aiohttp import ClientError as CallFailed
from aiohttp import ClientSession, ClientTimeout, hdrs, web

from sow.core.security_definitions import Authentication, Security, User
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
from sow.server.http.middleware import client_address, open_transport
from sow.sessions.commands.audit import Audit, Deed
from sow.sessions.queries.access_control import redact_error

log = logging.getLogger("sow")

RIGHTS = web.RequestKey("rights", Permissions)
SHOWN = web.RequestKey("shown", object)
UNDER = web.RequestKey("under", RoleSet)
REFUSALS = (NotEntitled, Unauthenticated, TooManyLogons)
SEEN_MAX = 10_000
"""Users at addresses of which it was noted that they come."""
FETCHED_BYTES_MAX = 1024 * 1024
"""Of a set of keys: a thousand of them."""
FETCHED_S_MAX = 5.0
"""How long an issuer may take to answer: whoever logs on waits for it."""


class Identifies(Protocol):
    """An authenticator."""

    async def identify(self, shown: Credentials, address: str = "") -> User:
        """Who that is; raises Unauthenticated, or that it has to wait."""
        ...

    async def identify_again(self, shown: Credentials) -> User:
        """Who that is now that was let in before; raises Unauthenticated."""
        ...

    def named(self, name: str) -> User:
        """Whom a name means."""
        ...


class PresentedCredentials(NamedTuple):
    """What somebody at an address has shown; `encryption` is what has checked his certificate."""

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
    """The doorman of one server. `make` makes an authenticator, and raises ConfigError. Who shows
    `own_token`, if that is no empty text, is the server itself."""

    def __init__(
        self,
        security: Security,
        make: Callable[[Authentication], Identifies],
        own_token: str = "",
        now_us: Callable[[], int] = lambda: 0,
        believes: Callable[[SSLContext | None], bool] = lambda _then: True,
    ) -> None:
        """`believes` says whether who has checked a certificate would find it good now."""
        self._make = make
        self._believes = believes
        self._now_us = now_us
        self._own_token = own_token.encode()
        self._names: Callable[[], Iterable[str]] = tuple
        self._patterns: Callable[[], Mapping[str, str]] = dict
        self._audit: Audit | None = None
        self._reach: Callable[[], None] = lambda: None
        self._seen: dict[tuple[str, ...], None] = {}
        self._who = self.read(security)

    def read(self, security: Security) -> SecuritySnapshot:
        """Read the users and the roles of a configuration; raises ConfigError."""
        by = security.authentication
        return SecuritySnapshot(None if by is None else self._make(by), RoleSet(security))

    def follow(
        self,
        names: Callable[[], Iterable[str]],
        audit: Audit,
        reach: Callable[[], None],
        patterns: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`names` are the topics that there are and `patterns` what makes others, for those who
        mistype one; deeds are noted in `audit`, once `reach` has let the engine know what time it
        is."""
        self._names = names
        self._patterns = patterns
        self._audit = audit
        self._reach = reach

    def _note(self, deed: Deed, rights: Permissions, what: str, **more: object) -> None:
        if self._audit is not None:
            # Where nobody does anything no time passes for the engine.
            self._reach()
            self._audit.note(deed, rights, what, **more)

    def go_on_under(self, who: SecuritySnapshot) -> None:
        """These users and roles hold from now on."""
        self._who = who

    @property
    def role_set(self) -> RoleSet:
        """The roles as they hold now."""
        return self._who.role_set

    # Requests.

    async def admit(self, request: web.Request, demand: Demand) -> Permissions:
        """Let a request in if it comes from whom its address is for, as far as no topic matters;
        raises Unauthenticated, NotEntitled."""
        if demand == "nothing":
            return EVERYTHING
        rights, shown = await self.authenticate_request(request)
        if rights.user is None:
            rights.check("logon")
        request[RIGHTS], request[SHOWN] = rights, shown
        request[UNDER], request[LET_IN_BY] = self._who.role_set, self
        return rights

    def check_still(self, rights: Permissions, under: RoleSet) -> None:
        """Raise Busy or Unauthenticated if rights that were found under these roles are not to be
        gone by any more."""
        now = self._who.role_set
        is_own = rights.is_open and under.authenticates
        if under is not now and (under.authenticates or now.authenticates) and not is_own:
            raise Busy("users and roles have been read again in this moment; send this again")
        if rights.expires_us is not None and rights.expires_us <= self._now_us():
            raise Unauthenticated("the credentials have expired")

    async def reauthorize_stream(self, request: web.Request) -> None:
        """Raise Busy or Unauthenticated if whoever sent a request may not have the rest of its
        answer: he may while he is known by what he has shown, and may do what he might."""
        under, who, had = request[UNDER], self._who, request[RIGHTS]
        if under is not who.role_set and not had.is_open:
            found = await self.find_again(request[SHOWN], who)
            rights = who.role_set.rights(found)
            if (rights.text, rights.owner) == (had.text, had.owner):
                request[RIGHTS], request[UNDER] = rights, who.role_set
        self.check_still(request[RIGHTS], request[UNDER])

    async def authenticate_request(
        self, request: web.Request
    ) -> tuple[Permissions, PresentedCredentials | None]:
        """The rights of whoever sends a request, and what he has shown; one that shows nothing
        comes from nobody."""
        authenticator, role_set = self._who
        if authenticator is None:
            return EVERYTHING, None
        transport = open_transport(request)
        certificate = transport and transport.get_extra_info("peercert")
        encryption = transport.get_extra_info("sslcontext") if transport and certificate else None
        if certificate and not self._believes(encryption):
            certificate = None
        header = request.headers.getall(hdrs.AUTHORIZATION, ())
        if len(header) > 1:
            raise ClientError("the header Authorization stands there twice")
        credentials = Credentials.of_header(header[0] if header else "", certificate or None)
        if not credentials:
            return role_set.rights(None), None
        # What is no text in a header has come as halves of characters.
        token = credentials.token.encode(errors="surrogatepass")
        if self._own_token and compare_digest(token, self._own_token):
            return EVERYTHING, None
        shown = PresentedCredentials(credentials, client_address(request), encryption)
        user = await authenticator.identify(shown.credentials, shown.address)
        if self._who.role_set is not role_set:
            # Read again meanwhile.
            return await self.authenticate_request(request)
        rights = role_set.rights(user)
        self._note_logon(rights, shown.address)
        return rights, shown

    async def may_administer(self, request: web.Request) -> bool:
        """Whether whoever sends a request that anybody may send is known for an administrator."""
        try:
            rights, _ = await self.authenticate_request(request)
        except SowError:
            return False
        return rights.may("admin")

    def _note_logon(self, rights: Permissions, address: str) -> None:
        """Somebody comes from an address: note it the first time, or anew where many have since."""
        who = (*rights.owner, address)
        if self._audit is None or who in self._seen:
            return
        self._seen[who] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        log.info(
            "%s has come over HTTP from %s", rights.user and clipped(rights.user.name), address
        )
        self._note("logon", rights, "HTTP", address=address)

    def note_refused(self, request: web.Request, rights: Permissions, error: SowError) -> None:
        """A request was refused for who sends it."""
        if isinstance(error, REFUSALS):
            what = f"{request.method} {request.path}"
            address = client_address(request)
            rights = self.nobody if rights.is_open else rights
            self._note("refused", rights, what, address=address, reason=error.detail)

    def note_admin(self, request: web.Request, rights: Permissions) -> None:
        """Somebody administers the server."""
        what = f"{request.method} {request.path}"
        self._note("admin", rights, what, address=client_address(request))

    @property
    def nobody(self) -> Permissions:
        """The rights of who has not said who he is."""
        return self.role_set.rights(None)

    def told(self, error: SowError, rights: Permissions) -> SowError:
        """An error as whoever has these rights is told of it."""
        return redact_error(error, rights, self._names(), self._patterns())

    # Logons.

    def asks_for(self, command: Command) -> bool:
        """Whether it has to be found out who sends a command, before it is carried out."""
        return command.shows_credentials and self._who.authenticator is not None

    async def identify(self, command: Command, address: str) -> None:
        """Note in a logon who sends it."""
        authenticator, role_set = self._who
        if authenticator is None:
            return  # since a moment ago nobody is asked
        credentials = Credentials(command.user or "", command.password or "", command.token or "")
        shown = PresentedCredentials(credentials, address)
        try:
            found: User | SowError = await authenticator.identify(credentials, address)
        except SowError as error:
            found = error.with_traceback(None)
        command.be_identified(Identified(found, role_set, shown))

    async def find_again(self, shown: object, who: SecuritySnapshot | None = None) -> User | None:
        """Whose it is what was `shown`, as it is known now or by `who`; None: nobody's."""
        authenticator = (who or self._who).authenticator
        if authenticator is None or not isinstance(shown, PresentedCredentials):
            return None
        credentials = shown.credentials
        if credentials.certificate and not self._believes(shown.encryption):
            credentials = replace(credentials, certificate=None)
        try:
            return await authenticator.identify_again(credentials)
        except SowError:
            return None

    def named(self, name: str) -> User:
        """The user of a name, for whom another acts."""
        return self._who.named(name)


AUTHN = web.AppKey("doorman", RequestAuthenticator)


LET_IN_BY = web.RequestKey("let_in_by", RequestAuthenticator)


def permissions_of(request: web.Request) -> Permissions:
    """What whoever sends a request may do; only addresses that ask who it is can say.

    To be asked once the request has been read and waited for, which its sender can make as long as
    he likes. Raises Busy and Unauthenticated if he may not do that any more.
    """
    rights = request[RIGHTS]
    request[LET_IN_BY].check_still(rights, request[UNDER])
    return rights


async def check_stream_continues(request: web.Request) -> None:
    """The same of an answer that takes its time: whose rights are as they were goes on. Raises Busy
    and Unauthenticated."""
    await request[LET_IN_BY].reauthorize_stream(request)


def credentials_of(request: web.Request) -> object:
    """By what it was found out who sends it."""
    return request[SHOWN]


async def fetch(address: str) -> bytes:
    """What an address answers: the keys of who gives tokens out. Raises OSError, TimeoutError."""
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
