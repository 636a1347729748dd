"""Whoever waits for a word is told to send a body that is read, and none that is refused."""

import json

import pytest
from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from sow.server.http.expectations import (
    EXPECTED,
    ExpectationFailed,
    check_expectation,
    end_unmet,
    send_continue,
    with_deferred_expectations,
)
from tests.server.stand_ins import request_of, stepped


def made(expect=None, version=HttpVersion11):
    """A request as aiohttp is to see it."""
    headers = CIMultiDict({"Host": "localhost"} | ({} if expect is None else {"Expect": expect}))
    message = RawRequestMessage(
        "POST", "/", version, CIMultiDictProxy(headers), (), False, None, False, False, URL("/")
    )

    def make(message):
        return request_of("POST", headers=message.headers, payload=object())

    return with_deferred_expectations(make)(message)


async def handler(_request):
    return web.Response()


def test_what_a_request_expects_is_kept_from_aiohttp():
    request = made("100-continue")
    assert request[EXPECTED] == "100-continue"
    assert list(request.headers) == ["Host"]
    assert EXPECTED not in made()
    assert EXPECTED not in made("")
    assert EXPECTED not in made("100-continue", HttpVersion10)


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue", " 100-CONTINUE "])
@stepped
async def test_a_word_is_waited_for_until_the_body_is_read(expect):
    request = made(expect)
    await check_expectation(request, handler)
    assert request.writer.write.call_count == 0
    await send_continue(request)
    await send_continue(request)
    request.writer.write.assert_called_once_with(b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.mark.parametrize("expect", ["200-ok", "100-continue, more", "x" * 5000])
@stepped
async def test_another_expectation_is_refused(expect):
    with pytest.raises(ExpectationFailed) as refused:
        await check_expectation(made(expect), handler)
    assert refused.value.status == 417
    assert len(json.dumps(refused.value.detail)) < 400


@stepped
async def test_who_expects_nothing_is_sent_nothing():
    request = made()
    await check_expectation(request, handler)
    await send_continue(request)
    assert request.writer.write.call_count == 0


@pytest.mark.parametrize(("reads", "closes"), [(False, True), (True, False)])
@stepped
async def test_an_answer_before_the_body_is_the_last_one(reads, closes):
    request, response = made("100-continue"), web.Response()
    if reads:
        await send_continue(request)
    await end_unmet(request, response)
    assert ("Connection" in response.headers) == closes
    assert (response.keep_alive is False) == closes
