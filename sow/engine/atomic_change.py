"""Atomic changes: very many records of a topic change in steps, and no reader sees half of it.

    checked ──> numbered and logged, in one step ──> stored, a slice in each step ──> complete

A reader or writer of the topic runs the remaining steps first (`finish_before`, `exclusive`): so
requests to that topic wait, in their order, and all others go on. No timer of the topic or of its
conflated topics runs. Subscribers get the changes as slices are stored. The numbers of these
changes are those of one moment, so these subscribers get nothing else until all is sent
(`hold_other_output`): changes of other topics queue behind.

A change of very many records would have readers wait for long. So it may keep what there was
before it (`keep`, `freezing`): queries that can read that do so, until all is stored (`readable`),
and who begins to follow the topic does so from there (`shows_before`).

One such change is under way at a time. Once started it is finished, or fails before anything has
changed: if its caller stops waiting, the server runs the remaining steps (`on_left`). This module
does not know what changes.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from sow.core.cooperative import Result, SharedTask, Task, before_each
from sow.engine.running_topics import LiveTopic
from sow.errors import SowError
from sow.streaming.channel import ChangeChannel, Channel
from sow.topic.records import Records


class AtomicChange(SharedTask[Result]):
    """A change under way in `topic`, started after the change `seq`: the remaining steps. `ended`
    is called in the last one."""

    def __init__(
        self, topic: LiveTopic, seq: int, steps: Task[Result], ended: Callable[[], None]
    ) -> None:
        super().__init__(steps)
        self.topic = topic
        self.seq = seq
        self._ended = ended
        self.channels: list[Channel] = []
        """Channels that carry nothing else until it is over."""
        self.keeps = False
        """Readers do not wait for it."""
        self.waiting: list[Callable[[], None]] = []
        """Called when it is over."""
        self.before: Records | None = None
        """The topic's records as they were; None: as they are."""
        self.is_planned = False
        """None of it is in the records yet, nor in the log."""

    def step(self) -> None:
        """Take a step."""
        super().step()
        if self.is_over:
            self._ended()


