"""What is told of a start: how far it is, and how long it will take."""

import asyncio
import logging

import pytest

from sow.engine.recovery.redo import Progress
from sow.server.loop.startup_progress import LOGGED_EVERY_S, StartupProgress
from tests.server.stand_ins import stepped


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.WARNING, "sow")
    return lambda: [record.getMessage() for record in caplog.records]


@stepped
async def test_it_says_what_it_is_at():
    progress = Progress()
    watch = StartupProgress(progress)
    assert watch.public_status() == "replaying: opening files"
    progress.begin(1000)
    progress.put_back("orders", 250)
    assert watch.public_status() == "replaying: orders, 250 of 1000 records"
    await asyncio.sleep(3)
    assert watch.public_status() == "replaying: orders, 250 of 1000 records, about 9 s left"
    assert watch.left_s() == 9
    progress.settle("orders")
    assert watch.public_status() == "replaying: making indexes and copies of orders"
    assert watch.left_s() is None


@stepped
async def test_strangers_are_sent_no_topic_and_no_count(logged):
    progress = Progress()
    watch = StartupProgress(progress, public=False)
    assert watch.public_status() == "replaying"
    progress.begin(1000)
    progress.put_back("orders", 250)
    watch.begin("http://127.0.0.1:8080")
    await asyncio.sleep(LOGGED_EVERY_S)
    watch.end()
    assert watch.public_status() == "replaying, about 15 s left"
    assert "orders, 250 of 1000" in logged()[0], "the log is the operator's"
    progress.settle("orders")
    assert watch.public_status() == "replaying"


@stepped
async def test_nothing_is_guessed_before_something_is_done():
    progress = Progress()
    watch = StartupProgress(progress)
    progress.begin(1000)
    await asyncio.sleep(3)
    assert watch.left_s() is None


def test_a_start_that_takes_long_says_so_now_and_then(logged):
    @stepped
    async def go():
        progress = Progress()
        watch = StartupProgress(progress)
        watch.begin("http://here")
        progress.begin(10)
        progress.put_back("orders", 5)
        await asyncio.sleep(2.5 * LOGGED_EVERY_S)
        watch.end()
        assert watch.is_over
        await asyncio.sleep(2 * LOGGED_EVERY_S)

    go()
    assert len(logged()) == 2
    assert logged()[0] == (
        "replaying: orders, 5 of 10 records, about 5 s left; requests to http://here wait"
    )


def test_a_start_that_is_soon_over_says_nothing(logged):
    @stepped
    async def go():
        watch = StartupProgress(Progress())
        watch.begin("http://here")
        watch.end()
        await asyncio.sleep(2 * LOGGED_EVERY_S)

    go()
    assert logged() == []
