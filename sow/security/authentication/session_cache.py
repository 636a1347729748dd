"""What goes on from one authenticator to the next, over a reload: who is known, what is hashed, and
how often somebody has tried. It knows nothing of files, and no library of passwords.
"""

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import Awaitable, Callable

from sow.core.clock import SECOND_US
from sow.core.users import User
from sow.errors import TooManyLogons
from sow.security.authentication.login_throttle import Attempts, whose

HASHED_AT_ONCE = 2
"""Threads: hashing gives up the interpreter lock, and the rest of the server wants a core."""
WAITING_MAX = 1_000
"""Logons that wait for a thread. Each further one is told to come again."""
KNOWN_MAX = 10_000
"""Users, or rather their credentials, that have been found out; those that came first go first."""


class Known:
    """Whom what was shown belongs to, by a sum that nobody outside this process can make."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._users: dict[bytes, tuple[User, int | None]] = {}

    def sum_of(self, *shown: str) -> bytes:
        """The sum of what was shown; no two lists of texts have the same."""
        parts = (part.encode(errors="surrogatepass") for part in shown)
        joined = b"".join(len(part).to_bytes(4) + part for part in parts)
        return hashlib.blake2b(joined, key=self._key, digest_size=32).digest()

    def get(self, found_by: bytes, now_us: int) -> User | None:
        """The user that was found by this sum, if it is known still."""
        user, until_us = self._users.get(found_by, (None, None))
        return None if until_us is not None and now_us >= until_us else user

    def put(self, found_by: bytes, user: User, until_us: int | None) -> None:
        """Remember him, until then if it is said."""
        self._users.pop(found_by, None)
        if len(self._users) >= KNOWN_MAX:
            del self._users[next(iter(self._users))]
        self._users[found_by] = user, until_us


class Logons:
    """What goes on from one authenticator to the next: who is known, who is being hashed, and how
    often somebody at an address has tried; `per_second` of that, None: as often as he likes."""

    def __init__(self, per_second: Callable[[], int] | None = None) -> None:
        self.known = Known()
        self.hashing = Hashing()
        self.attempts = Attempts(per_second) if per_second else None
        self.keys: dict[str, object] = {}
        """Keys that were fetched, by their address: no reload makes them be missing."""


class Hashing:
    """The few threads that hash. The addresses that wait for one take turns: a client that guesses
    delays nobody at another address by more than one guess."""

    def __init__(self) -> None:
        self._free = HASHED_AT_ONCE
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By the address, that first whose turn comes next; nobody waits while a thread is free."""

    async def run(self, address: str, hashing: Callable[[], Awaitable[bool]]) -> bool:
        """Its answer, in the turn of who is at `address`. Raises TooManyLogons if too many wait."""
        await self._turn(whose(address))
        running = asyncio.ensure_future(hashing())
        # A thread goes on when nobody waits for it any more, and its place is taken until then.
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
        """Where too many wait, the last comer of the address of which most do comes again later."""
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
