"""Backups for clients that read slowly, disconnect, or request twice."""

import asyncio
import threading
from contextlib import closing

import pytest

from sow.errors import Busy
from sow.server.api import backups
from sow.server.api.backups import BackupHandler, gathered_frames
from sow.server.boot.routes import Route
from tests.server.stand_ins import Served, World, stepped


def counted(closed, pieces=3):
    try:
        yield from (b"%d" % number for number in range(pieces))
    finally:
        closed.append(True)


def test_frames_travel_together_and_are_let_go_of_at_the_end(monkeypatch):
    monkeypatch.setattr(backups, "SENT_BYTES", 2)
    closed = []
    assert list(gathered_frames(counted(closed))) == [b"01", b"2"]
    assert closed == [True]


def test_what_is_given_up_lets_go_of_what_it_held():
    closed = []
    with closing(gathered_frames(counted(closed, 10**9))) as made:
        next(made)
    assert closed == [True]


@stepped
async def test_there_is_one_at_a_time_and_the_next_when_it_is_over(monkeypatch):
    closed = []
    monkeypatch.setattr(backups, "frames", lambda *_: counted(closed))
    door = BackupHandler(None, lambda: 0)
    with (
        door._alone("backup"),
        pytest.raises(Busy, match="a backup is running already"),
        door._alone("backup"),
    ):
        pass
    route = Route("POST", "/v1/backup", "admin", door.backup, "")
    async with Served(World(), route) as served:
        for _ in range(2):
            answer = await served.ask("POST", "/v1/backup")
            assert (answer.status, answer.body) == (200, b"012")
    assert closed == [True, True]


def test_a_thread_makes_what_is_requested_for_and_closes_it():
    closed = threading.Event()

    def pieces():
        try:
            yield from (b"0", b"1")
        finally:
            closed.set()

    async def first():
        made = backups._in_a_thread(pieces())
        piece = await anext(made)
        await made.aclose()
        return piece

    assert asyncio.run(first()) == b"0"
    assert closed.wait(60)
