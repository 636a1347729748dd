"""Queries: which records of a topic a client asks for, and how they are found.

`answering` narrows the topic down with its indexes (`search`), then sorts and pages what is left
(`order`). Whatever has to be made for that, such as the column of a field, is made first, in steps
(`readiness`). It answers with slots, valid until the table changes next; whoever asked takes the
bodies.
"""

from sow.indexes import Indexes
from sow.query.order import arrange
from sow.query.query import PlanStep, Query, QueryAnswer
from sow.query.readiness import Readiness, Unready
from sow.query.search import Search
from sow.steps import Steps

__all__ = ["PlanStep", "Query", "QueryAnswer", "answering"]


def answering(indexes: Indexes, query: Query) -> Steps[QueryAnswer]:
    """The answer to `query` from the topic that `indexes` belong to.

    Each step takes a millisecond or so, the last one a few more. The answer is that of the moment
    at which it is returned, and its slots are valid until the next change.
    """
    ready = Readiness(indexes)
    try:
        while True:
            try:
                return _answer(ready, query)
            except Unready as unready:
                lacking = unready.lacking
            yield from ready.steps(lacking)
    finally:
        ready.close()


def _answer(ready: Readiness, query: Query) -> QueryAnswer:
    search = Search(ready, query)
    found = search.run()
    matches = len(ready.indexes.table) if found is None else len(found)
    page, step = arrange(ready, found, query)
    steps = (*search.steps, *([step] if step else []))
    return QueryAnswer(page, matches, steps, search.read, search.advice)
