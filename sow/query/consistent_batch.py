"""Consistent batch: the answers to several queries, all as of one moment.

The indexes of each query are built separately, in steps between which anything may change, and are
held until all queries are answered: then all of them run in one step. If so much has changed that
one is not ready any more, there is no answer yet, and its indexes are refreshed first.
"""

from collections.abc import Iterable

from sow.core.cooperative import Task
from sow.indexes import Indexes
from sow.query.answer import answer
from sow.query.index_build import IndexBuild, Unready
from sow.query.query import Query, QueryAnswer

TopicQuery = tuple[Indexes, Query]


class ConsistentBatch:
    """Holds the indexes of queries, from their first run until it is closed."""

    def __init__(self) -> None:
        self._ready: dict[TopicQuery, IndexBuild] = {}

    def make_ready(self, queries: Iterable[TopicQuery]) -> Task[None]:
        """Build the indexes of each query, in steps of a millisecond or so."""
        for topic_query in queries:
            while (lacking := self._try(topic_query)[1]) is not None:
                yield from self._ready[topic_query].steps(lacking.lacking)
            yield

    def answers(self, queries: Iterable[TopicQuery]) -> dict[TopicQuery, QueryAnswer] | None:
        """The answers as of now, with slots that are valid until the next change; None if one of
        the queries needs `make_ready` first."""
        found: dict[TopicQuery, QueryAnswer] = {}
        for topic_query in dict.fromkeys(queries):
            answered, _ = self._try(topic_query)
            if answered is None:
                return None
            found[topic_query] = answered
        return found

    def _try(self, topic_query: TopicQuery) -> tuple[QueryAnswer | None, Unready | None]:
        indexes, query = topic_query
        ready = self._ready.get(topic_query)
        if ready is None:
            ready = self._ready[topic_query] = IndexBuild(indexes)
        try:
            return answer(ready, query), None
        except Unready as lacking:
            return None, lacking

    def close(self) -> None:
        """Release the indexes."""
        for ready in self._ready.values():
            ready.close()
        self._ready.clear()
