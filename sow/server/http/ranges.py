"""Range requests: a part of an answer (RFC 9110 §14).

One range of bytes is answered with 206; several, and invalid ones, are ignored, as the full answer
is always right. `If-Range` names the answer that the client has a part of: a part of another one
would not fit. A range counts bytes as they are sent, and compressed bytes differ from one request
to the next, so compressed answers have no ranges.
"""

import re

from aiohttp import hdrs, web

from sow.errors import ClientError
from sow.server.http.content_codings import CODING, IDENTITY

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
    found = RANGE.fullmatch(headers.get(hdrs.RANGE, "").strip())
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
