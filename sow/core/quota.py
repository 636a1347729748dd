"""A budget: how much of something all may hold together, and how much of it each one.

An endpoint reserves what a request or a frame holds while it is read, and releases it when that is
done. Holders are counted per client: one client may hold a quarter, so that no single one takes all
of it. A quota only counts; the endpoint decides what follows when nothing is left (an error, a
wait).
"""

from collections.abc import Callable, Hashable

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
        held = self._by_client.get(client, 0) + amount
        if held:
            self._by_client[client] = held
        else:
            self._by_client.pop(client, None)
