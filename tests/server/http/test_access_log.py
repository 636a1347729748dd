"""A line for each request, where it is wanted; never what is asked with it."""

import asyncio
import logging

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from sow.core.security_definitions import User
from sow.security.authorization import Permissions
from sow.server.http.access_log import AccessLog
from sow.server.http.authn_middleware import RIGHTS


def noted(caplog, handler, path="/v1/topics/orders/records?filter=/px>1&token=hunter2", user=None):
    moments = iter([1_000_000, 1_012_345])
    request = make_mocked_request("GET", path)
    if user:
        request[RIGHTS] = Permissions(User(user))
    caplog.set_level(logging.INFO, "sow.access")
    answering = AccessLog(lambda: True, lambda: next(moments)).note(request, handler)
    try:
        asyncio.run(answering)
    finally:
        (record,) = caplog.records
        noted.record = record
    return record


async def answer(_request):
    return web.Response(text="four")


def test_a_request_is_one_line_without_its_parameters(caplog):
    record = noted(caplog, answer, user="ann")
    said = record.getMessage()
    assert said.endswith(" ann GET /v1/topics/orders/records 200 12.3 ms")
    assert "hunter2" not in said + str(record.fields)
    assert (record.fields["bytes"], record.fields["took_ms"]) == (4, 12.3)


def test_one_whose_client_has_gone_is_noted_as_such(caplog):
    async def gone(_request):
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        noted(caplog, gone)
    assert noted.record.fields["status"] == 499


def test_an_address_of_megabytes_is_clipped(caplog):
    assert len(noted(caplog, answer, path="/" + "x" * 1_000_000).getMessage()) < 1000


def test_it_says_nothing_unless_it_is_wanted(caplog):
    caplog.set_level(logging.INFO, "sow.access")
    log = AccessLog(lambda: False, lambda: 0)
    response = asyncio.run(log.note(make_mocked_request("GET", "/"), answer))
    assert (response.status, caplog.records) == (200, [])
