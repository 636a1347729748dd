"""Quotas: how much of something all may hold together, how much of it each one, and how much each
may do a second.

An endpoint reserves what a request or a frame holds while it is read, and releases it when that is
done. Holders are counted per client: one client may hold a quarter, so that no single one takes all
of it. A quota only counts; the endpoint decides what follows when nothing is left (an error, a
wait).

What a user may publish a second (`Limits/PublishesPerSecond`) is a token bucket: it holds as many
messages as that and refills at that rate. A user with any tokens left may publish a whole batch,
and then waits until the debt is paid: so a batch larger than a second's worth can be published at
all. Without authentication all clients are one user. Time is a parameter.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Protocol

from sow.core.addresses import is_loopback
from sow.core.definitions import Limits
from sow.errors import Busy

SHARE = 4
"""One client may hold one part in so many."""
NEARLY_FULL = 0.9
"""The part of a bound from which it is reported."""
USERS_KEPT = 10_000
"""Maximum number of token buckets; beyond it, users that published longest ago start with a full
one again."""


class QuotaHolder:
    """What one request or connection holds, counted for `client`."""

    __slots__ = ("_budget", "client", "held")

    def __init__(self, budget: "Quota", client: Hashable) -> None:
        self.client = client
        self.held = 0
        self._budget = budget

    def lack(self, amount: int) -> str | None:
        """Why there is no room for so much more, or None."""
        return self._budget.lack(self.client, amount)

    def add(self, amount: int) -> None:
        """Hold so much more, room or not; less if it is negative."""
        self.held += amount
        self._budget.count(self.client, amount)

    def set(self, amount: int) -> None:
        """Hold so much and no more."""
        self._budget.count(self.client, amount - self.held)
        self.held = amount

    def release(self) -> None:
        """Hold nothing any more."""
        self.set(0)


class SharedHolder:
    """What several clients hold together: once in all, and for each of them the whole, as of the
    last `settle`. `changed` is called when more or less is held, from `watch` on."""

    __slots__ = ("_budget", "_changed", "_settled", "clients", "held")

    def __init__(self, budget: "Quota") -> None:
        self.held = self._settled = 0
        self.clients: Counter[Hashable] = Counter()
        """How often each holds it."""
        self._budget = budget
        self._changed: Callable[[SharedHolder], None] | None = None

    def watch(self, changed: "Callable[[SharedHolder], None]") -> None:
        """Call `changed` from now on."""
        self._changed = changed

    def add(self, amount: int) -> None:
        """Hold so much more; less if it is negative. Called at each change, so no client is counted
        here: there may be a thousand."""
        self.held += amount
        if self.clients:
            self._budget.used += amount
            if self._changed is not None:
                self._changed(self)

    def settle(self) -> None:
        """Count for the clients what was added."""
        more, self._settled = self.held - self._settled, self.held
        for client in self.clients if more else ():
            self._budget.count_for(client, more)

    def join(self, client: Hashable) -> None:
        """A client holds it, perhaps once more."""
        self.settle()
        if not self.clients:
            self._budget.used += self.held
        if client not in self.clients:
            self._budget.count_for(client, self.held)
        self.clients[client] += 1

    def leave(self, client: Hashable) -> None:
        """A client holds it once less. What nobody holds does not count."""
        self.settle()
        self.clients[client] -= 1
        if not self.clients[client]:
            del self.clients[client]
            self._budget.count_for(client, -self.held)
        if not self.clients:
            self._budget.used -= self.held


class Quota:
    """`limit` says how much there is at the moment; it may change while much is held."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self.used = 0
        self._by_client: dict[Hashable, int] = {}

    @property
    def room(self) -> int:
        """How much there is left; less than nothing where some were let through."""
        return self._limit() - self.used

    @property
    def is_crowded(self) -> bool:
        """So far beyond the quota that nothing more may be admitted."""
        return -self.room > self._limit() // SHARE

    def is_over_share(self, client: Hashable) -> bool:
        """Whether a client has used up its share."""
        return self._by_client.get(client, 0) >= self._limit() // SHARE

    def warning(self, what: str) -> str | None:
        """How full it is, where that is nearly full."""
        return fill_warning(what, self.used, self._limit())

    def holder(self, client: Hashable) -> QuotaHolder:
        """A holder with nothing reserved yet."""
        return QuotaHolder(self, client)

    def lack(self, client: Hashable, amount: int) -> str | None:
        """Why `amount` more does not fit into the client's share or the whole; None if it does."""
        limit = self._limit()
        if self._by_client.get(client, 0) + amount > limit // SHARE:
            return f"this client holds as much as one may, a quarter of {limit} bytes"
        if self.used + amount > limit:
            return f"all clients together hold as much as they may, {limit} bytes"
        return None

    def count(self, client: Hashable, amount: int) -> None:
        """Count what a holder reserves or releases."""
        self.used += amount
        self.count_for(client, amount)

    def count_for(self, client: Hashable, amount: int) -> None:
        """Count it for a client alone: in all it is counted already."""
        held = self._by_client.get(client, 0) + amount
        if held:
            self._by_client[client] = held
        else:
            self._by_client.pop(client, None)


def fill_warning(what: str, used: int, limit: int) -> str | None:
    """How full something is, where that is nearly full."""
    return f"{what} {used / limit:.0%} full" if used >= NEARLY_FULL * limit else None


def client_of(owner: tuple[str, ...], address: str, connection: Hashable) -> Hashable:
    """The client that something counts for: its user, if it has one; else its address or, for a
    program on this machine, its connection."""
    return owner or (connection if not address or is_loopback(address) else address)


class Owned(Protocol):
    """What belongs to a user, `()` where there are none."""

    @property
    def owner(self) -> tuple[str, ...]:
        """The user."""


class RateLimited(Busy):
    """The user publishes faster than permitted; the client may retry after `retry_after_s`."""


class RateLimiter:
    """The buckets of all users: how many messages each has left, as of when."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self._buckets: dict[tuple[str, ...], tuple[float, int]] = {}

    def take(self, rights: Owned, count: int, now_us: int) -> None:
        """Take tokens for `count` messages of a user; raises RateLimited, and takes nothing."""
        error = self.charge(rights, count, now_us)
        if error is not None:
            raise error

    def charge(self, rights: Owned, count: int, now_us: int) -> RateLimited | None:
        """The same, but the error is returned."""
        most = self._limits().publishes_per_second_max
        if most is None:
            return None
        left, since_us = self._buckets.pop(rights.owner, (float(most), now_us))
        left = min(most, left + max(0, now_us - since_us) * most / 1_000_000)
        self._buckets[rights.owner] = left if left <= 0 else left - count, now_us
        if len(self._buckets) > USERS_KEPT:
            del self._buckets[next(iter(self._buckets))]
        if left > 0:
            return None
        error = RateLimited(
            f"more than {most} messages a second are published (Limits/PublishesPerSecond); "
            f"go on in {-left / most:.1f} s"
        )
        error.retry_after_s = max(1, math.ceil(-left / most))
        return error

    def give_back(self, rights: Owned, count: int) -> None:
        """Return the tokens of messages that were not published after all."""
        if rights.owner in self._buckets:
            left, since_us = self._buckets[rights.owner]
            self._buckets[rights.owner] = left + count, since_us
