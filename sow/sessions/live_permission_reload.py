"""Entitling: which rights a live session has, when users and roles have been read again.

Authentication may take a while, and so may computing the permissions of many roles. So the new
permissions of all sessions are prepared first, while the old ones hold, and take effect together,
in one step (`OpenSessions.go_on_with`). Subscriptions are replaced after that, one session after
the other (`sow.sessions.reapply_permissions`); until then the session is sent nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

from sow.core.security_definitions import User
from sow.security.authorization import Permissions, RoleSet
from sow.streaming.sessions import Session


class PreparedPermissions(NamedTuple):
    """The rights that a session is to have, which had other ones and had `shown` who it is; None:
    its user is known no longer."""

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
