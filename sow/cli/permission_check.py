"""`sow check --as`: what a user would see of a topic, and why.

For authors of roles: each `<Allow>` of the topic and what it grants this user, the result of all of
them, and, if a server runs, the number of visible records. Nobody logs on: the user's groups come
from the files of users and tokens, or from options.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from sow.cli.connecting import connected
from sow.cli.options import run
from sow.client.http import records_of
from sow.config import require
from sow.core.security_definitions import OF_TOPICS, Authentication, User
from sow.errors import ClientError, shown
from sow.expressions import compile_filter
from sow.security.authentication.htpasswd import Users
from sow.security.authentication.tokens import read_lines
from sow.security.authorization import Reason, RoleSet
from sow.security.row_level_security import DENY_ALL

Seen = dict[str, Any]
"""What a user sees, as JSON."""


def seen(
    config: str,
    variables: Mapping[str, str],
    name: str,
    topic: str,
    *,
    groups: Sequence[str],
    claims: Mapping[str, str],
    filter_text: str | None,
    url: str | None,
) -> Seen:
    """What the user `name` would see of a topic under a configuration. Raises ClientError,
    ConfigError, and errors of the server at `url`, if one is given."""
    security = require(config, variables, os.environ).security
    if security.authentication is None:
        raise ClientError(f"{config} has no Authentication: everybody sees everything")
    user = _user(security.authentication, name, groups, claims)
    role_set = RoleSet(security)
    rights = role_set.rights(user)
    guard = rights.guard(topic) if rights.may("read", topic) else DENY_ALL
    own = compile_filter(filter_text) if filter_text else None
    condition = own if guard is None else guard.condition(own)
    found: Seen = {
        "user": name,
        "groups": sorted(user.groups),
        "topic": topic,
        "may": [verb for verb in OF_TOPICS if rights.may(verb, topic)],
        "because": [_because(one) for one in role_set.reasons(user, topic)],
        "rows": None if condition is None else str(condition.expression),
        "fields": None if guard is None or guard.select is None else list(guard.select),
    }
    if url is not None and "read" in found["may"]:
        found["matches"] = run(_count(url, topic, found["rows"]))
    return found


def lines(found: Seen) -> list[str]:
    """The same as text."""
    subject = found["user"] + (f" ({', '.join(found['groups'])})" if found["groups"] else "")
    if not found["may"]:
        sentences = [f"{subject} does not see {found['topic']}"]
    else:
        sentences = [f"{subject} may {', '.join(found['may'])} {found['topic']}"]
    sentences += [f"  {line}" for line in found["because"]]
    if "read" in found["may"]:
        sentences.append(f"rows: {found['rows'] or 'all'}")
        sentences.append(f"fields: {','.join(found['fields']) if found['fields'] else 'all'}")
    if "matches" in found:
        sentences.append(f"matches: {found['matches']:,}")
    return sentences


def _because(reason: Reason) -> str:
    allowed, given = reason.allowed, reason.given
    verbs = ", ".join(verb for verb in OF_TOPICS if verb in allowed.verbs)
    start = f"role {reason.role} allows to {verbs} {allowed.topic}"
    if given is None:
        return f"{start} by a claim that this user lacks: it grants nothing"
    parts = [f"rows {given.rows}" if given.rows is not None else ""]
    parts.append(f"fields {','.join(given.select)}" if given.select else "")
    parts.append(f"check {given.check}" if given.check is not None else "")
    return "; ".join([start, *filter(None, parts)])


def _user(by: Authentication, name: str, groups: Sequence[str], claims: Mapping[str, str]) -> User:
    """The user of this name, with groups from the files and from options."""
    known = set(groups)
    is_known = bool(groups or claims) or by.jwt is not None or by.client_certificates
    if by.users_file:
        users = Users.read(by.users_file)
        is_known |= name in users.hashes
        known |= users.groups(name)
    if by.tokens_file:
        lines_of = [line for line in read_lines(by.tokens_file) if line.name == name]
        is_known |= bool(lines_of)
        known |= {group for line in lines_of for group in line.groups}
    if not is_known:
        raise ClientError(
            f"no file of users or tokens has {shown(name)}; if the user logs on otherwise "
            "give --group and --claim"
        )
    return User(name, frozenset(known), claims)


async def _count(url: str, topic: str, rows: str | None) -> int:
    """The number of visible records, as the server counts them for the caller."""
    async with connected(url, "sow check") as client:
        requested = {"top_n": 0, "filter": rows}
        async with client.http.request("GET", records_of(topic), requested) as answer:
            return int(answer.headers["SOW-Matches"])
