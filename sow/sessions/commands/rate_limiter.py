"""Rate limiting: how many messages a user may publish a second, `Limits/PublishesPerSecond`.

A token bucket for each user holds as many messages as the user may publish in a second and refills
at that rate. A user with any tokens left may publish a whole batch, and then waits until the debt
is paid: so a batch larger than a second's worth can be published at all. Without authentication all
clients are one user. Time is a parameter.
"""

import math
from collections.abc import Callable

from sow.core.definitions import Limits
from sow.errors import Busy
from sow.security.authorization import Permissions

USERS_KEPT = 10_000
"""Maximum number of buckets; beyond it, users that published longest ago start with a full one
again."""


class RateLimited(Busy):
    """The user publishes faster than permitted; the client may retry after `retry_after_s`."""


class RateLimiter:
    """The buckets of all users: how many messages each has left, as of when."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self._buckets: dict[tuple[str, ...], tuple[float, int]] = {}

    def take(self, rights: Permissions, count: int, now_us: int) -> None:
        """Take tokens for `count` messages of a user; raises RateLimited, and takes nothing."""
        error = self.charge(rights, count, now_us)
        if error is not None:
            raise error

    def charge(self, rights: Permissions, count: int, now_us: int) -> RateLimited | None:
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

    def give_back(self, rights: Permissions, count: int) -> None:
        """Return the tokens of messages that were not published after all."""
        if rights.owner in self._buckets:
            left, since_us = self._buckets[rights.owner]
            self._buckets[rights.owner] = left + count, since_us
