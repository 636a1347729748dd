"""Queries: which records of a topic match, and how they are found.

`answering` narrows the topic down with its indexes (`search`), then sorts and pages the rest
(`order`). Indexes that a query needs, such as the column of a field, are built first, in steps
(`index_build`). The answer is slots, valid until the table changes next; the caller takes the
bodies. `ConsistentBatch` answers several queries as of one moment.
"""

from sow.core.cooperative import Task
from sow.indexes import Indexes
from sow.query.answer import answer
from sow.query.consistent_batch import ConsistentBatch
from sow.query.index_build import IndexBuild, Unready
from sow.query.query import PlanStep, Query, QueryAnswer

__all__ = ["ConsistentBatch", "PlanStep", "Query", "QueryAnswer", "answering"]


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
