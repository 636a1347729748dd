"""What all answers have, and whatever goes wrong becomes a problem document."""

import asyncio
import json
import logging
import re
from urllib.parse import unquote

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import BadFilter, BadMessage, Busy, ClientError, UnknownTopic
from sow.server.http.negotiation import accepted, wants_columns
from sow.server.http.responses import (
    HEADER_CHARS_MAX,
    file_name,
    header_value,
    mark_kept,
    problem,
    raw_answer,
    report,
    sanitize_headers,
)
from sow.server.http.route import Route
from tests.server.stand_ins import Served, World, request_of, stepped


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


def documented(response):
    assert response.content_type == "application/problem+json"
    return response.status, json.loads(response.body)


def test_an_error_says_its_status_reason_detail_and_where():
    status, document = documented(problem(BadMessage("it is no JSON", index=7)))
    assert status == document["status"] == 400
    assert document["title"] == document["reason"]
    assert (document["detail"], document["index"]) == ("it is no JSON", 7)


@stepped
async def test_an_error_after_the_answer_has_begun_breaks_it_off():
    """A second answer within it would be taken for a part of it."""

    async def fail(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        raise ClientError("too late")

    async with Served(World(), Route("GET", "/v1/fail", "nothing", fail, "")) as place:
        socket = await place.begin("GET", "/v1/fail")
        assert b"begun" in socket.written
        assert b"too late" not in socket.written
        assert socket.closed
        socket.protocol.connection_lost(None)


def test_who_is_to_come_again_is_sent_when():
    assert problem(Busy("full")).headers["Retry-After"] == str(Busy.retry_after_s)


def test_an_answer_in_bytes_is_whole_and_ends_the_connection():
    head, _, body = raw_answer(Busy("there are too many")).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0].startswith("HTTP/1.1 503 ")
    assert "Connection: close" in lines
    assert f"Content-Length: {len(body)}" in lines
    assert json.loads(body)["detail"].startswith("there are too many")


@pytest.mark.parametrize(
    ("error", "status", "reason", "says"),
    [
        (UnknownTopic("no topic x"), 404, "invalid topic", "no topic x"),
        (web.HTTPNotFound(), 404, "not found", "GET /openapi.json"),
        (web.HTTPMethodNotAllowed("PUT", []), 405, "method not allowed", "does not take"),
        (web.HTTPRequestEntityTooLarge(1, 2), 413, "too large", "Limits/FrameSize"),
        (web.HTTPBadRequest(), 400, "bad request", "Bad Request"),
        (web.HTTPConflict(), 400, "bad request", "Conflict"),
        (
            web.RequestPayloadError("400, message: bad\n chunk"),
            400,
            "bad request",
            "cannot be read: bad chunk",
        ),
        (ConnectionResetError(), 400, "bad request", "lost before the request was complete"),
    ],
)
@stepped
async def test_every_error_has_a_sentence_and_the_reason_of_its_status(error, status, reason, says):
    async def handler(_request):
        raise error

    found, document = documented(await report(request_of(), handler))
    assert found == document["status"] == status
    assert document["reason"] == reason
    assert says in document["detail"]


@stepped
async def test_a_method_that_is_not_allowed_says_which_are():
    async def handler(_request):
        raise web.HTTPMethodNotAllowed("PUT", ["GET", "POST"])

    response = await report(request_of(), handler)
    assert (response.status, response.headers["Allow"]) == (405, "GET,POST")


@stepped
async def test_what_redirects_is_no_error():
    async def handler(_request):
        raise web.HTTPFound("/")

    with pytest.raises(web.HTTPFound):
        await report(request_of(), handler)


@stepped
async def test_a_fault_of_the_server_is_logged_and_its_words_stay_there(caplog):
    async def handler(_request):
        raise KeyError("a secret")

    with caplog.at_level(logging.ERROR, "sow"):
        status, document = documented(await report(request_of("GET", "/x"), handler))
    assert status == 500
    assert "secret" not in json.dumps(document)
    assert "a secret" in caplog.text


def test_a_problem_has_a_type_of_its_own():
    document = json.loads(problem(BadFilter("wrong")).body)
    assert document["type"] == "urn:sow:problem:bad-filter"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("orders", 'filename="orders.csv"'),
        ("/my/orders", 'filename="my_orders.csv"'),
        ("a\r\nSet-Cookie: x", 'filename="a_Set-Cookie_x.csv"'),
        ('"; filename="evil.exe', 'filename="filename=_evil.exe.csv"'),
        ("..", 'filename="records.csv"'),
        ("%2e%2e", 'filename="2e_2e.csv"'),
        ("é\u202e", "filename=\"__.csv\"; filename*=UTF-8''%C3%A9%E2%80%AE.csv"),
        ("x" * 255, f'filename="{"x" * 60}.csv"'),
    ],
)
def test_the_name_of_a_file_is_one_part_of_a_path_and_one_value(name, file):
    (value,) = file_name(name, "text/csv").values()
    assert value == f"attachment; {file}"
    assert header_value(value) == value


def test_a_name_of_other_letters_fits_into_its_header():
    (value,) = file_name("\U0001f600" * 255, "text/csv").values()
    assert header_value(value) == value
    assert unquote(value.partition("UTF-8''")[2]) == "\U0001f600" * 60 + ".csv"
