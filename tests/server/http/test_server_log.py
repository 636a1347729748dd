"""The server log writes what its settings ask for, and never a flood."""

import asyncio
import logging

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from sow.core.definitions import LogSettings
from sow.core.security_definitions import Security, User
from sow.security.authorization import Permissions, RoleSet
from sow.server.http import server_log
from sow.server.http.authn_middleware import ADMISSION, Admission
from sow.server.http.server_log import (
    ACCESS_PER_SECOND_MAX,
    LINES_PER_SECOND_MAX,
    AccessLog,
    ServerLog,
)


class Written:
    """A log whose lines are kept, and whose settings can be changed."""

    def __init__(self, **settings):
        self.lines = []
        self.settings = LogSettings(**settings)
        self.log = ServerLog(self.lines.append, lambda: self.settings)

    def say(self, at_s, text="x", line=1, level=logging.INFO, name="sow"):
        record = logging.LogRecord(name, level, "/x/gate.py", line, text, None, None)
        record.created = at_s
        self.log.handle(record)


def test_what_is_below_the_level_is_not_written_and_a_reload_changes_it():
    written = Written(level="warning")
    written.say(1)
    written.say(1, level=logging.WARNING)
    assert len(written.lines) == 1
    written.settings = LogSettings(level="debug", format="json")
    written.say(1, level=logging.DEBUG)
    assert written.lines[1].startswith('{"time":"1970-01-01T00:00:01.000Z","level":"debug"')


def test_one_place_in_the_code_cannot_flood_the_log_nor_silence_the_others():
    written = Written()
    for number in range(100_000):
        written.say(1.5, f"client {number}")
    written.say(1.5, "another", line=2)
    assert len(written.lines) == LINES_PER_SECOND_MAX + 1
    assert written.lines[-1].endswith("another\n")
    left_out = 100_000 - LINES_PER_SECOND_MAX
    assert written.log.left_out == left_out
    written.say(2.0, "later", line=3)
    told, later = written.lines[-2:]
    assert f"{left_out} more lines of gate, like the last of it, were left out" in told
    assert later.endswith("later\n")


def test_every_second_has_lines_of_its_own_also_when_time_goes_back():
    written = Written()
    for second in (5, 6, 5):
        for _ in range(LINES_PER_SECOND_MAX):
            written.say(second)
    assert len(written.lines) == 3 * LINES_PER_SECOND_MAX
    assert written.log.left_out == 0


def test_the_access_log_may_be_longer_and_is_bounded_too():
    written = Written()
    for _ in range(ACCESS_PER_SECOND_MAX + 5):
        written.say(1, name="sow.access")
    assert (len(written.lines), written.log.left_out) == (ACCESS_PER_SECOND_MAX, 5)


def test_the_end_says_what_was_left_out():
    written = Written()
    for _ in range(LINES_PER_SECOND_MAX + 3):
        written.say(1)
    written.log.close()
    assert "3 more lines of gate" in written.lines[-1]


def test_a_log_that_nobody_takes_ends_nothing():
    def refuse(_line):
        raise BrokenPipeError

    log = ServerLog(refuse, LogSettings)
    log.handle(logging.LogRecord("sow", logging.ERROR, "/x.py", 1, "x", None, None))
    assert log.left_out == 1


def test_all_that_a_process_says_goes_there_from_begin_to_end():
    lines = []
    root, own = logging.getLogger(), logging.getLogger("sow")
    levels = root.level, own.level
    handler = server_log.begin(lines.append, LogSettings)
    try:
        own.info("started")
        logging.getLogger("other").info("chatter")
        logging.getLogger("other").warning("trouble")
    finally:
        server_log.end(handler)
        own.info("after it")
        root.setLevel(levels[0])
        own.setLevel(levels[1])
    assert [line.split(" ", 1)[1] for line in lines] == [
        "INFO test_server_log: started\n",
        "WARNING other: trouble\n",
    ]


def noted(caplog, handler, path="/v1/topics/orders/records?filter=/px>1&token=hunter2", user=None):
    moments = iter([1_000_000, 1_012_345])
    request = make_mocked_request("GET", path)
    if user:
        request[ADMISSION] = Admission(Permissions(User(user)), None, RoleSet(Security()), None)
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
