"""Caches are told that an answer is asked about again, and what it depends on."""

import pytest
from aiohttp import web

from sow.server.http.caching import mark_kept
from sow.server.http.negotiation import accepted, wants_columns
from tests.server.stand_ins import request_of, stepped


async def marked(request, **headers):
    response = web.StreamResponse(headers={"Content-Type": "application/json"} | headers)
    await mark_kept(request, response)
    return response.headers


@stepped
async def test_an_answer_is_kept_and_requested_about():
    assert (await marked(request_of()))["Cache-Control"] == "no-cache"
    own = {"Cache-Control": "no-store"}
    assert (await marked(request_of(), **own))["Cache-Control"] == "no-store"


@stepped
async def test_an_answer_that_a_header_has_chosen_says_so_beside_what_else_it_depends_on():
    request = request_of()
    assert "Vary" not in await marked(request)
    for _ in range(2):
        accepted(request, ["application/json"])
    found = await marked(request, Vary="Origin")
    assert found.getall("Vary") == ["Origin", "Accept"]
    assert not wants_columns(request)
    assert (await marked(request)).getall("Vary") == ["Accept", "Prefer"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("text/csv", "text/csv; charset=utf-8"),
        ("text/html; charset=utf-8", "text/html; charset=utf-8"),
        ("application/json", "application/json"),
        ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
    ],
)
@stepped
async def test_a_text_says_that_it_is_utf_8(kind, says):
    assert (await marked(request_of(), **{"Content-Type": kind}))["Content-Type"] == says
