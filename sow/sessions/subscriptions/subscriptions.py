"""Subscriptions and queries of sessions, one method for each command.

A subscription has a channel, which labels its lines and keeps them in order
(`sow.streaming.channel`), with a feed for each topic it follows: one, or all that match a pattern,
including topics that are created later. A snapshot is taken and the channel is joined within one
step of the engine, so there is no gap and no repeat between them.

Each idea has a module: queries (`query_planning`), subscribing (`subscribe`), replacing
(`replace_subscription`), live windows (`live_window`), ending (`unsubscribe`). All other commands
are the executor's.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from sow.core.comma_lists import comma_list
from sow.core.cooperative import Task, while_wanted
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import ClientError, SowError, TooLarge, invalid_bookmark, invalid_options, shown
from sow.history.bookmarks import NOW
from sow.protocol.commands import ACKS, Command
from sow.protocol.replies import Encoding
from sow.query import Query
from sow.sessions.queries.aggregations import (
    FOLLOWED_MAX,
    Aggregations,
    Share,
    about_rows,
    is_aggregated,
)
from sow.sessions.queries.past_states import PastStates
from sow.sessions.queries.query_planning import QueryPlanner, acknowledge, feed_key, sow_keys
from sow.sessions.queries.query_results import ResultSnapshot
from sow.sessions.subscriptions import Register, Subscription, Unsubscriber
from sow.sessions.subscriptions.live_window import LiveWindows
from sow.sessions.subscriptions.log_replay import LogReplay, held_by_pause
from sow.sessions.subscriptions.reapply_permissions import PermissionReapplier
from sow.sessions.subscriptions.replace_subscription import SubscriptionReplacer
from sow.sessions.subscriptions.sent_replay import SentReplay
from sow.sessions.subscriptions.subscribe import Subscriber
from sow.store.protocols import NOTHING_STORED, Checkpoint, Journal
from sow.streaming.channel import ReportingChannel
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import FeedKey
from sow.streaming.windows import check_window, window_of
from sow.topic.missing_fields import field_advice

GOVERNED_AT_ONCE = 500
"""Replays that are paused or resumed in one step: some ten microseconds each."""


class Subscriptions:
    """All subscriptions of one engine's sessions. `report` is called with sentences for the
    operator's log."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        report: Callable[[str], None],
        checkpoints: Mapping[str, Checkpoint] = NOTHING_STORED,
    ) -> None:
        self._engine = engine
        self._register = register = Register()
        self.past = PastStates(engine, journal, checkpoints)
        self.planner = planner = QueryPlanner(
            engine, register.pattern_paths, register.beside_changes
        )
        self._ending = Unsubscriber(engine, register, report)
        self.aggregations = Aggregations(engine, self._ending.fail_topic)
        self._following = following = Subscriber(
            engine, journal, register, planner, self.past, self._ending
        )
        self._replacing = replacing = SubscriptionReplacer(engine, planner, following, self._ending)
        self._windowing = LiveWindows(engine, register, planner, following, self._ending)
        self._reguarding = PermissionReapplier(
            engine, register, self.aggregations, replacing, self._windowing, self._ending
        )

    def of(self, session: Session) -> Mapping[str, Subscription]:
        """A session's subscriptions by their names."""
        return self._register.of(session)

    def adopt(self, subscription: Subscription) -> None:
        """A subscription whose lines come from elsewhere has begun."""
        self._register.add(subscription)

    def begin_elsewhere(
        self, session: Session, command: Command, ended: Callable[[str], None]
    ) -> str:
        """A subscription begins whose lines are made elsewhere, and which is named here; `ended` is
        called with its name when it ends."""
        self._following.check_room(session, command)
        channel = ReportingChannel(self._register.new_name("f"), session, ended)
        key = FeedKey(None)
        self.adopt(
            Subscription(command.topic, channel, {}, session, key, None, False, command=command)
        )
        return channel.name

    def drop(self, session: Session, name: str) -> None:
        """It is over there, or has never begun; one that has ended is passed over."""
        subscription = self.of(session).get(name)
        if subscription is not None:
            self._ending.leave(subscription)

    def drained(self, session: Session) -> None:
        """A session's socket has taken everything: paced subscriptions continue."""
        for subscription in self._register.followed(session).at_own_pace:
            if subscription.channel.waiting:
                self._engine.output.schedule(subscription.channel)

    def check(self) -> None:
        """Assert what is always true of subscriptions, between two steps."""
        self._register.check()
        self.aggregations.check()

    # Commands.

    def snapshot(self, session: Session, command: Command) -> Task[None]:
        """`sow`."""
        if command.bookmark is not None and command.bookmark not in NOW:
            raise invalid_bookmark(
                "sow returns the present state; give as_of for an earlier one, and subscribe with "
                "bm for what has changed since"
            )
        name = self._register.new_name("q")
        if command.options.as_of is not None:
            yield from self._past_snapshot(session, command, name, command.options.as_of)
            return
        if not is_aggregated(command):
            yield from self.planner.answer(session, command, name)
            return
        question = self.aggregations.question(command)
        share = yield from self.aggregations.computed(
            question, session.account, partial(self.planner.admit, session)
        )
        try:
            about = about_rows(command, share)
            yield from self.planner.answer(session, about, name, share.bookmark)
        finally:
            share.let_go()

    def _past_snapshot(
        self, session: Session, command: Command, name: str, moment: str
    ) -> Task[None]:
        """`sow` with `as_of`."""
        now_us, admit = self._engine.now_us, partial(self.planner.admit, session)
        if not is_aggregated(command):
            topic, query = self.planner.question(command)
            stamped = command.options.timestamp
            steps = self.past.query(topic.name, moment, query, admit, stamped)
            found = yield from while_wanted(steps, lambda: session.connected)
            yield from self.planner.answer_with(session, command, name, topic, found)
            return
        question = self.aggregations.question(command)
        query = Query(filter=question.condition).at(now_us)
        steps = self.past.query(question.topic.name, moment, query, admit)
        found = yield from while_wanted(steps, lambda: session.connected)
        share = yield from self.aggregations.computed_of(question, session.account, found.rows)
        try:
            about = about_rows(command, share)
            yield from self.planner.answer(session, about, name, found.bookmark)
        finally:
            share.let_go()

    def check_command(self, command: Command, encoding: Encoding) -> Task[None]:
        """Raise what speaks against a subscription, and change nothing."""
        if command.options.as_of is not None:
            _check_from_past(command)
        if is_aggregated(command):
            self.aggregations.question(command)
            self.planner.query(command)
            window = feed_key(command, encoding, complete=False).window
            if window is not None:
                check_window(command, window, None, is_pattern=False)
        else:
            requested = yield from self.planner.check(command, encoding)
            self._following.check_start(command, requested)

    def subscribe(self, session: Session, command: Command) -> Task[None]:
        """`subscribe` and `delta_subscribe`."""
        if command.governs_replays:
            yield from self._govern(session, command)
            return
        _check_no_past(command)
        _check_replay(command)
        if is_aggregated(command):
            self.aggregations.question(command)
        if command.order_by or command.options.top_n is not None or command.options.skip_n:
            raise ClientError(
                f"{command.name} takes no order_by, top_n or skip_n; use sow_and_"
                f"{command.name} for a snapshot that is ordered and limited"
            )
        if command.options.live or command.options.positions:
            raise invalid_options(
                f"a live window begins with the records in it; use sow_and_{command.name}"
            )
        if command.options.replace:
            if command.bookmark is not None and command.bookmark not in NOW:
                raise invalid_bookmark(
                    "replace continues from the present; to begin at a bookmark, unsubscribe and "
                    "subscribe with bm"
                )
            yield from self._replace(session, command, with_snapshot=False)
        elif command.bookmark is not None and command.bookmark not in NOW:
            yield from self._go_on(session, command)
        else:
            self._following.check_room(session, command)
            requested = yield from self.planner.requested(command)
            advice: tuple[str, ...] = ()
            if unsure := self.planner.unsure(command, requested):
                advice = yield from field_advice(unsure)
                requested = yield from self.planner.requested(command)  # of this step
            begun = partial(self._begun, session, command, advice)
            if self._following.begins_before(requested):
                yield from self._following.from_before(session, command, requested, False, begun)
                return
            subscription = self._following.begin(session, command, requested, complete=False)
            self._following.join(subscription)
            begun(subscription)

    def _begun(
        self,
        session: Session,
        command: Command,
        advice: tuple[str, ...],
        subscription: Subscription,
    ) -> None:
        acknowledge(session, command, *ACKS, s=subscription.name, advice=advice or None)

    def _go_on(self, session: Session, command: Command) -> Task[None]:
        try:
            yield from self._following.replay(session, command)
        except SowError:
            if not command.or_snapshot:
                raise
            whole = replace(command, name=f"sow_and_{command.name}", bookmark=None)
            yield from self.sow_and_subscribe(session, whole)

    def sow_and_subscribe(self, session: Session, command: Command) -> Task[None]:
        """`sow_and_subscribe` and `sow_and_delta_subscribe`."""
        if command.bookmark is not None:
            raise invalid_bookmark(
                f"{command.name} begins with the present state; a bookmark belongs to subscribe"
            )
        if command.options.as_of is not None:
            _check_from_past(command)
            yield from self._following.from_past(session, command, command.options.as_of)
        elif is_aggregated(command):
            yield from self._follow_groups(session, command)
        elif command.options.replace:
            yield from self._replace(session, command, with_snapshot=True)
        else:
            yield from self._begin(session, command)

    def _begin(self, session: Session, command: Command) -> Task[None]:
        if window_of(command) is not None:
            yield from self._windowing.subscribe(session, command)
        else:
            self._following.check_room(session, command)
            yield from self._follow(session, command)

    def _follow_groups(self, session: Session, command: Command) -> Task[None]:
        """The same about groups of records: about the rows of a view that is made for it."""
        if not command.options.replace:
            self._following.check_room(session, command)
        question = self.aggregations.question(command)
        count = self._register.followed(session).aggregated_count
        if count >= FOLLOWED_MAX:
            raise TooLarge(
                f"the session has {count} aggregated subscriptions, as many as one may have; "
                "configure a View, which all subscribe to as to any topic"
            )
        share = yield from self.aggregations.followed(question, session.account)
        requested, command = command, about_rows(command, share)
        try:
            if command.options.replace:
                yield from self._replace(session, command, with_snapshot=True)
            else:
                yield from self._begin(session, command)
        finally:
            self._hand_over(session, requested, command, share)

    def _hand_over(
        self, session: Session, requested: Command, command: Command, share: Share
    ) -> None:
        """Let the subscription that a command has begun hold what was made for it."""
        for subscription in self.of(session).values():
            if subscription.topic is command.topic and subscription.share is None:
                subscription.hold(share)
                subscription.request_by(requested)
                return
        share.let_go()

    def _follow(self, session: Session, command: Command) -> Task[None]:
        requested, taken = yield from self.planner.take_all(session, command)
        complete = sow_keys(command) is None and taken.is_whole
        complete &= self.planner.is_steady(command)
        answer = partial(self._answer, session, command, taken)
        if self._following.begins_before(requested):
            seq = self._engine.atomic.seq_of(requested.topics[0])
            answer = partial(answer, seq=seq)
            yield from self._following.from_before(session, command, requested, complete, answer)
        else:
            subscription = self._following.begin(
                session, command, requested, complete, shares=complete
            )
            if not complete:
                subscription.was_sent(taken.slots)
            self._following.join(subscription)
            answer(subscription)
        yield from taken.settle()

    def _answer(
        self,
        session: Session,
        command: Command,
        taken: ResultSnapshot,
        subscription: Subscription,
        seq: int | None = None,
    ) -> None:
        """Send what a subscription begins with, as of `seq` or the present."""
        acknowledge(session, command, "processed", s=subscription.name, **taken.remarks)
        self.planner.say_answer(session, taken, subscription.name, command, seq)
        acknowledge(session, command, *ACKS[1:], s=subscription.name, **taken.counts)

    def _replace(self, session: Session, command: Command, with_snapshot: bool) -> Task[None]:
        name = command.subscription or ""
        find = partial(self._subscription, session, name)
        if with_snapshot and (find().key.window or window_of(command)):
            yield from self._windowing.scroll(session, command, find)
            return
        if find().key.window:
            raise invalid_options(
                f"{shown(name)} is a live window; replace it with sow_and_subscribe, top_n and "
                "live, or unsubscribe"
            )
        yield from self._replacing.replace(session, command, with_snapshot, find)

    def _govern(self, session: Session, command: Command) -> Task[None]:
        """Pause or resume replays, all that are named or none."""
        names = dict.fromkeys(comma_list(command.subscription or ""))
        pauses = command.options.pause
        replays: list[LogReplay | SentReplay | None] = []
        for at, name in enumerate(names, 1):
            if at % GOVERNED_AT_ONCE == 0:
                yield
            replay = self._replay_of(self._subscription(session, name))
            if pauses and replay is None:
                raise invalid_options(
                    f"{shown(name)} is live, and only a replay is paused; unsubscribe, and "
                    "subscribe later with the bm of the last line"
                )
            if pauses and replay is not None and replay.holds_records:
                raise held_by_pause(shown(name))
            replays.append(replay)
        acknowledge(session, command, *ACKS, s=command.subscription)
        for at, replay in enumerate(replays, 1):
            if at % GOVERNED_AT_ONCE == 0:
                yield
            if isinstance(replay, LogReplay):
                (replay.pause if pauses else replay.resume)()

    def _replay_of(self, subscription: Subscription) -> LogReplay | SentReplay | None:
        """The replay of a subscription from a bookmark; None: it is live already."""
        command = subscription.command
        if command is None or command.bookmark in (None, *NOW):
            raise invalid_options(
                f"{shown(subscription.name)} has not begun at a bookmark, and only replays are "
                "paused and resumed; unsubscribe, or leave it out"
            )
        return subscription.replay

    def reguard(self, session: Session) -> Task[None]:
        """The rights of a session are others now: let it follow what its user may see."""
        return self._reguarding.reguard(session)

    def unsubscribe(self, session: Session, command: Command) -> Task[None]:
        """`unsubscribe`: some subscriptions by name, or all; acknowledged when all have ended."""
        if command.subscription is None:
            raise ClientError("unsubscribe needs s: one or more subscriptions, or all")
        names = comma_list(command.subscription)
        if names == ["all"]:
            names = list(self.of(session))
        found = [self._subscription(session, name) for name in dict.fromkeys(names)]
        yield from self._ending.end_many(found)
        acknowledge(session, command, *ACKS)

    def _subscription(self, session: Session, name: str) -> Subscription:
        found = self.of(session).get(name)
        if found is None:
            raise ClientError(
                f"this session has no subscription {shown(name)}",
                reason="subscription does not exist",
            )
        return found

    # Ending.

    def end_all(self, session: Session) -> None:
        """A session is gone: so is all that it followed, now or, where it is much, soon."""
        self._ending.end_all(session)

    def give_up(self, session: Session, name: str) -> str:
        """The session does not keep up with a topic that is not worth more: end it, and return what
        it was to."""
        return self._ending.give_up(session, name)

    def end_topic(self, topic: LiveTopic) -> None:
        """A topic is being removed: end its subscriptions; pattern subscriptions lose only this
        topic."""
        self._ending.end_topic(topic)

    def end_removed(self, session: Session, name: str) -> None:
        """The queue of a subscription was removed."""
        self._ending.end_removed(session, name)


