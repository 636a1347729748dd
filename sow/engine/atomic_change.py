"""Undivided changes: very many records of a topic change in steps, and nobody sees half of it.

    checked ──> numbered and logged, in one step ──> stored, a slice in each step ──> whole

Whoever wants to read or to change the topic meanwhile takes the steps that are left first
(`finish_before`, `apart`): so all wait for it who ask for that topic, in their order, and nobody
else does. Nothing falls due in the topic, nor in its conflated topics. Who follows the topic is
told as slices are stored. Their numbers are those of one moment, so nothing else is said to these
until all has been (`speak_exclusively`): what comes of other topics stands behind.

One such change is under way at a time. Once begun it is finished, or fails before anything has
changed: if nobody waits for it any more, whoever looks after the engine goes on (`on_left`).
What changes is not known here.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Generic

from sow.core.cooperative import Result, Task
from sow.engine.running_topics import LiveTopic
from sow.errors import SowError
from sow.streaming.channel import Channel


class AtomicChange(Generic[Result]):
    """A change under way in `topic`, begun after the change `seq`: the steps that are left."""

    def __init__(self, topic: LiveTopic, seq: int, steps: Task[Result]) -> None:
        self.topic = topic
        self.seq = seq
        self.channels: list[Channel] = []
        """What is told of nothing else until it is over."""
        self.is_over = False
        self._steps = steps
        self._results: list[Result] = []
        self._error: Exception | None = None

    def step(self) -> None:
        """Take a step; an error is kept for who began it, whoever takes the step."""
        try:
            next(self._steps)
        except StopIteration as over:
            self._results.append(over.value)
            self.is_over = True
        except Exception as error:
            self._error = error
            self.is_over = True

    def result(self) -> Result:
        """What came of it; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]


class AtomicBatch:
    """The undivided changes of one engine.

    `seq` gives the newest number. `ended` is called when a change is over, with its topic and with
    the strands that may go on.
    """

    def __init__(
        self, seq: Callable[[], int], ended: Callable[[LiveTopic, list[Channel]], None]
    ) -> None:
        self._seq = seq
        self._ended = ended
        self._change: AtomicChange[object] | None = None
        self._listeners: list[Callable[[Task[None]], None]] = []

    def on_left(self, listener: Callable[[Task[None]], None]) -> None:
        """Have `listener` called with the steps of each change that nobody waits for any more, and
        that is to be finished."""
        self._listeners.append(listener)

    @property
    def whole_seq(self) -> int:
        """The newest number up to which every change is in the tables."""
        return self._seq() if self._change is None else self._change.seq

    # Changing.

    def carry_out(
        self, find: Callable[[], LiveTopic], work: Callable[[LiveTopic], Task[Result]]
    ) -> Task[Result]:
        """Take the steps that `work` gives for the topic that `find` does, alone with the topic.

        Begins when no other one is under way. `work` must not wait for its own topic. Returns and
        raises what it does; closed after the first step, it is left to others.
        """
        yield from self.let_all_by()
        topic = find()
        change: AtomicChange[Result] = AtomicChange(topic, self._seq(), work(topic))
        self._change = change  # type: ignore[assignment]
        topic.records.set_changing(True)
        try:
            # Who waited may have taken the last step, and another change may be under way by now.
            while not change.is_over:
                self._step(change)
                yield
            return change.result()
        finally:
            if not change.is_over:
                for listener in self._listeners:
                    listener(self._finishing(change))

    def _finishing(self, change: AtomicChange[Result]) -> Task[None]:
        """Take the steps that are left, unless others do; what refuses it nobody hears."""
        while not change.is_over:
            self._step(change)
            yield
        with suppress(SowError):
            change.result()

    def speak_exclusively(self, topic: LiveTopic) -> None:
        """The numbers of the change in `topic` are given: nothing else is said to those who follow
        it until it is over."""
        assert self._change is not None
        assert self._change.topic is topic
        topic.router.meet()
        self._change.channels = [feed.channel for feed in topic.router.feeds()]
        for channel in self._change.channels:
            channel.hold_others(topic.records)

    def _step(self, change: AtomicChange[Result]) -> None:
        change.step()
        if change.is_over:
            self._change = None
            change.topic.records.set_changing(False)
            self._ended(change.topic, change.channels)

    # Waiting.

    @property
    def topic(self) -> LiveTopic | None:
        """The topic that is changing, if one is."""
        return None if self._change is None else self._change.topic

    def concerns(self, names: Iterable[str]) -> bool:
        """Whether one of these topics is changing."""
        return self._change is not None and self._change.topic.name in names

    def finish_before(self, name: str) -> Task[None]:
        """Go on when the topic `name` is whole; no step if it is."""
        return self._let_by(lambda changing: changing == name)

    def let_all_by(self) -> Task[None]:
        """Go on when all topics are whole."""
        return self._let_by(lambda _name: True)

    def _let_by(self, is_wanted: Callable[[str], bool]) -> Task[None]:
        while (change := self._change) is not None and is_wanted(change.topic.name):
            self._step(change)
            yield

    def apart(self, name: str | None, steps: Task[Result]) -> Task[Result]:
        """Take `steps`, each while the topic `name` is whole; None: while all topics are."""
        try:
            while True:
                yield from self.let_all_by() if name is None else self.finish_before(name)
                try:
                    next(steps)
                except StopIteration as over:
                    result: Result = over.value
                    return result
                yield
        finally:
            steps.close()

    def check(self) -> None:
        """Assert what is always true of a change, between two steps."""
        change = self._change
        assert change is None or not change.is_over
        assert change is None or change.topic.records.is_changing
