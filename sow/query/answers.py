"""Answering: runs queries over indexes that are ready for them.

One run narrows the topic down (`sow.query.search`), then sorts and pages the rest
(`sow.query.order`), all in one step. Before that the indexes of a query are built, in steps between
which anything may change, and are held until it is answered. Several queries as of one moment
(`ConsistentBatch`) are prepared one by one, then all run in one step; if so much has changed that
one is not ready any more, there is no answer yet, and its indexes are refreshed first.
"""

from collections.abc import Iterable

from sow.core.cooperative import Task
from sow.indexes import Indexes
from sow.query.index_build import IndexBuild, Unready
from sow.query.order import arrange
from sow.query.query import Query, QueryAnswer
from sow.query.search import Search

TopicQuery = tuple[Indexes, Query]


def answer(ready: IndexBuild, query: Query) -> QueryAnswer:
    """The answer as of now; raises Unready where something has to be made first."""
    search = Search(ready, query)
    found = search.run()
    matches = len(ready.indexes.table) if found is None else len(found)
    page, step = arrange(ready, found, query)
    steps = (*search.steps, *([step] if step else []))
    return QueryAnswer(page, matches, steps, search.read, search.advice)


def answering(indexes: Indexes, query: Query) -> Task[QueryAnswer]:
    """The answer to `query` from the topic that `indexes` belong to.

    Each step takes a millisecond or so, the last one a few more. The answer is that of the moment
    at which it is returned, and its slots are valid until the next change.
    """
    ready = IndexBuild(indexes)
    try:
        while True:
            try:
                return answer(ready, query)
            except Unready as unready:
                lacking = unready.lacking
            yield from ready.steps(lacking)
    finally:
        ready.close()


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
