"""The authenticator: credentials in, a user out, by the configured methods.

Passwords are hashed in threads, a few at a time, since each takes 20 ms and 19 MiB. Results are
cached by a digest of the credentials, keyed with a secret of this process, because Basic and Bearer
come with every request. The next authenticator, after a reload, keeps the entries whose lines in
the files are unchanged: `Logons` outlives an authenticator over a reload.

An address has so many attempts a second, and each failure in a row doubles the wait for the next,
so that a list of passwords takes years. Cached credentials count as no attempt: behind one proxy,
users who work continue while an attacker guesses. An IPv6 network counts as one address, since its
owner has all of it. Time is a parameter.
"""

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv6Address, ip_address

from sow.core.clock import SECOND_US
from sow.core.security_definitions import Authentication, User
from sow.errors import TooManyLogons, Unauthenticated
from sow.security.authentication.credentials import LONGEST, Credentials, user_of
from sow.security.authentication.htpasswd import Users
from sow.security.authentication.jwt import Fetch, FetchedKeys, FiledKeys, SignedTokens, is_signed
from sow.security.authentication.tokens import Tokens

ADDRESSES_KEPT = 10_000
"""Of the others that came longest ago nothing is known any more; they have waited."""
FREE_FAILURES = 3
"""A mistyped password costs nothing."""
FIRST_WAIT_US = 100_000
"""It doubles with each further failure: guessing slows down at once, a person does not notice."""
LONGEST_WAIT_US = 5 * SECOND_US
"""A whole desk may share one address: it is slowed down, not locked out."""


class Attempts:
    """The attempts of each address: `per_second()` of them, and as many in a burst."""

    def __init__(self, per_second: Callable[[], int]) -> None:
        self._per_second = per_second
        self._places: dict[str, _Address] = {}

    def wait_us(self, address: str, now_us: int) -> int:
        """Take one attempt of an address; how long it has to wait for it: then none is taken."""
        address = network_of(address)
        per_second = self._per_second()
        place = self._places.pop(address, None) or _Address(per_second, now_us)
        self._places[address] = place
        if len(self._places) > ADDRESSES_KEPT:
            del self._places[next(iter(self._places))]
        return place.wait_us(per_second, now_us)

    def failed(self, address: str, now_us: int) -> None:
        """The attempt failed."""
        if place := self._places.get(network_of(address)):
            place.failed(now_us)

    def succeeded(self, address: str) -> None:
        """The attempt succeeded."""
        if place := self._places.get(network_of(address)):
            place.failures = 0


def network_of(address: str) -> str:
    """The network of an address: for IPv6 its /64, which is what a single machine is given."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address) or found.is_link_local:
        return address
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))


class _Address:
    """What is left to one address, as of `since_us`, and its failures in a row."""

    __slots__ = ("_blocked_until_us", "_left", "_since_us", "failures")

    def __init__(self, left: int, now_us: int) -> None:
        self._left = float(left)
        self._since_us = now_us
        self._blocked_until_us = 0
        self.failures = 0

    def wait_us(self, per_second: int, now_us: int) -> int:
        passed_us = max(0, now_us - self._since_us)
        self._left = min(per_second, self._left + passed_us * per_second / SECOND_US)
        self._since_us = now_us
        if now_us < self._blocked_until_us:
            return self._blocked_until_us - now_us
        if self._left < 1:
            return int((1 - self._left) * SECOND_US / per_second) + 1
        self._left -= 1
        return 0

    def failed(self, now_us: int) -> None:
        self.failures += 1
        over = self.failures - FREE_FAILURES
        if over > 0:
            wait_us = min(LONGEST_WAIT_US, FIRST_WAIT_US << min(over - 1, 10))
            self._blocked_until_us = now_us + wait_us


HASHED_AT_ONCE = 2
"""Threads: hashing gives up the interpreter lock, and the rest of the server wants a core."""
WAITING_MAX = 1_000
"""Logons that wait for a thread. Further ones get TooManyLogons."""
KNOWN_MAX = 10_000
"""Users, or rather their credentials, that have been found out; those that came first go first."""


class Known:
    """Users by a digest of their credentials that cannot be computed outside this process."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._users: dict[bytes, tuple[User, int | None]] = {}

    def sum_of(self, *shown: str) -> bytes:
        """The digest of credentials; different lists of texts have different ones."""
        parts = (part.encode(errors="surrogatepass") for part in shown)
        joined = b"".join(len(part).to_bytes(4) + part for part in parts)
        return hashlib.blake2b(joined, key=self._key, digest_size=32).digest()

    def get(self, found_by: bytes, now_us: int) -> User | None:
        """The cached user of this digest, or None."""
        user, until_us = self._users.get(found_by, (None, None))
        return None if until_us is not None and now_us >= until_us else user

    def put(self, found_by: bytes, user: User, until_us: int | None) -> None:
        """Cache a user, until `until_us` if given."""
        self._users.pop(found_by, None)
        if len(self._users) >= KNOWN_MAX:
            del self._users[next(iter(self._users))]
        self._users[found_by] = user, until_us


class Logons:
    """State passed from one authenticator to the next: authenticated users, hashing in progress,
    and attempts of each address, at most `per_second`; None: unlimited."""

    def __init__(self, per_second: Callable[[], int] | None = None) -> None:
        self.known = Known()
        self.hashing = Hashing()
        self.attempts = Attempts(per_second) if per_second else None
        self.keys: dict[str, object] = {}
        """Fetched keys by address: they survive a reload."""


class Hashing:
    """The few threads that hash. Waiting addresses take turns: a client that guesses delays clients
    at another address by at most one guess."""

    def __init__(self) -> None:
        self._free = HASHED_AT_ONCE
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By address, the next turn first; empty while a thread is free."""

    async def run(self, address: str, hashing: Callable[[], Awaitable[bool]]) -> bool:
        """Run `hashing` in the turn of `address`. Raises TooManyLogons if too many wait."""
        await self._turn(network_of(address))
        running = asyncio.ensure_future(hashing())
        # A thread continues after its waiter has gone, and occupies its place until then.
        running.add_done_callback(lambda _: self._release())
        return await asyncio.shield(running)

    async def _turn(self, address: str) -> None:
        if self._free:
            self._free -= 1
            return
        self._make_room(address)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(address, turn)
            else:
                self._release()
            raise

    def _make_room(self, address: str) -> None:
        """Where too many wait, the last waiter of the address with the most waiters is rejected."""
        if sum(map(len, self._waiting.values())) < WAITING_MAX:
            return
        most = max(self._waiting.values(), key=len)
        if len(most) <= len(self._waiting.get(address, ())) + 1:
            raise _too_many()
        last = most.pop()
        if not last.cancelled():
            last.set_exception(_too_many())

    def _forget(self, address: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(address)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[address]

    def _release(self) -> None:
        self._free += 1
        while self._free and self._waiting:
            address = next(iter(self._waiting))
            turns = self._waiting.pop(address)
            turn = turns.popleft()
            if turns:
                self._waiting[address] = turns
            if not turn.cancelled():
                turn.set_result(None)
                self._free -= 1


def _too_many() -> TooManyLogons:
    return TooManyLogons("too many log on at once", wait_us=SECOND_US)


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
