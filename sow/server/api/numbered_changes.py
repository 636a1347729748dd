"""Changes of a topic by one request, which are answered when they are durable.

A request with an `Idempotency-Key` is one of a publisher's numbered messages
(`sow.sessions.commands.publishers`): it is done once, however often it is sent, and repeats get the
answer of then. Any other is done as it comes. Publishes and deletes differ in their steps and
answers alone.
"""

from collections.abc import Callable
from typing import NamedTuple

from aiohttp import web

from sow.core.cooperative import Task
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.request_bodies import DUPLICATE, IdempotencyKey
from sow.server.http.responses import json_response
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.executor import Executor
from sow.sessions.commands.publishers import NumberedAnswer, NumberedTurn


class NumberedChange(NamedTuple):
    """A change of a topic by one request, of so many `numbers` if it is numbered: its `steps`, the
    `answer` that follows from its bookmark or count, and that to an `older` repeat."""

    name: str
    topic: str
    numbers: int
    steps: Callable[[NumberedTurn | None], Task[NumberedAnswer]]
    answer: Callable[[int], NumberedAnswer]
    older: Callable[[], NumberedAnswer]

    async def answered(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        request: web.Request,
        key: IdempotencyKey | None,
        is_durable: bool = True,
    ) -> web.Response:
        """The answer, once it is done and `is_durable`. With a key it is done once, and what was
        done before is answered again."""

        def steps() -> Task[NumberedAnswer]:
            if key is None:
                return (yield from self.steps(None))
            executor.engine.sequencer.moment(runtime.now_us())
            turn = yield from executor.publishers.turn(
                lambda: executor.publishers.named(key.client, permissions_of(request)),
                self.topic,
                key.seq,
                self.numbers,
                answer=self.answer,
            )
            with turn:
                if not turn.is_duplicate:
                    return (yield from self.steps(turn)).saying(turn.fields())
                found = executor.publishers.answered(turn) or self.older()
                return found._replace(headers={**found.headers, DUPLICATE: "true"})

        answer = await runtime.turns.run(self.name, steps())
        if is_durable:
            await runtime.durable()
        else:
            runtime.wake()
        return json_response(answer.document, status=answer.status, headers=answer.headers)
