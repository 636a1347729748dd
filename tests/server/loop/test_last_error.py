"""The newest error of the log is kept, and no other line."""

import logging

import pytest

from sow.server.loop.last_error import LastError

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
    told = last.summary(True)
    assert "hunter2" not in told
    assert told.isprintable()
    assert len(told) < 300


def test_nothing_is_kept_after_its_end():
    last = LastError()
    last.begin()
    last.end()
    log.error("late")
    assert not last.is_there
