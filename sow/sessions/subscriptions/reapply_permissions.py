"""Changed permissions: the subscriptions of live sessions continue under new ones.

Authentication may take a while, and so may computing the permissions of many roles. So the new
permissions of all sessions are prepared first, while the old ones hold, and take effect together,
in one step (`OpenSessions.go_on_with`). Subscriptions are replaced after that, one session after
the other; until then the session is sent nothing.

Each subscription is replaced by itself with its new row policy
(`sow.sessions.subscriptions.replace_subscription`): records that the user may no longer see leave
with the reason ``entitlement`` and the state that was last sent; newly visible ones arrive, if the
session had everything before. So it is exact whatever waits in windows, and for disconnected
sessions, too. A subscription to a topic that the user may not read any more ends, and so does one
that cannot be replaced.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.core.security_definitions import User
from sow.engine.engine import Engine
from sow.engine.live_topic import is_hidden
from sow.errors import Busy, SowError
from sow.protocol.commands import Command
from sow.security.authorization import Permissions, RoleSet
from sow.sessions.queries.access_control import is_visible, row_policy_for, shows
from sow.sessions.queries.aggregations import Aggregations, Share, about_rows, is_aggregated
from sow.sessions.subscriptions import Register, Subscription, Unsubscriber
from sow.sessions.subscriptions.live_window import LiveWindows
from sow.sessions.subscriptions.replace_subscription import SubscriptionReplacer
from sow.streaming.channel import ReportingChannel
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import UpdateEncoder


class PreparedPermissions(NamedTuple):
    """The new permissions of a session, with the old ones and the credentials that gave those,
    `shown`; None: its user is not authenticated any more."""

    had: Permissions
    shown: object
    rights: Permissions | None

    def is_of(self, session: Session) -> bool:
        """Whether the session is as it was when they were prepared."""
        return session.rights is self.had and session.shown is self.shown


def prepare(
    session: Session,
    shown: object,
    found: User | None,
    role_set: RoleSet,
    named: Callable[[str], User],
) -> PreparedPermissions:
    """The permissions of a session by these roles. `found` is the user that its credentials,
    `shown`, authenticate now; None: they no longer do. `named` resolves the name of an impersonated
    user."""
    had = session.rights
    return PreparedPermissions(had, shown, _rights(had, found, role_set, named))


def _rights(
    had: Permissions, found: User | None, role_set: RoleSet, named: Callable[[str], User]
) -> Permissions | None:
    if not role_set.authenticates or (had.user is None and not had.is_open):
        return role_set.rights(None)
    was = had.by or had.user
    if found is None or was is None or had.user is None or found.name != was.name:
        # Or the credentials belong to another user now.
        return None
    rights = role_set.rights(found)
    if had.by is None:
        return rights
    return role_set.rights(named(had.user.name), found) if rights.may("impersonate") else None


class Gone(Exception):
    """The subscription has ended meanwhile."""


class PermissionReapplier:
    """Puts the subscriptions of a session under other rights."""

    def __init__(
        self,
        engine: Engine,
        register: Register,
        aggregations: Aggregations,
        replacing: SubscriptionReplacer,
        windowing: LiveWindows,
        ending: Unsubscriber,
    ) -> None:
        self._engine = engine
        self._register = register
        self._aggregations = aggregations
        self._replacing = replacing
        self._windowing = windowing
        self._ending = ending

    def reguard(self, session: Session) -> Task[None]:
        """Let a session go on with the rights that it has now, one subscription after the other.

        Until that is done the session is sent nothing of later changes: if this is closed early, it
        is sent nothing until another call completes the work. The same holds when its permissions
        change once more meanwhile: that change starts from scratch.
        """
        session.hold_back()
        rights = session.rights
        for name in [*self._register.of(session)]:
            if rights is not session.rights:
                return
            subscription = self._register.of(session).get(name)
            if subscription is None or subscription.command is None:
                continue
            try:
                if self._is_blind(subscription, rights):
                    self._ending.bar(session, name)
                else:
                    yield from self._reguard_one(session, subscription, rights)
            except Gone:
                continue
            except Exception as error:
                if rights is not session.rights and isinstance(error, Busy):
                    return
                # Whatever it is: it does not go on under the rights of before, and others do.
                if not isinstance(error, SowError):
                    self._ending.report_failure(name, error)
                if name in self._register.of(session):
                    self._ending.bar(session, name)
            self._engine.output.touch(session)
            yield
        if rights is session.rights:
            session.let_out(self._engine.now_us)
            self._engine.output.touch(session)

    def _reguard_one(
        self, session: Session, subscription: Subscription, rights: Permissions
    ) -> Task[None]:
        requested = subscription.command
        assert requested is not None
        if self._sees_the_same(subscription, requested, rights):
            subscription.be_guarded_by(rights)
            return
        if isinstance(subscription.channel, ReportingChannel):
            raise Busy("messages of a queue are taken whole, by who may read all of it")
        if is_hidden(requested.topic):
            raise Busy("the aggregation is still being answered; request it again")
        session.recovery.withdraw()
        if subscription.replay is not None and _needs_account(subscription, requested):
            raise Busy("what was sent of the past was seen under other rights; begin again")
        if subscription.replay is not None:
            # It is replayed from the log; from now on under the new permissions.
            subscription.be_guarded_by(rights)
            subscription.feeds.clear()
            subscription.replay.say_all(partial(self._as_seen, subscription, rights))
            return
        command = replace(
            requested,
            rights=rights,
            subscription=subscription.name,
            cid=None,
            acks=frozenset(),
            bookmark=None,
        )
        yield from self._replace(session, subscription, command)

    @staticmethod
    def _as_seen(
        subscription: Subscription, rights: Permissions, encoder: UpdateEncoder, body: bytes
    ) -> UpdateEncoder | None:
        """Encodes a record in a state read from the log; None: it may not be seen."""
        records = encoder.topic
        if not shows(row_policy_for(rights, records), records, body):
            return None
        key, _ = subscription.seen(records)
        return UpdateEncoder(records, subscription.name, encoder.encoding, key)

    def _replace(
        self, session: Session, subscription: Subscription, command: Command
    ) -> Task[None]:
        """Put it in the place of itself, as its user sees it now."""
        find = partial(self._still, session, subscription)
        requested, share = command, None
        if is_aggregated(command):
            question = self._aggregations.question(command)
            share = yield from self._aggregations.followed(question, session.account)
            command = about_rows(command, share)
        try:
            if subscription.key.window is not None:
                yield from self._windowing.scroll(session, command, find, reguards=True)
            else:
                yield from self._replacing.replace(session, command, False, find, reguards=True)
        finally:
            if share is not None:
                self._hand_over(session, subscription, requested, share)

    def _hand_over(
        self, session: Session, old: Subscription, requested: Command, share: Share
    ) -> None:
        new = self._register.of(session).get(old.name)
        if new is None or new is old:
            share.let_go()
            return
        new.hold(share)
        new.request_by(requested)

    def _still(self, session: Session, subscription: Subscription) -> Subscription:
        if self._register.of(session).get(subscription.name) is not subscription:
            raise Gone
        return subscription

    def _sees_the_same(
        self, subscription: Subscription, requested: Command, rights: Permissions
    ) -> bool:
        """Whether the new rights make no difference to a subscription."""
        if subscription.pattern is not None:
            return requested.rights.text == rights.text
        # For a view created for a client the policy is that of its source.
        records = self._engine.topic(str(requested.topic)).records
        return row_policy_for(requested.rights, records) == row_policy_for(rights, records)

    def _is_blind(self, subscription: Subscription, rights: Permissions) -> bool:
        """Whether its topic may not be read any more."""
        assert subscription.command is not None
        if subscription.pattern is not None:
            return False
        topic = self._engine.topics.get(str(subscription.command.topic))
        return topic is not None and not is_visible(rights, topic.records)


def _needs_account(subscription: Subscription, requested: Command) -> bool:
    """Whether a replay would have to know what its client holds, to say what new rights change."""
    replay = subscription.replay
    by_states = replay is not None and replay.goes_by_states
    return by_states or subscription.complete or requested.options.withdrawn
