"""The clock of tests: it stands still until it is moved."""


class VirtualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start_us: int = 0) -> None:
        self._now_us = start_us
        self.stepped_us = 0

    def now_us(self) -> int:
        """The current time."""
        return self._now_us

    def advance(self, by_us: int) -> int:
        """Move forward by `by_us` microseconds and return the new time."""
        if by_us < 0:
            raise ValueError("time does not go backwards")
        self._now_us += by_us
        return self._now_us

    def go_on_from(self, us: int) -> None:
        """Stand at `us` at least."""
        self._now_us = max(self._now_us, us)

    def ahead_us(self) -> int:
        """There is no machine's clock to be ahead of."""
        return 0
