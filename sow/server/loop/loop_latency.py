"""The step watch: how long the loop was kept, and by whom.

Whoever works on the loop says how long a step took, by a name that an operator knows. The longest
of each name stands in `/metrics`; those that kept everybody waiting are counted. The first of them
is said in the log at once, and those of the minutes after it, whatever their names, in one line a
minute. It measures nothing itself.
"""

import time
from collections import Counter
from collections.abc import Callable

from sow.core.histograms import Histogram

LONG_S = 0.05
"""A step that others notice: what a person sees as at once, and more than any step should take."""

SENT_EVERY_S = 60.0
"""A busy machine makes steps long by the hundred; a line a minute is read, and fills no disk."""


class LoopLatency:
    """The longest step of each name; `warn` is told of those that took over `LONG_S`. `now_s` is a
    time that never goes back."""

    def __init__(
        self,
        warn: Callable[[str], None] = lambda _line: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn = warn
        self._now_s = now_s
        self._reported_s: float | None = None
        """When the last line was written."""
        self._untold = 0
        """Long steps since then."""
        self._longest = ("", 0.0)
        """The longest of these."""
        self.longest_s: dict[str, float] = {}
        """The longest step by name; names are made by the server, so there are some dozens."""
        self.long: Counter[str] = Counter()
        """How many steps of each name took over `LONG_S`."""
        self.times = Histogram()
        """Of all steps, by how long they took."""

    def note(self, name: str, took_s: float) -> None:
        """A step of `name` has kept the loop for `took_s` seconds."""
        self.times.note(took_s)
        if took_s >= self.longest_s.get(name, 0.0):
            self.longest_s[name] = took_s
        if took_s > LONG_S:
            self._note_long(name, took_s)

    def _note_long(self, name: str, took_s: float) -> None:
        self.long[name] += 1
        self._untold += 1
        self._longest = max(self._longest, (name, took_s), key=lambda one: one[1])
        self.look()

    def look(self) -> None:
        """Say what is to be said by now."""
        now_s = self._now_s()
        if not self._untold or (
            self._reported_s is not None and now_s < self._reported_s + SENT_EVERY_S
        ):
            return
        name, took_s = self._longest
        if self._untold == 1:
            self._warn(f"{name} kept everybody waiting for {took_s * 1000:.0f} ms")
        else:
            self._warn(
                f"{self._untold} steps kept everybody waiting for over {LONG_S * 1000:.0f} ms "
                f"each; the longest, {name}, for {took_s * 1000:.0f} ms"
            )
        self._reported_s, self._untold, self._longest = now_s, 0, ("", 0.0)
