"""The step watch: how long the loop was kept, and by whom.

Whoever works on the loop says how long a step took, by a name that an operator knows. The longest
of each name stands in `/metrics`; those that kept everybody waiting are counted and said in the
log, less and less often where they come again and again. It measures nothing itself.
"""

from collections import Counter
from collections.abc import Callable

from sow.histograms import Histogram

LONG_S = 0.05
"""A step that others notice: what a person sees as at once, and more than any step should take."""


class StepWatch:
    """The longest step of each name; `warn` is told of those that took over `LONG_S`."""

    def __init__(self, warn: Callable[[str], None] = lambda _line: None) -> None:
        self._warn = warn
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
        times = self.long[name]
        if times & (times - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
            self._warn(
                f"{name} kept everybody waiting for {took_s * 1000:.0f} ms"
                + (f" ({times} times by now over {LONG_S * 1000:.0f} ms)" if times > 1 else "")
            )
