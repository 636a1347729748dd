"""Tasks of asyncio are ended in a limited time: calls that wait, readers, connections.

    cancelled, and over      as all should be
    cancelled, and goes on   `asyncio.wait_for` of Python 3.11, in clients of engines, forgets that
                             it was cancelled where its call ends in the same turn: once more, then
    never over               given up, so that a process can end without it
    its loop is gone         nothing can be waited for any more, a reader's end neither

The client of a shared log's engine may wait at its own end, too: for a line through which nothing
passes. Steps of long work are another matter (`sow.core.cooperative`).
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import aclosing
from typing import Any

log = logging.getLogger("sow.log")

CANCELLED_AGAIN_S = 0.5
"""A task that goes on though it was cancelled is cancelled again after this."""
CANCELLED_TIMES = 4
"""Each time costs a task one call that forgets it; more than two in a row were never seen."""


async def end_all(tasks: Iterable["asyncio.Task[Any]"]) -> bool:
    """Cancel tasks until they have ended, which is said; what goes on after that is given up."""
    left = set(tasks)
    for _ in range(CANCELLED_TIMES):
        if not left:
            return True
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=CANCELLED_AGAIN_S)
        await asyncio.gather(*ended, return_exceptions=True)
    for task in left:
        log.warning("given up, as it goes on though it was cancelled: %r", task.get_coro())
    return not left


async def within(wait_s: float, work: Coroutine[Any, Any, Any]) -> bool:
    """Do some work for so long, then end it; whether it was done. Raises what it raises."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=wait_s)
        is_done = task.done()
    finally:
        await end_all((task,))
    if is_done:
        task.result()
    return is_done


class ClosingReader(aclosing[Any]):
    """Closes a reader at the end of a block; where a task is taken away with its loop, Python 3.11
    believes that the reader runs, and refuses to close it."""

    async def __aexit__(self, *raised: object) -> None:
        if raised[0] is not GeneratorExit:
            await super().__aexit__(*raised)
