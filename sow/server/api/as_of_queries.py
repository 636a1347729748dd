"""Queries as of a bookmark or a time in the past, over HTTP.

The states are computed by `sow.sessions.queries.past_states`, in slices beside other work. An
answer is given when all that it shows is durable; none is computed for a client that has gone.
"""

from collections.abc import Callable

from aiohttp import web

from sow.core.cooperative import Result, Task
from sow.engine.running_topics import LiveTopic
from sow.history.bookmarks import Moment
from sow.query import Query
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.connection_supervisor import end_with_client
from sow.sessions.queries.past_states import PastStates, ReplayListener
from sow.sessions.queries.query_results import QueryResult
from sow.store.sharded_dict import ShardedDict


class AsOfQueries:
    """As-of queries on the topics of one server."""

    def __init__(self, runtime: ServerRuntime, past: PastStates) -> None:
        self._runtime = runtime
        self._past = past

    async def query(
        self,
        request: web.Request,
        name: str,
        text: str,
        query: Query,
        admit: Callable[[int], None] = lambda _rows: None,
        is_stamped: bool = True,
    ) -> QueryResult:
        """The result of a query as of a bookmark or a time; raises what `PastStates.query` does."""
        self._runtime.engine.sequencer.moment(self._runtime.now_us())
        return await self._durably(request, self._past.query(name, text, query, admit, is_stamped))

    async def listen(
        self, request: web.Request, name: str, text: str, listener: ReplayListener
    ) -> Moment:
        """Compute a topic again for a listener; raises what `PastStates.listen` does."""
        self._runtime.engine.sequencer.moment(self._runtime.now_us())
        return await self._durably(request, self._past.listen(name, text, listener))

    async def bodies(
        self, request: web.Request, topic: LiveTopic, bookmark: int, bytes_max: int
    ) -> ShardedDict[str, bytes]:
        """The bodies of a logged topic at a bookmark; raises what `PastStates.bodies` does."""
        return await self._durably(request, self._past.bodies(topic, bookmark, bytes_max))

    async def _durably(self, request: web.Request, steps: Task[Result]) -> Result:
        end_with_client(request)  # it may take many seconds, and others wait in line
        found = await self._runtime.turns.run("a state of the past", steps)
        await self._runtime.durable()
        return found
