"""Pattern subscriptions: they follow every topic whose name matches, including later ones.

A pattern may match a hundred thousand topics, and registering a subscription with each of them
would take too long. So a topic is not notified of it. Before a topic next routes a change it
*meets* the subscriptions that were added since it last did, which then attach what they need. A
topic without changes costs its pattern subscriptions nothing.

What a follower wants, and what is made for it, is its own business
(`sow.sessions.subscriptions.subscription`).
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class MeetingPlace(Protocol):
    """Where a topic is followed; `met` is the number of the last subscription that it has met."""

    met: int


P_contra = TypeVar("P_contra", bound=MeetingPlace, contravariant=True)
P = TypeVar("P", bound=MeetingPlace)


class PatternSubscription(Protocol[P_contra]):
    """Follows the topics of a pattern."""

    def meet(self, place: P_contra) -> None:
        """Follow the topic from now on, if it is wanted."""
        ...

    def awaits(self, place: P_contra) -> bool:
        """Whether the topic is wanted and not followed yet."""
        ...


class PatternSubscriptions(Generic[P]):
    """All of them, in the order in which they were added."""

    def __init__(self) -> None:
        self.newest = 0
        """The number of the newest one; a place that has met it has met all."""
        self._numbers: dict[PatternSubscription[P], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, follower: PatternSubscription[P]) -> None:
        """Add a pattern subscription."""
        self.newest += 1
        self._numbers[follower] = self.newest

    def remove(self, follower: PatternSubscription[P]) -> None:
        """Remove a pattern subscription, if it is here."""
        self._numbers.pop(follower, None)

    def meet(self, place: P) -> None:
        """Introduce to a place the subscriptions that were added since it last met any."""
        unmet = [*self._unmet(place)]
        place.met = self.newest
        for follower in reversed(unmet):
            follower.meet(place)

    def awaiting(self, place: P) -> int:
        """How many want a topic that they have not met."""
        return sum(follower.awaits(place) for follower in self._unmet(place))

    def _unmet(self, place: P) -> Iterator[PatternSubscription[P]]:
        """Those that a place has not met, newest first."""
        if place.met < self.newest:
            for follower, number in reversed(self._numbers.items()):
                if number <= place.met:
                    break
                yield follower

    def check(self) -> None:
        """Assert what meeting relies on."""
        numbers = [*self._numbers.values()]
        assert numbers == sorted(set(numbers)), "subscriptions out of the order of their addition"
        assert not numbers or numbers[-1] <= self.newest
