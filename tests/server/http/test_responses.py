"""No text that a client sends makes an answer that cannot be sent."""

import asyncio
import re

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from sow.server.http.responses import HEADER_CHARS_MAX, header_value, sanitize_headers


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