def _check_no_past(command: Command) -> None:
    if command.options.as_of is not None:
        raise invalid_options(
            f"{command.name} has no state to begin with; give the moment as bm, or as as_of to "
            f"sow_and_{command.name}"
        )


def _check_replay(command: Command) -> None:
    """Refuse what controls a replay, where there is none or it has its own times."""
    options = command.options
    if not options.pause and options.rate is None:
        return
    name = "pause" if options.pause else "rate"
    if command.bookmark in (None, *NOW):
        raise invalid_options(
            f"{name} is about the replay of a bookmark; give bm, or leave out {name}"
        )
    if options.conflation is not None:
        raise invalid_options(
            f"a conflated replay follows the times of the log; leave out {name} or conflation"
        )
    if options.pause and (options.oof or command.kind.is_delta):
        raise held_by_pause("a replay with oof or deltas")


def _check_from_past(command: Command) -> None:
    """Refuse what does not begin with a past state."""
    options = command.options
    wrong = {
        "groups of records": is_aggregated(command),
        "a live window": window_of(command) is not None,
        "a replacement": options.replace,
        "last, of more than one event,": (options.last or 1) > 1,
    }
    for what, is_so in wrong.items():
        if is_so:
            raise invalid_options(
                f"{what} begins with the present; leave out as_of, or ask for the past by sow"
            )
    if (options.oof or command.kind.is_delta) and (
        sow_keys(command) is not None or options.top_n is not None or options.skip_n
    ):
        raise invalid_options(
            "with as_of, oof and deltas are about all records that match; leave out keys, top_n "
            "and skip_n, and let the filter name the records"
        )
