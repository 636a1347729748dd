"""Pattern followers: who follows every topic whose name matches, those that come later included.

A pattern may match a hundred thousand topics, and nobody may be kept waiting until each of them
knows of a new follower. So none is told. A topic *meets* the followers that have come since it last
did when it next has something to tell; only then is asked which of them want it, and made what they
need. A topic that is silent costs its followers nothing.

What a follower wants, and what is made for it, is its own business
(`sow.sessions.subscriptions.subscription`).
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class MeetingPlace(Protocol):
    """Where a topic is followed; `met` is the number of the last follower that it has met."""

    met: int


P_contra = TypeVar("P_contra", bound=MeetingPlace, contravariant=True)
P = TypeVar("P", bound=MeetingPlace)


class PatternSubscription(Protocol[P_contra]):
    """Follows the topics of a pattern."""

    def meet(self, place: P_contra) -> None:
        """Hear what becomes of the topic from now on, if it is wanted."""
        ...

    def awaits(self, place: P_contra) -> bool:
        """Whether the topic is wanted, and not heard yet."""
        ...


class PatternSubscriptions(Generic[P]):
    """All that there are, in the order in which they came."""

    def __init__(self) -> None:
        self.newest = 0
        """The number of the one that came last; a place that has met it has met all."""
        self._numbers: dict[PatternSubscription[P], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, follower: PatternSubscription[P]) -> None:
        """Somebody follows a pattern from now on."""
        self.newest += 1
        self._numbers[follower] = self.newest

    def remove(self, follower: PatternSubscription[P]) -> None:
        """It wants nothing any more; it may have wanted nothing."""
        self._numbers.pop(follower, None)

    def meet(self, place: P) -> None:
        """Let a place know who has come since it last did."""
        unmet = [*self._unmet(place)]
        place.met = self.newest
        for follower in reversed(unmet):
            follower.meet(place)

    def awaiting(self, place: P) -> int:
        """How many want a topic that they have not met."""
        return sum(follower.awaits(place) for follower in self._unmet(place))

    def _unmet(self, place: P) -> Iterator[PatternSubscription[P]]:
        """Those that a place has not met, the last first."""
        if place.met < self.newest:
            for follower, number in reversed(self._numbers.items()):
                if number <= place.met:
                    break
                yield follower

    def check(self) -> None:
        """Assert what meeting relies on."""
        numbers = [*self._numbers.values()]
        assert numbers == sorted(set(numbers)), "followers stand in another order than they came"
        assert not numbers or numbers[-1] <= self.newest
