"""Descriptions of many things as one JSON array, written some at a time.

There may be a hundred thousand topics. The list is fixed at the beginning; something that is
removed meanwhile is described as it was.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from aiohttp import web

from sow.core.media_types import JSON
from sow.server.http.body_stream import documents_of
from sow.server.http.chunked_response import answer_in_pieces, answer_whole
from sow.server.http.responses import json_text
from sow.server.loop.scheduler import FairScheduler

DESCRIBED_AT_ONCE = 50
"""Topics or sessions described in one step: half a millisecond."""

Thing = TypeVar("Thing")


async def answer_array(
    turns: FairScheduler,
    request: web.Request,
    things: Sequence[Thing],
    describe: Callable[[Thing], object],
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """The descriptions of things as an array, some at a time."""
    if len(things) <= DESCRIBED_AT_ONCE:
        text = json_text([describe(one) for one in things])
        return answer_whole(request, text, JSON, headers)
    chunks = (
        [json_text(describe(one)) for one in things[start : start + DESCRIBED_AT_ONCE]]
        for start in range(0, len(things), DESCRIBED_AT_ONCE)
    )
    pieces = documents_of(chunks, lines=False)
    return await answer_in_pieces(turns, "a list over HTTP", request, pieces, JSON, headers)
