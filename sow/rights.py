"""Rights: what a user may do, by the roles that he has.

Roles are read once into what they allow; the rights of a user are made of it when he comes, and
asked at every door: `may` and `check`. A topic of which a user may do nothing does not exist for
him: it is refused as one that is not there, and no list, count or suggestion knows it. Without
roles everybody may do everything, and nothing is asked.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import re2

from sow.definitions import OF_TOPICS, SYSTEM_PREFIX, Allow, Role, Security, Verb
from sow.errors import NotEntitled, Unauthenticated, UnknownTopic, clipped, shown
from sow.users import User

Demand = Verb | Literal["nothing", "logon", "see"]
"""What a door demands of who comes: a verb that he may, that he has said who he is, that the topic
is there for him, or nothing."""

TOPICS_KEPT = 10_000
"""Topics of which what a user may do is kept: then each is asked of its roles once."""


class Allowed:
    """What one `<Allow>` says of topics."""

    def __init__(self, allow: Allow) -> None:
        self.verbs = frozenset(verb for verb in OF_TOPICS if verb in allow.verbs)
        self.topic = allow.topic
        self._expression = re2.compile(allow.topic)
        # Whoever writes .* means topics of his own.
        self._takes_systems = allow.topic.lstrip("^(").startswith(SYSTEM_PREFIX)

    def concerns(self, topic: str) -> bool:
        """Whether it is about a topic of this name."""
        if topic.startswith(SYSTEM_PREFIX) and not self._takes_systems:
            return False
        return self._expression.fullmatch(topic) is not None


class Rights:
    """What `user` may do: `allowed`, with topics, and `others` beside (Admin, Impersonate).

    `by` is who acts for him, if it is not he himself: whose credentials were checked.
    """

    is_open = False
    """Everything, whoever he is."""

    def __init__(
        self,
        user: User | None,
        allowed: Sequence[Allowed] = (),
        others: Iterable[Verb] = (),
        by: User | None = None,
    ) -> None:
        self.user = user
        self.by = by
        self._allowed = allowed
        self._others = frozenset(others)
        self._verbs: dict[str, frozenset[Verb]] = {}

    @property
    def owner(self) -> tuple[str, ...]:
        """Whose a session or a snapshot is that was made with these rights: nobody else may have
        it. Nothing where nobody is asked."""
        return tuple(one.name for one in (self.user, self.by) if one is not None)

    @property
    def expires_us(self) -> int | None:
        """Until when they hold."""
        said = self.by or self.user
        return None if said is None else said.expires_us

    @property
    def reads(self) -> str:
        """Equal for rights to read topics of the same names."""
        return "\n".join(sorted({one.topic for one in self._allowed if "read" in one.verbs}))

    def of(self, topic: str) -> frozenset[Verb]:
        """What he may do with a topic of this name."""
        found = self._verbs.get(topic)
        if found is None:
            if len(self._verbs) >= TOPICS_KEPT:
                self._verbs.clear()
            verbs = [one.verbs for one in self._allowed if one.concerns(topic)]
            found = self._verbs[topic] = frozenset[Verb]().union(*verbs)
        return found

    def may(self, verb: Verb, topic: str = "") -> bool:
        """Whether he may do that, with this topic if it is about one."""
        return verb in (self.of(topic) if verb in OF_TOPICS else self._others)

    def sees(self, topic: str) -> bool:
        """Whether a topic of this name is there for him."""
        return bool(self.of(topic))

    def check(self, demand: Demand, topic: str = "") -> None:
        """Raise Unauthenticated, NotEntitled, or UnknownTopic for one that is not there for him."""
        if demand == "nothing":
            return
        if self.user is None:
            raise Unauthenticated("log on first, with a token, or a user and his password")
        if demand == "logon" or (demand != "see" and self.may(demand, topic)):
            return
        if demand == "see" and self.sees(topic):
            return
        if demand != "see" and demand not in OF_TOPICS:
            raise NotEntitled(
                f"user {clipped(self.user.name)} has no role that allows <{demand.capitalize()}/>"
            )
        if not self.sees(topic):
            raise UnknownTopic(f"no topic {shown(topic)}", wanted=topic)
        raise NotEntitled(
            f"user {clipped(self.user.name)} has no role that allows to {demand} topic "
            f"{clipped(topic)}"
        )


class Open(Rights):
    """The rights of everybody where nobody is asked who he is."""

    is_open = True

    @property
    def reads(self) -> str:
        """Every topic."""
        return ""

    def may(self, _verb: Verb, _topic: str = "") -> bool:
        """He may."""
        return True

    def sees(self, _topic: str) -> bool:
        """It is."""
        return True

    def check(self, _demand: Demand, _topic: str = "") -> None:
        """Nothing speaks against it."""


EVERYTHING = Open(None)


class Entitlements:
    """What the roles of a configuration give to whom."""

    def __init__(self, security: Security) -> None:
        self.asks = security.authentication is not None
        """Whether users have to say who they are."""
        self._roles = [(role, [*map(Allowed, role.allows)]) for role in security.roles]

    def rights(self, user: User | None, by: User | None = None) -> Rights:
        """The rights of a user, for whom `by` may act; None: of somebody who has not said who he
        is."""
        if not self.asks:
            return EVERYTHING
        if user is None:
            return Rights(None)
        held = [(role, allowed) for role, allowed in self._roles if _has(user, role)]
        return Rights(
            user,
            [one for _, allowed in held for one in allowed if one.verbs],
            [verb for role, _ in held for allow in role.allows for verb in allow.verbs],
            by,
        )


def _has(user: User, role: Role) -> bool:
    """Whether a user is a member of a role."""
    names = {"*", f"user:{user.name}", *(f"group:{group}" for group in user.groups)}
    return not names.isdisjoint(role.members)
