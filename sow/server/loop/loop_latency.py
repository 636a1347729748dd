"""Loop latency: how long each step blocks the loop, by name.

Code that runs on the loop reports the duration of each step under a name that operators know.
`/metrics` shows the longest step of each name and counts those over `LONG_S`. The first long step
is logged at once, later ones in one line a minute, whatever their names. Nothing is measured here.
"""

import time
from collections import Counter
from collections.abc import Callable

from sow.core.histograms import Histogram

LONG_S = 0.05
"""A step that users notice, and longer than any step should be."""

LOGGED_EVERY_S = 60.0
"""Seconds between two log lines: a busy machine makes hundreds of steps long."""


class LoopLatency:
    """The longest step of each name; `warn` gets a line about steps over `LONG_S`. `now_s` is a
    monotonic time."""

    def __init__(
        self,
        warn: Callable[[str], None] = lambda _line: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn = warn
        self._now_s = now_s
        self._reported_s: float | None = None
        """When the last line was written."""
        self._unreported = 0
        """Long steps since then."""
        self._longest = ("", 0.0)
        """The longest of these."""
        self.longest_s: dict[str, float] = {}
        """The longest step by name; there are some dozens of names."""
        self.long: Counter[str] = Counter()
        """How many steps of each name took over `LONG_S`."""
        self.times = Histogram()
        """Durations of all steps."""

    def note(self, name: str, took_s: float) -> None:
        """A step of `name` has blocked the loop for `took_s` seconds."""
        self.times.note(took_s)
        if took_s >= self.longest_s.get(name, 0.0):
            self.longest_s[name] = took_s
        if took_s > LONG_S:
            self._note_long(name, took_s)

    def _note_long(self, name: str, took_s: float) -> None:
        self.long[name] += 1
        self._unreported += 1
        self._longest = max(self._longest, (name, took_s), key=lambda one: one[1])
        self.look()

    def look(self) -> None:
        """Write the log line that is due, if any."""
        now_s = self._now_s()
        if not self._unreported or (
            self._reported_s is not None and now_s < self._reported_s + LOGGED_EVERY_S
        ):
            return
        name, took_s = self._longest
        if self._unreported == 1:
            self._warn(f"{name} kept everybody waiting for {took_s * 1000:.0f} ms")
        else:
            self._warn(
                f"{self._unreported} steps kept everybody waiting for over {LONG_S * 1000:.0f} ms "
                f"each; the longest, {name}, for {took_s * 1000:.0f} ms"
            )
        self._reported_s, self._unreported, self._longest = now_s, 0, ("", 0.0)
