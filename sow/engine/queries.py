"""Queries: filters of clients, and which records match.

A query uses the indexes of its topic, in steps while other clients change them, and starts again
when a reload replaces them. It returns slots, valid until the next change: it copies and sends
nothing, and the caller pins the bodies. How long queries take is recorded by the kind of index that
served them.

The same texts of filters come again and again, and compiling takes far longer than a lookup: they
are compiled once and kept while they are in use. A text that is refused is kept with its error. A
long text may be compiled in a thread beforehand (`FilterCache.compiled`, `keep`), so that no other
client waits for it.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from sow.core.containers import ENTRY_WEIGHT, Cache, Histogram
from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import Limits
from sow.core.paths import Scalar
from sow.engine.atomic_change import AtomicBatch
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic
from sow.engine.wal import CommitSequencer
from sow.errors import ClientError
from sow.expressions import NO_TRAITS, Filter, Trait, compile_filter
from sow.protocol.replies import SentPlace
from sow.query import Query, QueryAnswer, answering, answering_current
from sow.topic.records import Records

FILTERS_KEPT_WEIGHT = 512 * 1024
"""Characters of the filters that are kept compiled, with `ENTRY_WEIGHT`: two thousand short ones,
of 2 KB each, or eight of the longest, of a hundred times their text."""


class FilterCache:
    """Compiled filters by their text and the limits that they were compiled under. `limits` returns
    the current limits, `known` is what all messages have in common beside their fields."""

    def __init__(
        self, limits: Callable[[], Limits], known: Mapping[Trait, Scalar] = NO_TRAITS
    ) -> None:
        self._limits = limits
        self._known = known
        self._kept: Cache[tuple[str, int, int], Filter | ClientError] = Cache(FILTERS_KEPT_WEIGHT)

    def under(self, limits: Limits) -> "FilterCache":
        """The same cache as it is under other limits."""
        other = FilterCache(lambda: limits, self._known)
        other._kept = self._kept
        return other

    def _key(self, text: str) -> tuple[str, int, int]:
        limits = self._limits()
        return text, limits.filter_bytes_max, limits.filter_depth_max

    def get(self, text: str) -> Filter:
        """The filter of `text`, compiled now if it is not cached.

        Raises BadFilter with the position of the mistake, NotAvailable for what is not built, and
        TooLarge over `Limits/FilterSize` or `FilterDepth` (docs/semantics.md, Rule 6).
        """
        found = self._kept.get(self._key(text))
        if found is None:
            found = self.compiled(text)
            self.keep(text, found)
        if isinstance(found, ClientError):
            raise found.afresh()
        return found

    def compiled(self, text: str) -> Filter | ClientError:
        """The filter of `text`, compiled now, or the error that `get` would raise.

        May run in a thread: a long one takes up to 50 milliseconds.
        """
        limits = self._limits()
        try:
            return compile_filter(
                text,
                bytes_max=limits.filter_bytes_max,
                depth_max=limits.filter_depth_max,
                known=self._known,
            )
        except ClientError as error:
            return error.afresh()

    def keep(self, text: str, found: Filter | ClientError) -> None:
        """Cache what `compiled` returned for `text`."""
        self._kept.keep(self._key(text), found, len(text) + ENTRY_WEIGHT)

    def has(self, text: str) -> bool:
        """Whether the filter or its error is cached, so that `get` returns at once."""
        return self._kept.get(self._key(text)) is not None


JUDGED_MAX = 500
"""Changes in flight that are compared with a query: half a millisecond at most, less than the wait
that it may save."""


class Queries:
    """The queries of one engine: `topic` finds a topic or raises as the engine's does, `topics` has
    all of them by name. `settling` are the steps after which a view shows what was published
    before."""

    def __init__(
        self,
        topic: Callable[[str], LiveTopic],
        topics: Mapping[str, LiveTopic],
        sequencer: CommitSequencer,
        atomic: AtomicBatch,
        settling: Callable[[str], Task[None]],
    ) -> None:
        self._topic = topic
        self._topics = topics
        self._sequencer = sequencer
        self._atomic = atomic
        self._settling = settling
        self._tick_s: Callable[[], float] = lambda: 0.0
        self.times: dict[str, Histogram] = {}
        """Time that each query took in its steps, by the kind of its first index: those of
        `sow.query.query`, `scan`, and `all` for a query without conditions."""

    def measure(self, tick_s: Callable[[], float]) -> None:
        """From now on record how long queries take, by a monotonic clock."""
        self._tick_s = tick_s

    def at_once(self, name: str, query: Query) -> QueryAnswer:
        """Which records of the topic `name` match, as slots valid until the next change.

        In the requested order, by default that of first publication (docs/semantics.md, Rule 9).
        Raises UnknownTopic, and ClientError for fields of messages that have none.
        A query that needs a new column of a large topic takes seconds: see `answering`. Of a view
        that has much to release, it is the rows that it shows by now.
        """
        self._checked(name, query)
        moment = query.at(self._sequencer.now_us)
        return run_to_completion(self._atomic.exclusive(name, self._answering(name, moment)))

    def answering(self, name: str, query: Query, reads_before: bool = False) -> Task[QueryAnswer]:
        """The same in steps, of a millisecond or so but for the last, which takes a few.

        The answer is as of the last step, and its slots are valid until the next change: a caller
        that continues after other work takes the bodies in the step that returns the answer.
        Raises at once what `run_to_completion` does; from a later step UnknownTopic, if the topic
        has gone. If it `reads_before`, slots are those of `shown`, which may be as of before a
        change under way.
        """
        self._checked(name, query)
        steps = self._settled(name, query.at(self._sequencer.now_us), reads_before)
        return steps if reads_before else self._atomic.exclusive(name, steps)

    def shown(self, name: str) -> tuple[Records, int]:
        """The records that an answer is of that has just been returned, and the newest change that
        they contain."""
        return self.shown_of(self._topic(name))

    def shown_of(self, topic: LiveTopic) -> tuple[Records, int]:
        """The same of a topic that has just been looked up."""
        return self._atomic.readable(topic) or topic.records, self._atomic.seq_of(topic)

    def _settled(self, name: str, query: Query, reads_before: bool) -> Task[QueryAnswer]:
        yield from self._settling(name)
        return (yield from self._answering(name, query, reads_before))

    def _answering(self, name: str, query: Query, reads_before: bool = False) -> Task[QueryAnswer]:
        while True:
            topic = self._checked(name, query)
            indexes = topic.records.indexes
            if reads_before:
                while (records := self._atomic.readable(topic)) is None:
                    yield from self._atomic.finish_before(name)
                    topic = self._topic(name)
                indexes = records.indexes
            steps, took_s, is_same = answering(indexes, query), 0.0, True
            # Start again if a reload has given the topic other indexes.
            while is_same:
                began_s = self._tick_s()
                try:
                    next(steps)
                except StopIteration as over:
                    answer: QueryAnswer = over.value
                    self._note(answer, took_s + self._tick_s() - began_s)
                    return answer
                took_s += self._tick_s() - began_s
                yield
                topic = self._topic(name)
                current = self._atomic.readable(topic) if reads_before else topic.records
                is_same = current is not None and current.indexes is indexes

    def checked(self, name: str, query: Query) -> Records:
        """The records of the query's topic; raises what `at_once` does."""
        return self._checked(name, query).records

    def _checked(self, name: str, query: Query) -> LiveTopic:
        topic = self._topic(name)
        records = topic.records
        records.check_filter(query.filter)
        if query.order_by and not records.message_type.structured:
            raise ClientError(
                f"messages of {name} have no fields ({records.message_type.name}); leave out "
                "order_by",
                reason="bad orderby",
            )
        return topic

    def _note(self, answer: QueryAnswer, took_s: float) -> None:
        times = self.times.get(answer.kind)
        if times is None:
            times = self.times[answer.kind] = Histogram()
        times.note(took_s)

    def is_durable(self, name: str, condition: Filter | None) -> bool:
        """Whether the records that pass a filter are as of `sequencer.durable_seq`: no change in
        flight passes it, before or after. False where finding out would take long, and for copies
        and views, which may contain the results of changes in flight."""
        if not isinstance(self._topics.get(name), SourceTopic):
            return False
        count = 0
        for batch in self._sequencer.changes_in_flight(name):
            count += len(batch)
            if condition is None or not condition.steady or count > JUDGED_MAX:
                return False
            if any(batch.new_focus(condition)) or any(batch.old_focus(condition)):
                return False
        return True


def matching(records: Records, condition: Filter) -> Task[NDArray[np.int64]]:
    """The slots of the records that pass a filter, in their order, as of the last step."""
    query = Query(filter=condition)
    return np.sort((yield from answering_current(lambda: records.indexes, query)).slots)


def place_of(topic: LiveTopic, topics: Mapping[str, LiveTopic], seq: int, now_us: int) -> int:
    """The place in what a conflated topic or a view has sent that its records show at a time, when
    `seq` is the newest change, which it is for any other topic."""
    if isinstance(topic, CopyTopic):
        return topic.copy.place(now_us)
    if isinstance(topic, SourceTopic):
        return seq
    if topic.view.is_dirty:
        return topic.view.place
    for source in map(topics.get, topic.view.sources):
        if isinstance(source, CopyTopic):  # it may be late
            now_us = min(now_us, source.copy.place(now_us).time_us)
    return SentPlace(seq, now_us)
