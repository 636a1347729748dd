"""No text that a client sends makes an answer that cannot be sent."""

import asyncio
import re

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from sow.server.http.negotiation import accepted, wants_columns
from sow.server.http.responses import HEADER_CHARS_MAX, header_value, mark_kept, sanitize_headers
from tests.server.stand_ins import request_of, stepped


@pytest.mark.parametrize("text", ["", "scan", "hash(/a)", "100%", 'W/"12"', "text/html; a=b"])
def test_what_can_be_sent_is_sent_as_it_is(text):
    assert header_value(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a\r\nX-Evil: 1", "a%0D%0AX-Evil: 1"),
        ("a\0b", "a%00b"),
        ("\x7f", "%7F"),
        ("\t", "%09"),
        ("é", "%C3%A9"),
        ("\ud800", "%ED%A0%80"),
        ("100%\n", "100%25%0A"),
    ],
)
def test_what_cannot_is_written_in_another_way(text, value):
    assert header_value(text) == value


@given(st.text(st.characters()) | st.text(st.characters(), min_size=2000, max_size=2100))
def test_any_text_becomes_a_short_line_of_ascii(text):
    value = header_value(text)
    assert re.fullmatch(f"[ -~]{{0,{HEADER_CHARS_MAX}}}", value)
    assert header_value(value) == value


def test_every_header_of_an_answer_is_looked_at():
    response = web.Response(headers=[("ETag", "\r\n"), ("Vary", "Origin"), ("Vary", "é")])
    response.headers["Content-Disposition"] = "attachment; filename=a\nb"
    asyncio.run(sanitize_headers(make_mocked_request("GET", "/"), response))
    assert response.headers["ETag"] == "%0D%0A"
    assert response.headers.getall("Vary") == ["Origin", "%C3%A9"]
    assert response.headers["Content-Disposition"] == "attachment; filename=a%0Ab"


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
