"""Authorization: the permissions of a user, from roles.

Roles are parsed once; the permissions of a user are computed at logon and checked at every
endpoint: `may` and `check`. A topic that a user has no permission for does not exist for that user:
it gives the error of an unknown topic, and no list, count or suggestion includes it. Without
authentication every client may do everything.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple
from weakref import WeakValueDictionary

import orjson
import re2

from sow.core.definitions import SYSTEM_PREFIX
from sow.core.security_definitions import OF_TOPICS, Allow, Role, Security, User, Verb
from sow.errors import NotEntitled, Unauthenticated, UnknownTopic, clipped, shown
from sow.expressions import Node
from sow.security.row_level_security import DENY_ALL, Condition, RowPolicy, row_policy_of

Demand = Verb | Literal["nothing", "logon", "see"]
"""The required permission of a request: a verb, a logon, that the topic is visible to the user, or
nothing."""

USERS_KEPT = 100
"""Users whose permissions are cached, since each sends many requests: with roles of a thousand
Allows they take ten milliseconds or more to compute, and as much memory as the policies of so many
topics."""
EVERY_TOPIC = ".*"
TOPICS_KEPT = 10_000
"""Topics whose permissions are cached for a user, so that roles are evaluated once for each."""


class Allowed:
    """One `<Allow>`, parsed."""

    def __init__(self, allow: Allow) -> None:
        self.verbs = frozenset(verb for verb in OF_TOPICS if verb in allow.verbs)
        self.topic = allow.topic
        self._expression = re2.compile(allow.topic)
        # A pattern such as .* means topics of the user's own.
        self._takes_systems = allow.topic.lstrip("^(").startswith(SYSTEM_PREFIX)
        self._rows = None if allow.filter is None else Condition(allow.filter)
        self._check = None if allow.check is None else Condition(allow.check)
        self._select = allow.select
        self._text = f"{self.topic} {','.join(sorted(self.verbs))}"

    def concerns(self, topic: str) -> bool:
        """Whether it is about a topic of this name."""
        if topic.startswith(SYSTEM_PREFIX) and not self._takes_systems:
            return False
        return self._expression.fullmatch(topic) is not None

    def given(self, claims: Mapping[str, str]) -> "Given | None":
        """What it gives to a user with these claims; None where one is missing, so that nothing can
        be compared with it."""
        bound = [None if one is None else one.bind(claims) for one in (self._rows, self._check)]
        if any(
            read is not None and found is None
            for read, found in zip((self._rows, self._check), bound, strict=True)
        ):
            return None
        return Given(self, bound[0], self._select, bound[1])

    def __str__(self) -> str:
        return self._text


class Given(NamedTuple):
    """What one `<Allow>` gives to one user: `rows` and the fields of `select` to see, `check` to
    write; None: all."""

    allowed: Allowed
    rows: Node | None
    select: tuple[str, ...] | None
    check: Node | None

    @property
    def text(self) -> str:
        """Equal for users with equal permissions."""
        rows, check = (one and one.written for one in (self.rows, self.check))
        return f"{self.allowed}\n{rows}\n{self.select}\n{check}"


class Reason(NamedTuple):
    """One `<Allow>` of a user's role that concerns a topic; `given` is None where it grants nothing
    because the user lacks a claim that it compares with."""

    role: str
    allowed: Allowed
    given: Given | None


AUTHOR_CHARS_MAX = 255
"""Of the name of an author: each event of a series has it, and clients call themselves anything."""


class SharedRowPolicies:
    """The row policies of users: equal ones are one object, so they are compiled once."""

    def __init__(self) -> None:
        self._guards: WeakValueDictionary[str, RowPolicy] = WeakValueDictionary()

    def one(self, guard: RowPolicy) -> RowPolicy:
        """The shared instance of equal policies."""
        return self._guards.setdefault(guard.text, guard)


class Permissions:
    """What `user` may do: `allowed`, with topics, and `others` beside (Admin, Impersonate).

    `by` is the user who impersonates this one, if any: the one whose credentials were checked.
    """

    is_open = False
    """All permissions of one user."""

    def __init__(
        self,
        user: User | None,
        given: Sequence[Given] = (),
        others: Iterable[Verb] = (),
        by: User | None = None,
        shared: SharedRowPolicies | None = None,
    ) -> None:
        self.user = user
        self.by = by
        said = by or user
        self.expires_us = None if said is None else said.expires_us
        """Until when they hold, in microseconds since 1970; None: without an end."""
        self._given = given
        self._by_topic: defaultdict[str, list[int]] = defaultdict(list)
        """The Allows of each expression: many are about the same topics."""
        for at, one in enumerate(given):
            self._by_topic[one.allowed.topic].append(at)
        self._others = frozenset(others)
        self._shared = SharedRowPolicies() if shared is None else shared
        self._verbs: dict[str, frozenset[Verb]] = {}
        self._guards: dict[tuple[str, Verb], RowPolicy | None] = {}
        self._made: dict[tuple[bool, tuple[int, ...]], RowPolicy | None] = {}
        """By the Allows that concern a topic, since many topics have the same."""
        self.text = "\n\n".join(dict.fromkeys(sorted(one.text for one in given)))
        """Equal for users with the same permissions for topics."""

    @property
    def is_somebody(self) -> bool:
        """Whether the user is known, or authentication is off."""
        return self.is_open or self.user is not None

    @property
    def owner(self) -> tuple[str, ...]:
        """The owner of a session or a snapshot made with these permissions: no other user may use
        it. Empty without authentication."""
        return tuple(one.name for one in (self.user, self.by) if one is not None)

    def author(self, client: str | None) -> str:
        """Who writes the events of a series: the user, or without one the client of this name."""
        return (self.user.name if self.user is not None else client or "")[:AUTHOR_CHARS_MAX]

    @property
    def owner_text(self) -> str:
        """The owner of what is stored as an unambiguous text; empty for none. The user alone, not
        who acts for the user, who may come through a chained server or not."""
        return owner_text(self.owner[:1])

    @property
    def reads(self) -> str:
        """Equal for rights to read topics of the same names."""
        read = (one.allowed for one in self._given if "read" in one.allowed.verbs)
        return "\n".join(sorted({one.topic for one in read}))

    @property
    def reads_everything(self) -> bool:
        """Whether one Allow permits to read all records of all topics."""
        return self.is_open or any(
            one.allowed.topic == EVERY_TOPIC
            and "read" in one.allowed.verbs
            and one.rows is None
            and one.select is None
            for one in self._given
        )

    def of(self, topic: str) -> frozenset[Verb]:
        """The permitted verbs for a topic."""
        found = self._verbs.get(topic)
        if found is None:
            if len(self._verbs) >= TOPICS_KEPT:
                self._verbs.clear()
            verbs = [self._given[at].allowed.verbs for at in self._concerning(topic)]
            found = self._verbs[topic] = frozenset[Verb]().union(*verbs)
        return found

    def _concerning(self, topic: str) -> list[int]:
        """The Allows about a topic, in their order."""
        by_topic = self._by_topic.values()
        found = (places for places in by_topic if self._given[places[0]].allowed.concerns(topic))
        return sorted(at for places in found for at in places)

    def may(self, verb: Verb, topic: str = "") -> bool:
        """Whether the verb is permitted, for this topic if it applies to topics."""
        return verb in (self.of(topic) if verb in OF_TOPICS else self._others)

    def sees(self, topic: str) -> bool:
        """Whether a topic of this name is visible."""
        return bool(self.of(topic))

    def guard(self, topic: str) -> RowPolicy | None:
        """The visible part of a topic; None: all of it."""
        return self._guard(topic, "read")

    def write_guard(self, topic: str, verb: Verb) -> RowPolicy | None:
        """The records of a topic that may be written or deleted; None: all."""
        return self._guard(topic, verb)

    def _guard(self, topic: str, verb: Verb) -> RowPolicy | None:
        place = topic, verb
        if place not in self._guards:
            if len(self._guards) >= TOPICS_KEPT:
                self._guards.clear()
                self._made.clear()
            concerning = tuple(
                at for at in self._concerning(topic) if verb in self._given[at].allowed.verbs
            )
            made = verb == "read", concerning
            if made not in self._made:
                self._made[made] = self._made_of(*made)
            self._guards[place] = self._made[made]
        return self._guards[place]

    def _made_of(self, reads: bool, concerning: Iterable[int]) -> RowPolicy | None:
        given = [self._given[at] for at in concerning]
        if reads:
            found = row_policy_of([one.rows for one in given], [one.select for one in given])
        else:
            found = row_policy_of([one.check for one in given], [None for _ in given])
        return found if found is None or found is DENY_ALL else self._shared.one(found)

    def check(self, demand: Demand, topic: str = "") -> None:
        """Raise Unauthenticated, NotEntitled, or UnknownTopic for a topic that is not visible."""
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


def owner_text(names: Sequence[str]) -> str:
    """An owner as an unambiguous text; empty for none."""
    return orjson.dumps(names).decode() if names else ""


def stored_owner(text: str) -> str:
    """An owner as it was stored: earlier versions noted who acted for the user, too."""
    return owner_text(orjson.loads(text)[:1]) if text else ""


class Open(Permissions):
    """The permissions of every client where there is no authentication."""

    is_open = True

    @property
    def reads(self) -> str:
        """Every topic."""
        return ""

    def may(self, _verb: Verb, _topic: str = "") -> bool:
        """Always permitted."""
        return True

    def sees(self, _topic: str) -> bool:
        """Always visible."""
        return True

    def check(self, _demand: Demand, _topic: str = "") -> None:
        """Always permitted."""

    def _guard(self, _topic: str, _verb: Verb) -> None:
        return None


EVERYTHING = Open(None)
EVERYTHING.text = "everything"  # no Allow grants this, and without Allows nothing is permitted


class RoleSet:
    """The roles of a configuration, and the permissions that they give to users."""

    def __init__(self, security: Security) -> None:
        self.authenticates = security.authentication is not None
        """Whether users have to authenticate."""
        self._roles = [(role, [*map(Allowed, role.allows)]) for role in security.roles]
        self._shared = SharedRowPolicies()
        self._kept: dict[tuple[User, User | None], Permissions] = {}
        """Least recently used first."""

    def rights(self, user: User | None, by: User | None = None) -> Permissions:
        """The permissions of a user, on whose behalf `by` may act; None: of a client that has not
        authenticated."""
        if not self.authenticates:
            return EVERYTHING
        if user is None:
            return Permissions(None)
        found = self._kept.pop((user, by), None) or self._made(user, by)
        self._kept[user, by] = found
        if len(self._kept) > USERS_KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    def _made(self, user: User, by: User | None) -> Permissions:
        held = [(role, allowed) for role, allowed in self._roles if _has(user, role)]
        claims = {**user.claims, "name": user.name}
        given = [one.given(claims) for _, allowed in held for one in allowed if one.verbs]
        return Permissions(
            user,
            [one for one in given if one is not None],
            [verb for role, _ in held for allow in role.allows for verb in allow.verbs],
            by,
            self._shared,
        )

    def reasons(self, user: User, topic: str) -> list[Reason]:
        """The reasons for a user's permissions on a topic: all Allows of the user's roles that
        concern it."""
        claims = {**user.claims, "name": user.name}
        return [
            Reason(role.name, one, one.given(claims))
            for role, allowed in self._roles
            if _has(user, role)
            for one in allowed
            if one.verbs and one.concerns(topic)
        ]


def _has(user: User, role: Role) -> bool:
    """Whether a user is a member of a role."""
    names = {"*", f"user:{user.name}", *(f"group:{group}" for group in user.groups)}
    return not names.isdisjoint(role.members)
