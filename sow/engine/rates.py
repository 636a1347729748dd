"""Rates: what topics and some records took and gave in each of the last two minutes' seconds.

Once a second somebody calls `look`, which takes the totals that topics count anyway: a publish
costs nothing for it. A look that is late spreads what came since over the seconds it missed, so
the sum of the figures is always what was counted. A topic at rest has two numbers and no figures.

Changes of a single record are counted nowhere. So a record is *watched*: from the first request for
its figures until two minutes after the last one the engine reports each change. Watched records are
bounded: one more ends the watch of the one that was requested least recently.

There is no clock here.
"""

from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.running_topics import CopyTopic, LiveTopic, ViewTopic
from sow.topic.records import Records

RATE_STEP_US = 1_000_000
"""A figure a second: lines of two minutes are as fine as a screen."""
RATES_KEPT = 120
"""Figures of each series: two minutes, which is what a chart of a console shows."""
RATED_TOPICS_MAX = 10_000
"""Topics whose figures are kept, in the order of the list: 2 kB each where all of them move."""
WATCHED_RECORDS_MAX = 100
"""Watched records: more than people look at, and few enough to list all again when one comes."""
LOOKED_AT_ONCE = 500
"""Topics in one step: half a microsecond each."""


class Rates(NamedTuple):
    """Changes in and out in each second up to `end_us`, the newest last."""

    end_us: int
    taken: Sequence[int]
    given: Sequence[int]


class RateSeries:
    """The figures of one pair of counters since `began`, a number of seconds."""

    __slots__ = ("_figures", "_totals", "began")

    def __init__(self, totals: tuple[int, int], began: int) -> None:
        self._totals = totals
        self._figures: tuple[array[int], array[int]] | None = None
        self.began = began

    def take(self, totals: tuple[int, int], seconds: int, now: int) -> None:
        """So much was counted until the second `now`, `seconds` after the totals before."""
        before, self._totals = self._totals, totals
        if self._figures is None:
            if totals == before:
                return
            zeros = [0] * min(RATES_KEPT, now - seconds - self.began)
            self._figures = array("I", zeros), array("I", zeros)
        for figures, total, earlier in zip(self._figures, totals, before, strict=True):
            # A topic that is made again counts from zero.
            moved = total - earlier if total >= earlier else total
            # After a clock that was set forward by years, only those that are kept.
            shown = range(max(0, seconds - RATES_KEPT), seconds)
            figures.extend([(moved + second) // seconds for second in shown])
            del figures[:-RATES_KEPT]
        if not any(map(any, self._figures)):
            self._figures = None

    def figures(self, now: int) -> tuple[Sequence[int], Sequence[int]]:
        """The last figures in and out, in the second `now`."""
        if self._figures is None:
            zeros = [0] * min(RATES_KEPT, now - self.began)
            return zeros, zeros
        return self._figures


class Watched:
    """A record that is watched: what its changes are counted in, and its figures since then."""

    __slots__ = ("identity", "series", "sources", "wanted_us")

    def __init__(self, topic: LiveTopic, identity: str, now_us: int) -> None:
        self.identity = identity
        self.sources = sources_of(topic)
        self.wanted_us = now_us
        self.series: RateSeries | None = None


class RateKeeper:
    """The rates of an engine's topics, and of the records that somebody watches."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._topics: dict[str, RateSeries] = {}
        self._watched: dict[tuple[str, str], Watched] = {}
        self._counts: dict[Records, dict[str, int]] = {}
        """Changes of watched records since these are watched."""
        self._hearing = ExitStack()
        self._now = 0
        """Seconds since the first look."""
        self._looked_us: int | None = None

    # Once a second.

    def look(self, now_us: int) -> Task[None]:
        """Take the totals as they are now, of some topics in each step."""
        if self._looked_us is None:
            self._looked_us = now_us
        seconds = max(0, round((now_us - self._looked_us) / RATE_STEP_US))
        if seconds:
            self._now += seconds
            self._looked_us = now_us
        known, self._topics = self._topics, {}
        # A topic that goes meanwhile ends with this look.
        listed = [*islice(self._engine.catalog.listed(), RATED_TOPICS_MAX)]
        for at, topic in enumerate(listed, 1):
            totals = totals_of(topic)
            series = known.get(topic.name) or RateSeries(totals, self._now)
            if seconds and topic.name in known:
                series.take(totals, seconds, self._now)
            self._topics[topic.name] = series
            if at % LOOKED_AT_ONCE == 0:
                yield
        for name, one in [*self._watched.items()]:
            if one.series is not None and seconds:
                one.series.take(self._counted(one), seconds, self._now)
            if one.wanted_us + RATES_KEPT * RATE_STEP_US < now_us:
                del self._watched[name]
                self._follow()

    # Answers.

    def of_topic(self, name: str) -> Rates:
        """The figures of a topic; none before its first second, or beyond those that are kept."""
        return self._rates(self._topics.get(name))

    def of_record(self, topic: LiveTopic, identity: str, now_us: int) -> Rates:
        """The figures of a record since it is watched, which it is from now on."""
        name = topic.name, identity
        found = self._watched.pop(name, None)
        if found is None or found.sources != sources_of(topic):
            found = Watched(topic, identity, now_us)
        found.wanted_us = now_us
        if len(self._watched) >= WATCHED_RECORDS_MAX:
            del self._watched[next(iter(self._watched))]
        self._watched[name] = found  # the last one in order
        if found.series is None:
            self._follow()
            found.series = RateSeries(self._counted(found), self._now)
        return self._rates(found.series)

    def _rates(self, series: RateSeries | None) -> Rates:
        figures = ((), ()) if series is None else series.figures(self._now)
        return Rates(self._looked_us or 0, *figures)

    # Watched records.

    def _hear(self, records: Records, identities: Sequence[str]) -> None:
        counts = self._counts.get(records)
        if counts is not None:
            for identity in identities:
                if identity in counts:
                    counts[identity] += 1

    def _counted(self, one: Watched) -> tuple[int, int]:
        taken, given = (self._counts[of][one.identity] for of in (one.sources[0], one.sources[-1]))
        return taken, given

    def _follow(self) -> None:
        """Have the changes of all watched records counted, and of no other ones."""
        before, self._counts = self._counts, {}
        for one in self._watched.values():
            for records in one.sources:
                count = before.get(records, {}).get(one.identity, 0)
                self._counts.setdefault(records, {})[one.identity] = count
        self._hearing.close()
        if self._counts:
            self._hearing.enter_context(self._engine.on_changes(self._hear))


def totals_of(topic: LiveTopic) -> tuple[int, int]:
    """The changes that a topic has taken and given since it was made."""
    if isinstance(topic, CopyTopic):
        return topic.copy.conflation.updates_in, topic.copy.conflation.updates_out
    if isinstance(topic, ViewTopic):
        return topic.view.updates_in, topic.view.updates_out
    return topic.updates, topic.updates


def sources_of(topic: LiveTopic) -> tuple[Records, ...]:
    """The records whose changes a topic's record takes, and its own."""
    if isinstance(topic, CopyTopic):
        return topic.copy.underlying, topic.records
    return (topic.records,)
