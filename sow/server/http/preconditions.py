"""Preconditions and ranges: what a request says about a known state (RFC 9110 §13 and §14).

`If-Match` and `If-None-Match` name states by their tags, or any state by `*`. A request that would
change a record is executed if they hold in the step that changes it, so of several clients that
have read the same state one succeeds. Each format of a record has a tag of its own, and any of them
identifies the state; weak tags, as compressed answers have them, count as well. A precondition that
cannot be parsed is an error: if it were ignored, the request would do what it was meant to prevent.

One range of bytes is answered with 206; several, and invalid ones, are ignored, as the full answer
is always right. `If-Range` names the answer that the client has a part of: a part of another one
would not fit. A range counts bytes as they are sent, and compressed bytes differ from one request
to the next, so compressed answers have no ranges.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from aiohttp import hdrs, web

from sow.errors import ClientError, clipped
from sow.server.http.compression import CODING, IDENTITY

TAG = re.compile(r'[ \t]*(?:(?:W/)?("[\x21\x23-\x7e\x80-\U0010ffff]*")[ \t]*)?(?:,|$)')
"""One element of a list of tags; it may be empty (RFC 9110 §5.6.1). No blank can match in two ways,
or thousands of them would take exponential time."""
ANY_STATE = frozenset("*")


class PreconditionFailed(ClientError):
    """The record is not in the state that the client expects; nothing was done."""

    reason = "precondition failed"
    status = 412


class Conditions(NamedTuple):
    """Tags of states: one of them has to be current (`match`), and of those that must not be
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


RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class RangeNotSatisfiable(ClientError):
    """A range that begins after the end of an answer of `size` bytes."""

    reason = "range not satisfiable"
    status = 416

    def __init__(self, size: int) -> None:
        super().__init__(f"Range: the answer has {size} bytes; write a range that begins in them")
        self.size = size


def has_ranges(request: web.Request) -> bool:
    """Whether the answer supports ranges."""
    coding: str = request.get(CODING, IDENTITY)
    return coding == IDENTITY


def range_of(request: web.Request, tag: str, size: int) -> tuple[int, int] | None:
    """The bounds of the requested range of the `size` bytes with the entity tag `tag`; None for all
    of them. Raises RangeNotSatisfiable."""
    headers = request.headers
    if hdrs.RANGE not in headers:
        return None
    found = RANGE.fullmatch(headers[hdrs.RANGE].strip())
    if found is None or request.method != hdrs.METH_GET or not has_ranges(request):
        return None
    if headers.get(hdrs.IF_RANGE, tag).strip() != tag:
        return None
    first, last = found.groups()
    if not first:
        if not last:
            return None
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise RangeNotSatisfiable(size)
    return start, stop
