"""A line of the log is one thing that the server has said, whatever was in the text."""

import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.server.http.server_log import LINE_CHARS_MAX, TRACE_LINES_MAX, LastError, line_of, safe

AT_S = 1763869822.1234


def record(message, *arguments, name="sow", level=logging.WARNING, error=None, **fields):
    info = error and (type(error), error, error.__traceback__)
    made = logging.LogRecord(name, level, "/x/checkpointer.py", 7, message, arguments, info)
    made.created = AT_S
    if fields:
        made.fields = fields
    return made


def test_a_line_has_time_level_and_component():
    line = line_of(record("the disk has no room for %s", "orders"), "text")
    assert line == "2025-11-23T03:50:22.123Z WARNING checkpointer: the disk has no room for orders"


def test_a_component_is_a_module_of_ours_or_the_logger_of_others():
    assert " http: x" in line_of(record("x", name="sow.http"), "text")
    assert " aiohttp.web: x" in line_of(record("x", name="aiohttp.web"), "text")


def test_json_has_the_same_and_fields():
    line = line_of(record("GET %s", "/", name="sow.access", status=200, path="/\n"), "json")
    assert json.loads(line) == {
        "time": "2025-11-23T03:50:22.123Z",
        "level": "warning",
        "component": "access",
        "message": "GET /",
        "status": 200,
        "path": "/\\n",
    }


@given(st.text())
def test_whatever_was_sent_a_text_is_one_printable_line(text):
    shown = safe(text)
    assert len(shown.splitlines()) <= 1
    assert shown.isprintable()
    for form in ("text", "json"):
        assert len(line_of(record("client %s", text), form).splitlines()) == 1


@pytest.mark.parametrize("char", ["\n", "\r", "\x1b", "\u2028", "\u202e", "\ud800", "\x85"])
def test_what_ends_a_line_or_turns_it_is_escaped(char):
    assert char not in safe(f"a{char}b")
    assert safe(f"a{char}b").startswith("a\\")


def test_megabytes_are_clipped_and_it_says_how_many_were_not_shown():
    shown = safe("x" * 5_000_000)
    assert shown == "x" * LINE_CHARS_MAX + f"… ({5_000_000 - LINE_CHARS_MAX} more characters)"
    assert len(safe("\x00" * 5_000_000)) < LINE_CHARS_MAX + 100


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer hunter2",
        "authorization: basic hunter2",
        "/v1/topics?token=hunter2&x=1",
        '{"password":"hunter2","x":1}',
        "PASSWD = hunter2",
        "https://someone:hunter2@host/",
        "Bearer   hunter2",
    ],
)
def test_what_looks_like_a_secret_is_struck_out(text):
    assert "hunter2" not in safe(text)
    assert "***" in safe(text)


def test_a_signed_token_is_struck_out_wherever_it_stands():
    assert safe("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln from x") == "got *** from x"


def test_other_text_stays_as_it_is():
    text = "session s1-4 of client 'desk' is closed: slow client; 10 messages, 20 bytes waited"
    assert safe(text) == text
    assert safe("Zürich → 東京") == "Zürich → 東京"


def failed():
    try:
        raise ValueError("2026-01-01T00:00:00.000Z ERROR app: forged\n2026 ERROR app: again")
    except ValueError as error:
        return error


def test_a_traceback_follows_indented_so_that_no_line_of_it_can_be_forged():
    head, *rest = line_of(record("failed", error=failed()), "text").split("\n")
    assert head.endswith(": failed")
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in rest)
    assert [line for line in rest if re.match(r"\d{4}", line)] == []


def test_in_json_a_traceback_is_a_field():
    document = json.loads(line_of(record("failed", error=failed()), "json"))
    assert document["trace"][0] == "Traceback (most recent call last):"


def test_of_a_long_traceback_the_end_is_sent():
    error = ValueError("\n".join(map(str, range(1000))))
    lines = line_of(record("failed", error=error), "text").split("\n")
    assert (len(lines), lines[-1]) == (1 + TRACE_LINES_MAX, "    999")


def test_a_record_that_cannot_be_put_together_says_so():
    assert line_of(record("%d files", "x"), "text").endswith(
        ": %d files (with arguments that do not fit)"
    )


log = logging.getLogger("sow.journal")


@pytest.fixture
def last():
    made = LastError()
    made.begin()
    yield made
    made.end()


def test_only_errors_are_kept_and_of_them_the_newest(last):
    log.warning("slow")
    assert not last.is_there
    log.error("no room for %s", "orders")
    logging.getLogger("asyncio").error("task failed")
    log.warning("slow")
    assert last.summary(True).endswith("Z: asyncio: task failed")


def test_whoever_may_not_read_it_is_sent_when_it_was(last):
    log.error("orders cannot be written")
    when = last.summary(False)
    assert last.summary(True) == f"{when}: journal: orders cannot be written"
    assert when.startswith("last error 2")


def test_it_is_one_short_line_without_secrets(last):
    log.error("password=hunter2 \n\x1b[31m %s", "x" * 5000)
    summary_line = last.summary(True)
    assert "hunter2" not in summary_line
    assert summary_line.isprintable()
    assert len(summary_line) < 300


def test_nothing_is_kept_after_its_end():
    last = LastError()
    last.begin()
    last.end()
    log.error("late")
    assert not last.is_there
