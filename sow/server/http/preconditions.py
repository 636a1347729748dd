"""Preconditions: `If-Match` and `If-None-Match` of requests on records (RFC 9110 §13.1).

They name states by their tags, or any state by `*`. A request that would change a record is
executed if they hold in the step that changes it, so of several clients that have read the same
state one succeeds. Each format of a record has a tag of its own, and any of them identifies the
state; weak tags, as compressed answers have them, count as well.

A header that cannot be parsed is an error: if it were ignored, the request would do what it was
meant to prevent.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from aiohttp import hdrs, web

from sow.errors import ClientError, clipped

TAG = re.compile(r'[ \t]*(?:(?:W/)?("[\x21\x23-\x7e\x80-\U0010ffff]*")[ \t]*)?(?:,|$)')
"""One element of a list of tags; it may be empty (RFC 9110 §5.6.1). No blank can match in two ways,
or thousands of them would take exponential time."""
ANY_STATE = frozenset("*")


class PreconditionFailed(ClientError):
    """The record is not in the state that the client expects; nothing was done."""

    reason = "precondition failed"
    status = 412


class Conditions(NamedTuple):
    """The tags of states one of which has to be current (`match`), and of those that must not be
    (`none_match`); None if the header is missing."""

    match: frozenset[str] | None = None
    none_match: frozenset[str] | None = None

    @classmethod
    def of(cls, request: web.Request) -> "Conditions":
        """The conditions of a request; raises ClientError for a header that cannot be parsed."""
        return cls(_tags(request, hdrs.IF_MATCH), _tags(request, hdrs.IF_NONE_MATCH))

    @classmethod
    def of_reader(cls, request: web.Request) -> "Conditions":
        """The conditions of a read that may fail; `If-None-Match` of a read means 304
        (`sow.server.http.negotiation`)."""
        return cls(_tags(request, hdrs.IF_MATCH))

    @property
    def are_given(self) -> bool:
        """Whether there are any."""
        return self.match is not None or self.none_match is not None

    def check(self, tags: Sequence[str], is_there: bool) -> None:
        """Raise PreconditionFailed unless the conditions hold for a record in the state of `tags`,
        one for each format; a record that may not be seen has none, even if it exists."""
        if self.match is not None and (not tags or not self.match & {*tags, *ANY_STATE}):
            now = f"it is {tags[0]} now" if tags else "there is none"
            raise PreconditionFailed(
                f"If-Match: the record is in none of these states, {now}; read it again"
            )
        if self.none_match is not None and (
            (is_there and self.none_match == ANY_STATE) or self.none_match & {*tags}
        ):
            raise PreconditionFailed("If-None-Match: the record is there already")


def _tags(request: web.Request, name: str) -> frozenset[str] | None:
    lines = request.headers.getall(name, ())
    if not lines:
        return None
    text = ", ".join(lines).strip()
    if text == "*":
        return ANY_STATE
    found, at = [], 0
    while at < len(text):
        element = TAG.match(text, at)
        if element is None:
            break
        found += [element[1]] if element[1] else []
        at = element.end()
    if at < len(text) or not found:
        raise ClientError(
            f'{name}: {clipped(text)} is not a list of entity tags; write "12", as ETag gave it, '
            "or *"
        )
    return frozenset(found)
