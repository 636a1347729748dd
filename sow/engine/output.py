"""Output: what the open group hands to sessions, and what a request holds back.

Changes give channels output; it waits there until the group is closed, so that the channels of one
turn are flushed once, each with all it has. Channels that are late (`sow.streaming.channel`) catch
up beside other work, some of it with each flush. A publisher waits for the late followers of its
topic, in turns with the other publishers. Nothing here knows topics or stores anything.

Windows and views report complete requests. A request or a frame may take many steps, and other
clients are served between them. A subscription to single changes gets each at once; a live window
or a view reports the result of a request when the request ends, so that it never shows half of one.
So their output is held back while a request is open that has changed one of their topics, but no
longer than `HELD_US_MAX`, however many requests follow or overlap each other meanwhile. A request
that changes nothing holds nothing back, nor does one that rests: it waits for others, and what it
has done so far is reported.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from weakref import WeakKeyDictionary

from sow.core.cooperative import Result, Step, Task
from sow.engine.running_topics import LiveTopic
from sow.engine.timers import Timers
from sow.engine.wal import CommitSequencer, Group
from sow.streaming.channel import ChangeChannel, Channel, Latecomer
from sow.streaming.late_turns import LateClient, LateTurns
from sow.streaming.sessions import Session
from sow.streaming.windows.window_channel import WindowChannel
from sow.topic.records import Records

CAUGHT_UP_US = 2_000
"""What one step does of what is late: as long as a slice of the scheduler."""
TURN_US = 500
"""What one client has of it at a time, and all of it where nobody is waited for."""
HANDED_OUT_AT_ONCE = 2_000
"""Deliveries, one for each member of a channel, that one flush makes, at five to ten microseconds
each: what is left is handed out with the next one."""
LATE_TURNS_MAX = 64
"""Turns that a publisher leaves to one before it that does not take them: that one may wait for
its own client."""
HELD_US_MAX = 1_000_000
"""A request that takes longer is reported in parts: a publish of a million records must not delay
what other clients publish to the same topic."""


class OpenRequest:
    """A request: since when it has changed something, and the topics that it has changed, by their
    names."""

    __slots__ = ("began_us", "topics")

    def __init__(self) -> None:
        self.began_us = 0
        self.topics: dict[str, LiveTopic] = {}


class RequestBoundaries:
    """The open requests of one engine, by whose numbers and time they go; `release` is called with
    the channels that are no longer held back."""

    def __init__(
        self, sequencer: CommitSequencer, release: Callable[[Iterable[WindowChannel]], None]
    ) -> None:
        self.sequencer = sequencer
        self._release = release
        self.current: OpenRequest | None = None
        """The request whose step is running."""
        self._open: dict[OpenRequest, None] = {}
        """Unfinished requests that have changed something."""
        self._held: dict[WindowChannel, None] = {}
        self._since_us: WeakKeyDictionary[WindowChannel, int] = WeakKeyDictionary()
        """Since when channels that are held, or were until just now, have waited."""
        self._until_us: int | None = None
        """When the first of the held channels has been held for `HELD_US_MAX`."""

    def now_us(self) -> int:
        """The newest time."""
        return self.sequencer.now_us

    def together(self, steps: Task[Result]) -> Task[Result]:
        """Run steps that are one request, or a part of the request that is running."""
        if self.current is not None:
            return (yield from steps)
        request = OpenRequest()
        reply: Step = None
        try:
            while True:
                self.current = request
                try:
                    said = steps.send(reply)
                except StopIteration as over:
                    result: Result = over.value
                    return result
                finally:
                    self.current = None
                if said:
                    self._report(request)
                elif request.topics and request not in self._open:
                    # Not before: until a change the time may be that of one long ago.
                    request.began_us = self.now_us()
                    self._open[request] = None
                reply = yield said
        finally:
            steps.close()
            self._report(request)

    def _report(self, request: OpenRequest) -> None:
        """What a request has done so far is no longer held back."""
        self._pass(request)
        request.topics.clear()
        if request in self._open:
            del self._open[request]
            self.advance(self.now_us())

    def _pass(self, request: OpenRequest) -> None:
        for topic in request.topics.values():
            topic.pass_up_to(self.sequencer.seq)

    def acknowledge(self) -> None:
        """What the request whose step is running has done so far may be acknowledged, though it
        goes on."""
        if self.current is not None:
            self._pass(self.current)

    def report_changes_of(self, name: str) -> None:
        """Requests that have changed this topic have to wait for long before they go on."""
        for request in [one for one in self._open if name in one.topics]:
            self._report(request)

    def due_us(self) -> int | None:
        """When the first of the held channels has been held for `HELD_US_MAX`."""
        return self._until_us

    def advance(self, _now_us: int) -> None:
        """Release all held channels; one that another request holds is held again when it has
        output."""
        held, self._held, self._until_us = self._held, {}, None
        if held:
            self._release(held)

    def holds_until_us(self, names: Collection[str], since_us: int | None = None) -> int | None:
        """Until when output of these topics has to wait that has waited since `since_us`, unless
        the request ends before; None: it need not wait. What the request whose step is running has
        done before, it may see."""
        began_us = [
            one.began_us
            for one in self._open
            if one is not self.current and not one.topics.keys().isdisjoint(names)
        ]
        if not began_us:
            return None
        newest_us = max(began_us)
        until_us = HELD_US_MAX + (newest_us if since_us is None else min(newest_us, since_us))
        return until_us if until_us > self.now_us() else None

    def has_changed(self, names: Collection[str] | None = None) -> bool:
        """Whether the request whose step is running has changed one of these topics, or any."""
        topics = {} if self.current is None else self.current.topics
        return bool(topics) if names is None else not topics.keys().isdisjoint(names)

    def holds(self, channel: WindowChannel) -> bool:
        """Whether a window has to wait for the end of a request; if so, it is released then."""
        since_us = self._since_us.get(channel, self.now_us())
        until_us = self.holds_until_us((channel.encoder.topic.name,), since_us)
        if until_us is None:
            self._since_us.pop(channel, None)
            return False
        self._since_us[channel] = since_us
        self._held[channel] = None
        self._until_us = until_us if self._until_us is None else min(until_us, self._until_us)
        return True

    def check(self) -> None:
        """Assert what is always true between two steps."""
        assert self.current is None, "a step of a request goes on"
        assert all(request.topics for request in self._open)
        assert self._open or not self._held, "a window waits for no request"
        assert bool(self._held) == (self._until_us is not None), "a window waits for ever"


class PendingOutput:
    """Channels of one engine that have output. `notify` is called with work that no command or
    timer has caused, `caught_up` with a topic whose followers are no longer late."""

    def __init__(
        self,
        sequencer: CommitSequencer,
        timers: Timers,
        notify: Callable[[], None],
        caught_up: Callable[[Records], None],
    ) -> None:
        self._caught_up = caught_up
        self._sequencer = sequencer
        self._timers = timers
        self._notify = notify
        self.requests = RequestBoundaries(sequencer, self._release_held)
        self.waiting: dict[Channel, None] = {}
        """Channels to flush with the open group; routing adds to them."""
        self.at_close: list[Callable[[], None]] = []
        """What is written once for all of the open group: called when it is closed."""
        self.late = LateTurns()
        """Channels, and views of a topic, that have some to process before; routing adds to
        them."""
        self.is_stalled = False
        """What was handed over is not known to be stored, and may not be for long."""
        timers.add(self.requests)

    @property
    def group(self) -> int:
        """The number of the group with which an answer leaves: the one that is being filled. While
        nothing is stored, what stores nothing does not wait for what does."""
        group = self._sequencer.open
        waits = not self.is_stalled or group.entries or group.changes
        return group.number if waits else self._sequencer.released

    def stall(self, is_stalled: bool) -> None:
        """Nothing is stored at the moment, and nobody knows until when; or it is again."""
        self.is_stalled = is_stalled

    @property
    def has_work(self) -> bool:
        """A flush would hand something over."""
        group = self._sequencer.open
        return bool(self.waiting or self.late or group.entries or group.sessions or self.at_close)

    @property
    def is_empty(self) -> bool:
        """A flush would find nothing, not even changes that nobody stores or follows."""
        return not (self.has_work or self._sequencer.open.changes)

    @property
    def is_behind(self) -> bool:
        """A flush has left something that others wait for."""
        return bool(self.waiting) or self.late.has_awaited

    def touch(self, session: Session) -> None:
        """Add `session` to the open group: it has something to write."""
        self._sequencer.open.sessions[session] = None

    def expect(self, channel: Channel) -> None:
        """Flush `channel` with the open group."""
        self.waiting[channel] = None
        self._timers.expect(channel)

    def schedule(self, channel: Channel) -> None:
        """Flush a channel with the open group if it has output, and wake the runtime."""
        if self._is_held(channel):
            return
        self.waiting[channel] = None
        self._timers.note(channel)
        self._notify()

    def flush_due(self, channel: Channel, others: Iterable[Channel]) -> None:
        """Flush a channel that has advanced, and soon the others that can send because of it."""
        self.waiting.update(dict.fromkeys(others))
        if not self._is_held(channel):
            self.flush_channel(channel)

    def _is_held(self, channel: Channel) -> bool:
        """Whether a channel waits for the end of a request, and is flushed then."""
        if not (isinstance(channel, WindowChannel) and self.requests.holds(channel)):
            return False
        self._timers.note(self.requests)
        return True

    def _release_held(self, channels: Iterable[WindowChannel]) -> None:
        """The request that these live windows waited for has ended."""
        self.waiting.update(dict.fromkeys(channels))
        self._notify()

    def let_others(self, topic: Records, channels: Iterable[Channel]) -> None:
        """An atomic change of a topic is over: these channels take the changes of others again."""
        for channel in channels:
            if isinstance(channel, ChangeChannel):
                release = partial(channel.release_others, self._sequencer.now_us)
                channel.in_order(topic, release)
            self.expect(channel)

    # What is late.

    def catch_up(self) -> None:
        """Process some of what is late, in turns of clients."""
        left_us = float(CAUGHT_UP_US if self.late.has_awaited else TURN_US)
        for turn in self.late.turns():
            left_us -= self._take_turn(turn, min(left_us, TURN_US))
            if left_us <= 0:
                break
        if self.late:
            self._notify()

    def _take_turn(self, turn: LateClient, until_us: float) -> float:
        taken_us = 0.0
        while turn.latecomers and taken_us < until_us:
            first = next(iter(turn.latecomers))
            taken_us += self._catch_up_once(first)
            while first.is_amid and taken_us < until_us:
                taken_us += self._catch_up_once(first)
            if isinstance(first, Channel):
                self.expect(first)
            if not first.late:
                self.late.discard(first)
            elif not first.is_amid:
                self.late.yield_to_others(first)
        return taken_us

    def all_caught_up(self, topic: Records) -> Task[None]:
        """The steps after which nobody at all is late with a topic."""
        while topic.late:
            self.catch_up()
            yield

    def catch_up_views(self) -> None:
        """Process, in one step, all that views are late with."""
        for one in [one for one in self.late if not isinstance(one, Channel)]:
            while one.late:
                self._catch_up_once(one)
            self.late.discard(one)

    def _catch_up_once(self, first: Latecomer) -> float:
        was_awaited = first.turn is None or first.turn.is_awaited
        done = first.catch_up()
        if not (done.topic.late and (done.topic.has_awaited or not was_awaited)):
            self._caught_up(done.topic)
        return done.step_us

    # Handing out.

    def flush_channel(self, channel: Channel) -> None:
        """Hand out all output of `channel`, late or not; required before its members change."""
        was_late = bool(channel.late)
        while channel.late:
            self._catch_up_once(channel)
        self.late.discard(channel)
        self._hand_out(channel)
        if was_late:
            self.expect(channel)  # its windows have opened just now

    def catching_up(self, channel: Channel) -> Task[None]:
        """The steps after which a channel is late no more, and `flush_channel` is short."""
        while channel.late:
            left_us = float(CAUGHT_UP_US)
            while channel.late and left_us > 0:
                left_us -= self._catch_up_once(channel)
            self.expect(channel)
            if channel.late:
                yield

    def let_go(self, channel: Channel) -> None:
        """A channel is over, and nobody gets what it is late with."""
        while channel.late:
            self._catch_up_once(channel)
        self.late.discard(channel)

    def _hand_out(self, channel: Channel) -> None:
        if channel.waiting:
            group = self._sequencer.open
            try:
                channel.flush(group.number, self._sequencer.now_us)
            except Exception as error:
                channel.fail(error)
            group.sessions.update(channel.members)
            # At its client's pace it may owe more than one step hands out.
            self._timers.note(channel)

    def flush(self) -> Group:
        """Flush all channels, of what is late a part, seal the sessions, close the open group and
        return it."""
        if self.at_close:
            acts, self.at_close = self.at_close, []
            for act in acts:
                act()
        if self.late:
            self.catch_up()
        left = HANDED_OUT_AT_ONCE
        waiting, self.waiting = self.waiting, {}
        for channel in waiting:
            if left <= 0:
                self.waiting[channel] = None
                continue
            if channel.is_amid:
                continue  # it is late, and is flushed then
            if not (isinstance(channel, WindowChannel) and self._is_held(channel)):
                left -= len(channel.members)
                self._hand_out(channel)
        if left <= 0 and self.waiting:
            self._notify()
        group, now_us = self._sequencer.open, self._sequencer.now_us
        number = self.group if self.is_stalled else group.number
        for session in group.sessions:
            if session.lines:  # not looked for by a call: most have none
                session.seal(number, now_us)
        return self._sequencer.close()

    def check(self) -> None:
        """Assert what is always true between two steps."""
        self.requests.check()
        self.late.check()


class LateFollowers:
    """What waits until nobody who follows a topic is late; `is_late` returns, by the name of a
    topic, whether somebody is."""

    def __init__(self, output: PendingOutput, is_late: Callable[[str], bool]) -> None:
        self._output = output
        self._is_late = is_late
        self._tickets: dict[str, deque[object]] = {}
        """By topic, those that wait for its followers, in order."""

    def keep_up(self, name: str) -> bool:
        """Whether a change of the topic need not wait."""
        is_late = self._output.late and self._is_late(name)
        return not is_late and name not in self._tickets

    def caught_up(self, name: str) -> Task[None]:
        """The steps after which nobody who follows the topic is late. Who came first goes on first:
        what it changes makes followers late again, and others might never have a turn."""
        if self.keep_up(name):
            return
        ticket, patience = object(), LATE_TURNS_MAX
        tickets = self._tickets.setdefault(name, deque())
        tickets.append(ticket)
        try:
            while self._is_late(name) or (patience and tickets[0] is not ticket):
                patience -= not self._is_late(name)
                self._output.catch_up()
                yield
        finally:
            tickets.remove(ticket)
            if not tickets:
                del self._tickets[name]
