"""State that outlives an authenticator over a reload: authenticated users, hashing in progress, and
attempts. It knows nothing of files, and no password library.

An address has so many attempts a second, and each failure in a row doubles the wait for the next,
so that a list of passwords takes years. Cached credentials count as no attempt: behind one proxy,
users who work continue while an attacker guesses. An IPv6 network counts as one address, since its
owner has all of it. Time is a parameter.
"""

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, ip_address

from sow.core.clock import SECOND_US
from sow.core.security_definitions import User
from sow.errors import TooManyLogons

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
