"""Together: the answers to several queries, all of one moment.

Each query is made ready by itself, in steps between which anything may change, and what it needs
is held until all have been answered: then all of them are asked in one step. Where changes were so
many that one is not ready any more, there is no answer yet, and it is made ready again.
"""

from collections.abc import Iterable

from sow.core.cooperative import Task
from sow.indexes import Indexes
from sow.query.answer import answer
from sow.query.index_build import IndexBuild, Unready
from sow.query.query import Query, QueryAnswer

Question = tuple[Indexes, Query]


class ConsistentBatch:
    """Holds what queries need, from when they are first asked until it is closed."""

    def __init__(self) -> None:
        self._ready: dict[Question, IndexBuild] = {}

    def make_ready(self, questions: Iterable[Question]) -> Task[None]:
        """Make what each of the queries needs, in steps of a millisecond or so."""
        for question in questions:
            while (lacking := self._ask(question)[1]) is not None:
                yield from self._ready[question].steps(lacking.lacking)
            yield

    def answers(self, questions: Iterable[Question]) -> dict[Question, QueryAnswer] | None:
        """The answers as of now, with slots that are valid until the next change; None if one of
        the queries has to be made ready first."""
        found: dict[Question, QueryAnswer] = {}
        for question in dict.fromkeys(questions):
            answered, _ = self._ask(question)
            if answered is None:
                return None
            found[question] = answered
        return found

    def _ask(self, question: Question) -> tuple[QueryAnswer | None, Unready | None]:
        indexes, query = question
        ready = self._ready.get(question)
        if ready is None:
            ready = self._ready[question] = IndexBuild(indexes)
        try:
            return answer(ready, query), None
        except Unready as lacking:
            return None, lacking

    def close(self) -> None:
        """Let go of what the queries needed."""
        for ready in self._ready.values():
            ready.close()
        self._ready.clear()
