"""Whatever goes wrong becomes a problem document, and never a traceback."""

import json
import logging

import pytest
from aiohttp import web

from sow.errors import BadFilter, BadMessage, Busy, UnknownTopic
from sow.server.http.problems import problem, raw_answer, report
from tests.server.stand_ins import request_of, stepped


def documented(response):
    assert response.content_type == "application/problem+json"
    return response.status, json.loads(response.body)


def test_an_error_says_its_status_reason_detail_and_where():
    status, document = documented(problem(BadMessage("it is no JSON", index=7)))
    assert status == document["status"] == 400
    assert document["title"] == document["reason"]
    assert (document["detail"], document["index"]) == ("it is no JSON", 7)


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
