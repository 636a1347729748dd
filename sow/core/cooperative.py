"""Cooperative tasks: work on many records, in small steps.

A request of one line may concern a million records. Such work is written as a generator: each step
takes a fraction of a millisecond and leaves everything consistent, and between two steps anything
may happen. It holds what it needs by reference, as of the moment at which it began, and returns its
result with the last step. The caller takes as many steps in a turn as there is time for
(`sow.server.loop.scheduler`), and may cancel it between two steps by closing it. A task that cannot
go on before others have *rests*: it yields `RESTS`, and the rest of its slice is theirs.

This module knows nothing of what the steps do, nor of time. `untracked` keeps another cause of long
pauses short: the collector of cycles.
"""

import ctypes
from collections.abc import Callable, Generator
from typing import Any, Generic, Literal, TypeVar

from sow.errors import Busy

Result = TypeVar("Result")

RESTS: Literal[True] = True
"""Yielded by a task that waits for what others do. Sent back, it says that nobody else goes on
meanwhile: then the task does not wait."""
Step = Any
"""Nothing, or RESTS; typed like this, a step that yields nothing needs no word for it."""
Task = Generator[Step, Step, Result]


def no_steps() -> Task[None]:
    """Nothing has to precede."""
    yield from ()


def run_to_completion(steps: Task[Result]) -> Result:
    """Run all steps; returns and raises what the task does."""
    said: Step = None
    while True:
        try:
            said = steps.send(RESTS if said is RESTS else None)
        except StopIteration as over:
            result: Result = over.value
            return result


def before_each(steps: Task[Result], ahead: Callable[[], Task[None] | None]) -> Task[Result]:
    """Take the steps, before each those that `ahead` returns, if any; where it raises, they are
    closed."""
    said: Step = None
    try:
        while True:
            if (first := ahead()) is not None:
                yield from first
            try:
                step = steps.send(said)
            except StopIteration as over:
                result: Result = over.value
                return result
            said = yield step
    finally:
        steps.close()


def while_wanted(steps: Task[Result], is_wanted: Callable[[], bool]) -> Task[Result]:
    """Take the steps as long as somebody wants the result; raises Busy if nobody does any more."""

    def look() -> None:
        if not is_wanted():
            raise Busy("nobody waits for the answer any more")

    return before_each(steps, look)


class SharedTask(Generic[Result]):
    """A task whose steps others than its caller take; `result` is what comes of it."""

    def __init__(self, steps: Task[Result]) -> None:
        self.is_over = False
        self.steps = steps
        self._results: list[Result] = []
        self.error: Exception | None = None

    def finish(self) -> Task[Result]:
        """Take all steps that others do not take meanwhile; returns and raises what they do."""
        while not self.is_over:
            self.step()
            yield
        return self.result()

    def step(self) -> None:
        """Take a step; an error is kept for the caller."""
        try:
            next(self.steps)
        except StopIteration as over:
            self._results.append(over.value)
            self.is_over = True
        except Exception as error:
            self.error = error
            self.is_over = True

    def result(self) -> Result:
        """The result; raises what the steps raised."""
        if self.error is not None:
            raise self.error
        return self._results[0]


class CatchUpPacer:
    """How much each step processes of work that grows meanwhile, so that it ends.

    It begins with `share`, and doubles whenever more than half as much has arrived between two
    steps as the last one processed: the rest for the last step is at most a few times what arrives
    in one.
    """

    def __init__(self, share: int) -> None:
        self.share = share
        self._taken = self._left = 0

    def begin(self, count: int) -> None:
        """A step begins, with `count` to process."""
        if self._taken and 2 * (count - self._left) > self._taken:
            self.share *= 2
        self._taken = count

    def end(self, count: int) -> None:
        """The step is over, with `count` left."""
        self._taken -= count
        self._left = count


Item = TypeVar("Item")
UNTRACKED_MIN = 100
"""Lists of so many items are worth it where they wait for something: the collector would look
through all of them several times; to say so of one takes less than reading a row does."""

# CPython's API for container types; calling it twice for a list is harmless.
_untrack = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyObject_GC_UnTrack", ctypes.pythonapi))


def untracked(items: list[Item]) -> list[Item]:
    """The same list, which Python's collector of cycles does not traverse any more.

    The collector visits every item of each list while all clients wait: a million items, all over
    the memory, take tens of milliseconds, and two hundred held answers of a million each take
    seconds. Bytes, texts and numbers are part of no cycle; the collector finds out by itself that
    tuples and dictionaries hold nothing else, but not that lists do. The list is freed by its
    reference count, like any other. It may hold nothing else now and later: that is not checked,
    and a cycle through it would never be freed.
    """
    _untrack(items)
    return items


def untracked_if_many(items: list[Item]) -> list[Item]:
    """The same list, which the collector does not traverse where it is long."""
    return untracked(items) if len(items) >= UNTRACKED_MIN else items
