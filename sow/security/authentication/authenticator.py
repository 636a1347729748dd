"""The authenticator: credentials in, a user out, by the configured methods.

Passwords are hashed in threads, a few at a time, since each takes 20 ms and 19 MiB. Results are
cached by a digest of the credentials, keyed with a secret of this process, because Basic and Bearer
come with every request. The next authenticator, after a reload, keeps the entries whose lines in
the files are unchanged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from sow.core.security_definitions import Authentication, User
from sow.errors import TooManyLogons, Unauthenticated
from sow.security.authentication.credentials import LONGEST, Credentials, user_of
from sow.security.authentication.htpasswd import Users
from sow.security.authentication.jwt import Fetch, FetchedKeys, FiledKeys, SignedTokens, is_signed
from sow.security.authentication.session_cache import Logons
from sow.security.authentication.tokens import Tokens

SIGNED_KNOWN_US = 600_000_000
"""After this a signed token is verified again: its key may have been withdrawn."""

NOT_GOOD = "the user or the password is not good"


def in_thread(function: Callable[..., bool], *arguments: str) -> Awaitable[bool]:
    """Where hashing runs, unless a test replaces it."""
    return asyncio.to_thread(function, *arguments)


class Authenticator:
    """Authenticates credentials. `now_us` is the server's time. Issuers write expiry times by their
    own clocks; the server's may be ahead of these, where a clock was set back, and is never behind
    for long."""

    def __init__(
        self,
        by: Authentication,
        *,
        now_us: Callable[[], int],
        fetch: Fetch,
        report: Callable[[str], None] = lambda _: None,
        logons: Logons | None = None,
        beside: Callable[..., Awaitable[bool]] = in_thread,
    ) -> None:
        """Reads the files. Raises ConfigError with the file and the line.

        `fetch` gets the response of an address; `report` is called with a sentence for the log when
        something goes wrong; `logons` is the state of the previous authenticator, if there was one.
        """
        self._now_us = now_us
        self._beside = beside
        logons = logons or Logons()
        self._attempts = logons.attempts
        self._known = logons.known
        self._hashing = logons.hashing
        self._users = Users.read(by.users_file) if by.users_file else None
        self._tokens = Tokens.read(by.tokens_file) if by.tokens_file else None
        self._certificates = by.client_certificates
        self._signed: SignedTokens | None = None
        if jwt := by.jwt:
            keys: FiledKeys | FetchedKeys
            if jwt.keys.startswith("https://"):
                had = logons.keys.get(jwt.keys)
                keys = had if isinstance(had, FetchedKeys) else FetchedKeys(jwt.keys, now_us)
                keys.go_on(fetch, report)
                logons.keys = {jwt.keys: keys}
            else:
                keys = FiledKeys(jwt.keys)
            self._signed = SignedTokens(jwt, keys, now_us)

    async def identify(self, shown: Credentials, address: str = "") -> User:
        """The user of these credentials, presented from an address. Raises Unauthenticated;
        TooManyLogons after too many attempts from the address.
        """
        if not shown:
            raise Unauthenticated("log on first, with a token, or a user and his password")
        if len(shown.user) + len(shown.password) + len(shown.token) > LONGEST:
            raise Unauthenticated(f"credentials are longer than {LONGEST} characters")
        if (user := self._known_user(shown)) is None:
            self._take_attempt(address)
            try:
                user = await self._find_out(shown, address)
            except (Unauthenticated, asyncio.CancelledError):
                # A client that disconnects before the result has still used an attempt, and a
                # thread.
                self._failed(address)
                raise
            if self._attempts is not None:
                self._attempts.succeeded(address)
        return self._still_good(user)

    async def identify_again(self, shown: Credentials) -> User:
        """The same after a reload, for a client already admitted with these credentials. It counts
        as no attempt: many users behind one address must not be rejected for being many. Raises
        Unauthenticated."""
        user = self._known_user(shown)
        return self._still_good(await self._find_out(shown) if user is None else user)

    def named(self, name: str) -> User:
        """A user who is impersonated, with the groups of the files. There are no credentials, so
        there are no claims of a token."""
        groups = self._users.groups(name) if self._users else frozenset()
        return User(name, groups | (self._tokens.groups(name) if self._tokens else frozenset()))

    def _still_good(self, user: User) -> User:
        # This does not count as a failed attempt: a program that keeps sending an expired token
        # would block its whole address.
        if user.expires_us is not None and self._now_us() >= user.expires_us:
            raise Unauthenticated("the credentials have expired")
        return user

    def _known_user(self, shown: Credentials) -> User | None:
        """The user, if that needs no slow check."""
        if shown.token:
            found = self._tokens.user(shown.token) if self._tokens else None
            return found or (self._remembered(shown) if self._signed else None)
        if shown.user or shown.password:
            return self._remembered(shown) if self._users else None
        return self._user_of(shown.certificate or {})

    def _remembered(self, shown: Credentials) -> User | None:
        return self._known.get(self._sum(shown), self._now_us())

    async def _find_out(self, shown: Credentials, address: str = "") -> User:
        if shown.token:
            if self._signed is None or not is_signed(shown.token):
                raise Unauthenticated("the token is not good")
            user = await self._signed.user(shown.token)
        elif shown.user or shown.password:
            user = await self._by_password(shown.user, shown.password, address)
        else:
            raise Unauthenticated("the certificate names no user: it has not one common name")
        until_us = self._now_us() + SIGNED_KNOWN_US if shown.token else None
        self._known.put(self._sum(shown), user, until_us)
        return user

    async def _by_password(self, name: str, password: str, address: str) -> User:
        users = self._users
        if users is None:
            raise Unauthenticated("this server accepts no passwords: log on with a token")
        good = await self._hashing.run(
            address, lambda: self._beside(users.is_password, name, password)
        )
        if not good:
            raise Unauthenticated(NOT_GOOD)
        return User(name, users.groups(name))

    def _sum(self, shown: Credentials) -> bytes:
        """The cache key: the credentials and what the files hold for them, so that a changed
        password or changed groups invalidate the entry."""
        if shown.token:
            assert self._signed is not None
            return self._known.sum_of("token", shown.token, self._signed.named)
        assert self._users is not None
        kept = self._users.hashes.get(shown.user, "")
        groups = sorted(self._users.groups(shown.user))
        return self._known.sum_of("password", shown.user, shown.password, kept, *groups)

    def _user_of(self, certificate: Mapping[str, object]) -> User | None:
        return user_of(certificate) if self._certificates else None

    def _take_attempt(self, address: str) -> None:
        if self._attempts is None:
            return
        if wait_us := self._attempts.wait_us(address, self._now_us()):
            raise TooManyLogons(
                f"too many logons from {address}: try again in {wait_us / 1e6:.1f} s",
                wait_us=wait_us,
            )

    def _failed(self, address: str) -> None:
        if self._attempts is not None:
            self._attempts.failed(address, self._now_us())
