"""Queries: which records match, found in steps while other clients change them.

A query uses the indexes of its topic, and starts again when a reload replaces them. It returns
slots, valid until the next change: it copies and sends nothing, and the caller pins the bodies. How
long queries take is recorded by the kind of index that served them.
"""

from collections.abc import Callable, Mapping

from sow.core.cooperative import Task, run_to_completion
from sow.core.histograms import Histogram
from sow.engine.atomic_change import AtomicBatch
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.engine.wal import CommitSequencer
from sow.errors import ClientError
from sow.expressions import Filter
from sow.query import Query, QueryAnswer, answering
from sow.topic.records import Records

JUDGED_MAX = 500
"""Changes in flight that are compared with a query: half a millisecond at most, less than the wait
that it may save."""


class Queries:
    """The queries of one engine: `topic` finds a topic or raises as the engine's does, `topics` has
    all of them by name."""

    def __init__(
        self,
        topic: Callable[[str], LiveTopic],
        topics: Mapping[str, LiveTopic],
        ledger: CommitSequencer,
        atomic: AtomicBatch,
    ) -> None:
        self._topic = topic
        self._topics = topics
        self._ledger = ledger
        self._atomic = atomic
        self._tick_s: Callable[[], float] = lambda: 0.0
        self.times: dict[str, Histogram] = {}
        """Time that each query took in its steps, by the kind of its first index: those of
        `sow.query.access_paths`, `scan`, and `all` for a query without conditions."""

    def measure(self, tick_s: Callable[[], float]) -> None:
        """From now on record how long queries take, by a monotonic clock."""
        self._tick_s = tick_s

    def at_once(self, name: str, query: Query) -> QueryAnswer:
        """Which records of the topic `name` match, as slots valid until the next change.

        In the requested order, by default that of first publication (docs/semantics.md, Rule 9).
        Raises UnknownTopic, and ClientError for fields of messages that have none.
        A query that needs a new column of a large topic takes seconds: see `answering`.
        """
        return run_to_completion(self.answering(name, query))

    def answering(self, name: str, query: Query) -> Task[QueryAnswer]:
        """The same in steps, of a millisecond or so but for the last, which takes a few.

        The answer is as of the last step, and its slots are valid until the next change: a caller
        that continues after other work takes the bodies in the step that returns the answer.
        Raises at once what `run_to_completion` does; from a later step UnknownTopic, if the topic
        has gone.
        """
        self.checked(name, query)
        return self._atomic.exclusive(name, self._answering(name, query.at(self._ledger.now_us)))

    def _answering(self, name: str, query: Query) -> Task[QueryAnswer]:
        while True:
            indexes = self.checked(name, query).indexes
            steps, took_s = answering(indexes, query), 0.0
            # Start again if a reload has given the topic other indexes.
            while self._topic(name).records.indexes is indexes:
                began_s = self._tick_s()
                try:
                    next(steps)
                except StopIteration as over:
                    answer: QueryAnswer = over.value
                    self._note(answer, took_s + self._tick_s() - began_s)
                    return answer
                took_s += self._tick_s() - began_s
                yield

    def checked(self, name: str, query: Query) -> Records:
        """The records of the query's topic; raises what `at_once` does."""
        records = self._topic(name).records
        records.check_filter(query.filter)
        if query.order_by and not records.message_type.structured:
            raise ClientError(
                f"messages of {name} have no fields ({records.message_type.name}); leave out "
                "order_by",
                reason="bad orderby",
            )
        return records

    def _note(self, answer: QueryAnswer, took_s: float) -> None:
        times = self.times.get(answer.kind)
        if times is None:
            times = self.times[answer.kind] = Histogram()
        times.note(took_s)

    def is_durable(self, name: str, condition: Filter | None) -> bool:
        """Whether the records that pass a filter are as of `ledger.durable_seq`: no change in
        flight passes it, before or after. False where finding out would take long, and for copies
        and views, which may contain the results of changes in flight."""
        if not isinstance(self._topics.get(name), SourceTopic):
            return False
        count = 0
        for batch in self._ledger.changes_in_flight(name):
            count += len(batch)
            if condition is None or not condition.steady or count > JUDGED_MAX:
                return False
            if any(batch.new_focus(condition)) or any(batch.old_focus(condition)):
                return False
        return True