class AtomicBatch:
    """The atomic changes of one engine.

    `seq` returns the newest number. `ended` is called when a change is over, with its topic and the
    channels to release.
    """

    def __init__(
        self, seq: Callable[[], int], ended: Callable[[LiveTopic, list[Channel]], None]
    ) -> None:
        self._seq = seq
        self._ended = ended
        self._change: AtomicChange[object] | None = None
        self._listeners: list[Callable[[Task[None]], None]] = []

    def on_left(self, listener: Callable[[Task[None]], None]) -> None:
        """Call `listener` with the remaining steps of each change whose caller has stopped
        waiting."""
        self._listeners.append(listener)

    @property
    def whole_seq(self) -> int:
        """The newest number up to which every change is in the tables."""
        return self._seq() if self._change is None else self._change.seq

    # Changing.

    def carry_out(
        self, find: Callable[[], LiveTopic], work: Callable[[LiveTopic], Task[Result]]
    ) -> Task[Result]:
        """Run the steps of `work` on the topic that `find` returns, with exclusive access to it.

        Starts when no other change is under way. `work` must not wait for its own topic. Returns
        and raises what it does; closed after the first step, it is left to others.
        """
        yield from self.finish_any()
        topic = find()
        change: AtomicChange[Result] = AtomicChange(topic, self._seq(), work(topic), self._end)
        self._change = change  # type: ignore[assignment]
        topic.records.set_changing(True)
        try:
            # A waiter may run the last step, and then another change may be under way.
            return (yield from change.finish())
        finally:
            if not change.is_over:
                for listener in self._listeners:
                    listener(self._finishing(change))

    def _finishing(self, change: AtomicChange[Result]) -> Task[None]:
        """Run the remaining steps, unless others do; an error has no receiver any more."""
        with suppress(SowError):
            yield from change.finish()

    def hold_other_output(self, topic: LiveTopic, now_us: int) -> None:
        """The change in `topic` has its numbers and its time: its subscribers get nothing else
        until it is over."""
        assert self._change is not None
        assert self._change.topic is topic
        topic.records.change_at(now_us)
        self._change.is_planned = False
        topic.router.meet()
        self._change.channels = [feed.channel for feed in topic.router.feeds()]
        for channel in self._change.channels:
            if isinstance(channel, ChangeChannel):
                channel.in_order(topic.records, partial(channel.hold_others, topic.records))

    def plan(self) -> None:
        """Nothing of the change under way is stored before `hold_other_output`."""
        assert self._change is not None
        self._change.is_planned = True

    def keep(self) -> None:
        """The change under way lets readers read on: it does not store anything before
        `freezing`."""
        assert self._change is not None
        self._change.keeps = True

    @property
    def keeps(self) -> bool:
        """Whether readers do not wait for the change under way."""
        return self._change is not None and self._change.keeps

    def freezing(self) -> Task[None]:
        """From now on readers of a change that `keep`s get what there is now."""
        change = self._change
        assert change is not None
        if change.keeps:
            change.before = yield from change.topic.records.freezing()

    def tidying(self) -> Task[None]:
        """All is stored: work off what waits in indexes, while readers still read what there was;
        the first reader of what there is now would have to. Then they read that, and what there was
        is let go of, some at a time."""
        change = self._change
        assert change is not None
        if change.before is not None:
            indexes = change.topic.records.indexes
            while indexes.dirty_count:
                indexes.refresh(indexes.step_notes)
                yield
            before, change.before, change.seq = change.before, None, self._seq()
            change.topic.records.table.thaw()
            yield from before.table.emptying()
            parts = before.indexes.parts()
            del before
            yield
            while parts:
                parts.pop()
                yield

    def readable(self, topic: LiveTopic) -> Records | None:
        """The records of a topic that readers may read; None: they have to wait for its change."""
        change = self._change
        if change is None or change.topic is not topic:
            return topic.records
        if change.before is not None:
            return change.before
        return topic.records if change.keeps else None

    def shows_before(self, topic: LiveTopic) -> bool:
        """Whether readers of a topic get what there was before a change that is being stored."""
        change = self._change
        return change is not None and change.topic is topic and change.before is not None

    def seq_of(self, topic: LiveTopic) -> int:
        """The newest number that what is `readable` of a topic contains."""
        change = self._change
        return self._seq() if change is None or change.topic is not topic else change.seq

    def _end(self) -> None:
        change, self._change = self._change, None
        assert change is not None
        if change.keeps:
            change.topic.records.table.thaw()
        change.topic.records.set_changing(False)
        change.topic.pass_up_to(self._seq())
        self._ended(change.topic, change.channels)
        for act in change.waiting:
            act()

    # Waiting.

    @property
    def topic(self) -> LiveTopic | None:
        """The topic that is changing, if any."""
        return None if self._change is None else self._change.topic

    def concerns(self, names: Iterable[str]) -> bool:
        """Whether one of these topics is changing."""
        return self._change is not None and self._change.topic.name in names

    def shows_half(self, names: Iterable[str]) -> bool:
        """Whether one of these topics may hold half of a change."""
        change = self._change
        return change is not None and not change.is_planned and change.topic.name in names

    def when_over(self, act: Callable[[], None]) -> None:
        """Call `act` when the change under way is over."""
        assert self._change is not None
        self._change.waiting.append(act)

    def finish_shown(self, names: Iterable[str]) -> Task[bool]:
        """Finish a change if one of these topics may hold half of it, unless readers do not wait
        for it; returns whether that was so."""
        change = self._change
        if change is None or change.keeps or not self.shows_half(names):
            return False
        yield from self.finish_before(change.topic.name)
        return True

    def finish_before(self, name: str) -> Task[None]:
        """Finish a change of the topic `name` first; no step if there is none."""
        return self._finish(lambda changing: changing == name)

    def finish_any(self) -> Task[None]:
        """Finish a change of any topic first."""
        return self._finish(lambda _name: True)

    def _finish(self, is_wanted: Callable[[str], bool]) -> Task[None]:
        while (change := self._change) is not None and is_wanted(change.topic.name):
            change.step()
            yield

    def exclusive(self, name: str | None, steps: Task[Result]) -> Task[Result]:
        """Run `steps`, each while no change of the topic `name` is under way; None: of any
        topic."""

        def ahead() -> Task[None] | None:
            if self._change is None:
                return None
            return self.finish_any() if name is None else self.finish_before(name)

        return before_each(steps, ahead)

    def check(self) -> None:
        """Assert the invariants of a change, between two steps."""
        change = self._change
        assert change is None or not change.is_over
        assert change is None or change.topic.records.is_changing
