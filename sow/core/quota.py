"""A budget: how much of something all may hold together, and how much of it each one.

Doors take from it what a request or a frame holds while it is read, and give it back when that is
done. Holders are known by the client that they are for: one client may hold a quarter, so that no
single one takes the room of all. A budget only counts; what becomes of whoever gets nothing (a
refusal, a wait) is the door's business.
"""

from collections.abc import Callable, Hashable

SHARE = 4
"""One client may hold one part in so many."""


class QuotaHolder:
    """What one request or connection holds. `client` is whom it counts for."""

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
        self.add(amount - self.held)

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
        """So much more is held than there is that nobody must be let through any more."""
        return -self.room > self._limit() // SHARE

    def is_over_share(self, client: Hashable) -> bool:
        """Whether a client holds as much as one may."""
        return self._by_client.get(client, 0) >= self._limit() // SHARE

    def holder(self, client: Hashable) -> QuotaHolder:
        """Somebody who holds nothing yet."""
        return QuotaHolder(self, client)

    def lack(self, client: Hashable, amount: int) -> str | None:
        """Why so much more does not fit: into the client's share, or into the whole; or None."""
        limit = self._limit()
        if self._by_client.get(client, 0) + amount > limit // SHARE:
            return f"this client holds as much as one may, a quarter of {limit} bytes"
        if self.used + amount > limit:
            return f"all clients together hold as much as they may, {limit} bytes"
        return None

    def count(self, client: Hashable, amount: int) -> None:
        """Note what a holder takes or gives back."""
        self.used += amount
        held = self._by_client.get(client, 0) + amount
        if held:
            self._by_client[client] = held
        else:
            self._by_client.pop(client, None)
