"""A budget: how much of something all may hold together, and how much of it each one.

An endpoint reserves what a request or a frame holds while it is read, and releases it when that is
done. Holders are counted per client: one client may hold a quarter, so that no single one takes all
of it. A quota only counts; the endpoint decides what follows when nothing is left (an error, a
wait).
"""

from collections import Counter
from collections.abc import Callable, Hashable

from sow.core.origin_parsing import is_loopback

SHARE = 4
"""One client may hold one part in so many."""


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


def client_of(owner: tuple[str, ...], address: str, connection: Hashable) -> Hashable:
    """The client that something counts for: its user, if it has one; else its address or, for a
    program on this machine, its connection."""
    return owner or (connection if not address or is_loopback(address) else address)
