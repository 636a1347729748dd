"""Answering: one run of a query over indexes that are ready for it.

It narrows the topic down (`sow.query.search`), then sorts and pages what is left
(`sow.query.order`), all in one step.
"""

from sow.query.index_build import IndexBuild
from sow.query.order import arrange
from sow.query.query import Query, QueryAnswer
from sow.query.search import Search


def answer(ready: IndexBuild, query: Query) -> QueryAnswer:
    """The answer as of now; raises Unready where something has to be made first."""
    search = Search(ready, query)
    found = search.run()
    matches = len(ready.indexes.table) if found is None else len(found)
    page, step = arrange(ready, found, query)
    steps = (*search.steps, *([step] if step else []))
    return QueryAnswer(page, matches, steps, search.read, search.advice)
