"""Conditions: what a request wants of the record that it is about, as it is at that moment.

`If-Match` and `If-None-Match` (RFC 9110 §13.1) name states by their tags, or any state by `*`. A
request that would change a record is carried out if they hold in the step that changes it, so that
of several who have read the same state one comes through. Each form in which a record is answered
has a tag of its own, and any of them names the state; weak ones, as a compressed answer has them,
are as good as strong ones.

One that cannot be read is refused: passed over, it would let through what it was to keep out.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from aiohttp import hdrs, web

from sow.errors import ClientError, clipped

TAG = re.compile(r'[ \t]*(?:(?:W/)?("[\x21\x23-\x7e\x80-\U0010ffff]*")[ \t]*)?(?:,|$)')
"""One element of a list of tags; it may be empty (RFC 9110 §5.6.1). No blank can be read in two
ways, or thousands of them would be tried in all."""
ANY_STATE = frozenset("*")


class PreconditionFailed(ClientError):
    """The record is not what the client takes it for; nothing was done."""

    reason = "precondition failed"
    status = 412


class Conditions(NamedTuple):
    """The tags of states of which one has to be there (`match`), and of those that must not
    (`none_match`); None where nothing is said."""

    match: frozenset[str] | None = None
    none_match: frozenset[str] | None = None

    @classmethod
    def of(cls, request: web.Request) -> "Conditions":
        """Those of a request; raises ClientError for one that cannot be read."""
        return cls(_tags(request, hdrs.IF_MATCH), _tags(request, hdrs.IF_NONE_MATCH))

    @classmethod
    def of_reader(cls, request: web.Request) -> "Conditions":
        """Those that may refuse a reader his answer; by `If-None-Match` he has it already, or not
        (`sow.server.http.negotiation`)."""
        return cls(_tags(request, hdrs.IF_MATCH))

    @property
    def asks(self) -> bool:
        """Whether there are any."""
        return self.match is not None or self.none_match is not None

    def check(self, tags: Sequence[str], is_there: bool) -> None:
        """Raise PreconditionFailed unless they hold for a record in the state that `tags` name, one
        for each form; there are none of one that may not be seen, if it is there at all."""
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
