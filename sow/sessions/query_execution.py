"""Asking: a query is answered, and its rows are held, all of them as of one moment.

Finding the records may take long and is done in steps; with the last of these the rows are taken
hold of, before anything can change. What is then left to do changes nothing any more.
"""

from collections.abc import Callable
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.history.snapshot import Snapshot
from sow.query import Query
from sow.query.query import QueryAnswer


class QueryResult(NamedTuple):
    """What a query named, as of `bookmark`, and how it was found."""

    answer: QueryAnswer
    rows: Snapshot
    bookmark: int


def execute_query(
    engine: Engine,
    name: str,
    query: Query,
    with_keys: bool = True,
    admit: Callable[[int], None] = lambda _rows: None,
) -> Task[QueryResult]:
    """What a query names of a topic; raises UnknownTopic and ClientError.

    `with_keys`: with SowKeys, bookmarks and times. `admit` is called with the number of rows before
    they are pinned, and may raise.
    """
    answer = yield from engine.queries.answering(name, query)
    admit(len(answer.slots))
    rows = Snapshot.take(engine.topic(name).records, answer.slots, with_keys)
    requested = QueryResult(answer, rows, engine.seq)
    yield
    yield from rows.settle()
    return requested
