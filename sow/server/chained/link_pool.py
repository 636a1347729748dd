"""The connections to the upstream server that single sessions use, each as long as it needs one.

One that has nothing under way serves the next session of the same user, so ten thousand clients
that come at once need no more of them than there are snapshots under way. There are so many at
most: who needs one more waits, and is refused after a while.
"""

import asyncio
from collections.abc import Sequence

from sow.errors import SowError, TooLarge
from sow.server.chained.link import Link, LinkOwner
from sow.server.chained.upstream import SideTasks, UpstreamServer, Who, log_failure

LINKS_MAX = 1_000
"""Each is a socket and a session upstream, some ten kilobytes at both ends: those of eight chained
servers are fewer than the connections that a server has by default."""
WAIT_S = 5.0
"""How long one waits for one: a thousand snapshots of a page take less."""
IDLE_S = 2.0
"""How long one stays open without use: a screen that asks once a second keeps it."""


class LinkPool:
    """Connections to `upstream`, `links_max` of them."""

    def __init__(self, upstream: UpstreamServer, links_max: int = LINKS_MAX) -> None:
        self._upstream = upstream
        self._links_max = links_max
        self._idle: dict[Link, Who] = {}
        self._used: set[Link] = set()
        self._opening = 0
        self._freed = asyncio.Condition()
        self._beside = SideTasks(log_failure)

    def __len__(self) -> int:
        return len(self._idle) + len(self._used) + self._opening

    async def take(self, who: Who, owner: LinkOwner, address: str) -> Link:
        """A connection for an owner whose client is at an address; raises UpstreamLost, TooLarge,
        and the error of a refusal."""
        await self._room(who)
        for link in [one for one, other in self._idle.items() if other == who]:
            del self._idle[link]
            if link.is_open:
                link.serve(owner)
                self._used.add(link)
                return link
            await self._close(link)
        return await self._opened(Link(self._upstream, who, owner, "chained", address))

    async def _room(self, who: Who) -> None:
        """Return when there may be one more, or there is one for these."""
        try:
            async with asyncio.timeout(WAIT_S), self._freed:
                while len(self) >= self._links_max and who not in self._idle.values():
                    if self._idle:
                        link = next(iter(self._idle))
                        del self._idle[link]
                        self._beside.start(link.close())
                    else:
                        await self._freed.wait()
        except TimeoutError:
            raise TooLarge(
                f"this chained server has {self._links_max} connections to its upstream server, "
                "all of them in use; send this again later, or start another chained server"
            ) from None

    async def _opened(self, link: Link) -> Link:
        self._opening += 1
        try:
            await link.open()
            self._used.add(link)
        finally:
            self._opening -= 1
            if link not in self._used:
                self._beside.start(self._notify())
        return link

    async def give_back(self, link: Link, is_clean: bool) -> None:
        """Its owner needs it no more; where nothing can come of that any more, another may."""
        if link not in self._used:
            return
        self._used.discard(link)
        if not (is_clean and link.is_open):
            await self._close(link)
            return
        self._idle[link] = link.who
        link.serve(_Nobody(self, link))
        asyncio.get_running_loop().call_later(IDLE_S, self._let_go, link, link.served)
        await self._notify()

    def forget(self, link: Link | None) -> None:
        """It has ended."""
        if link is not None:
            self._used.discard(link)
            self._idle.pop(link, None)
            self._beside.start(self._notify())

    def _let_go(self, link: Link, served: int) -> None:
        if link in self._idle and link.served == served:
            del self._idle[link]
            self._beside.start(self._close(link))

    async def _close(self, link: Link) -> None:
        await link.close()
        await self._notify()

    async def _notify(self) -> None:
        async with self._freed:
            self._freed.notify_all()

    async def close(self) -> None:
        """End those that nobody uses."""
        idle, self._idle = [*self._idle], {}
        for link in idle:
            await link.close()
        self._beside.cancel()


class _Nobody:
    """The owner of a connection that is not in use."""

    def __init__(self, pool: LinkPool, link: Link) -> None:
        self._pool = pool
        self._link = link

    async def take(self, lines: Sequence[bytes]) -> None:
        """Heartbeats and notices."""

    def on_lost(self) -> None:
        """The next one that is needed is opened."""
        self._pool._let_go(self._link, self._link.served)

    async def on_back(self, resumed: bool) -> None:
        """It is let go."""

    def on_refused(self, _error: SowError) -> None:
        """It has ended."""
        self._pool.forget(self._link)
