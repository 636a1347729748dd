"""Queries: which records of a topic a client asks for, and how they are found.

`execute` narrows the topic down with its indexes (`search`), then sorts and pages what is left
(`order`). It returns slots, valid until the table changes next; whoever asked takes the bodies.
"""

from sow.indexes import Indexes
from sow.query.order import arrange
from sow.query.query import PlanStep, Query, QueryAnswer
from sow.query.search import Search

__all__ = ["PlanStep", "Query", "QueryAnswer", "execute"]


def execute(indexes: Indexes, query: Query) -> QueryAnswer:
    """The answer to `query` from the topic that `indexes` belong to."""
    search = Search(indexes, query)
    found = search.run()
    matches = len(indexes.table) if found is None else len(found)
    page, step = arrange(indexes, found, query)
    steps = (*search.steps, *([step] if step else []))
    return QueryAnswer(page, matches, steps, search.read, search.advice)
