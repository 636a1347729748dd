"""How a follower gets what it starts with; whole servers are in tests/edge/test_followers.py."""

import asyncio
import errno
import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from sow.core.clock import SECOND_US, LogClock
from sow.core.definitions import (
    Configuration,
    View,
)
from sow.errors import DiskFull, NotKept, StoreError
from sow.server.boot import follower as module
from sow.server.boot.followed_directory import FollowedData, followed
from sow.server.boot.follower import Follower, Upstream
from sow.store.backup import (
    Beat,
    FrameReader,
    beat_frame,
    block_frame,
)
from sow.store.layout import seal_group
from sow.store.protocols import LogEntry
from tests.server.boot.test_followed_directory import LOG_HAS, ORDERS, OWN, journal_at, published


def test_what_does_not_continue_the_log_is_copied_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    held = FollowedData("0" * 16, 7, LOG_HAS, 3)
    monkeypatch.setattr(module, "held_in", lambda _path: held)
    own = replace(OWN, data_directory=str(tmp_path))
    follower, brought = Follower(Upstream("http://127.0.0.1:1"), own, LogClock()), []

    async def bring(_calls, held):
        brought.append(held)
        if len(brought) == 2:
            raise ConnectionRefusedError("it has gone")

    async def catch_up(_calls, _held):
        if len(brought) == 1:
            raise NotKept("it is another log")

    monkeypatch.setattr(follower, "_bring", bring)
    monkeypatch.setattr(follower, "_catch_up", catch_up)
    assert asyncio.run(follower.prepare()) == followed(LOG_HAS, own)
    assert brought == [held, None, None]


def test_an_error_of_the_server_does_not_end_its_reports(monkeypatch):
    follower, asked, logged = Follower(Upstream("http://127.0.0.1:1"), OWN, LogClock()), [], []

    async def own():
        asked.append(None)
        if len(asked) == 1:
            raise ZeroDivisionError
        raise asyncio.CancelledError

    follower._beat_s, follower._status = 0.0, SimpleNamespace(own=own)
    monkeypatch.setattr(module.log, "exception", lambda *said: logged.append(said))
    with suppress(asyncio.CancelledError):
        asyncio.run(follower._report())
    assert (len(asked), len(logged)) == (2, 1)


def test_without_data_it_waits_for_the_primary(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    own = replace(OWN, data_directory=str(tmp_path))
    follower, tried = Follower(Upstream("http://127.0.0.1:1"), own, LogClock()), []

    async def bring(_calls, held):
        tried.append(held)
        if len(tried) == 3:
            raise StopIteration
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(follower, "_bring", bring)
    with pytest.raises(RuntimeError):
        asyncio.run(follower.prepare())
    assert tried == [None] * 3
    assert not follower.directory.exists() or not any(follower.directory.iterdir())


class Full:
    """A primary whose copy has no room on the disk here, until there is."""

    def __init__(self, monkeypatch, tmp_path, errors):
        self.errors, self.copies, self.pauses, self.said = [*errors], 0, [], []
        self.is_copied = False
        own = replace(OWN, data_directory=str(tmp_path / "data"))
        self.follower = Follower(
            Upstream("http://127.0.0.1:1"), own, LogClock(), lambda: 0.0, self._sleep
        )
        held = FollowedData("0" * 16, 7, LOG_HAS, 7)
        monkeypatch.setattr(module, "held_in", lambda _path: held if self.is_copied else None)
        monkeypatch.setattr(self.follower, "_bring", self._bring)
        monkeypatch.setattr(self.follower, "_copy_to", self._copy_to)
        monkeypatch.setattr(self.follower, "_catch_up", self._catch_up)
        monkeypatch.setattr(module.log, "warning", lambda *said: self.said.append(said[-1]))
        self.waits_for = []

    async def _sleep(self, pause_s):
        self.pauses.append(pause_s)
        self.waits_for.append(self.follower.waits_for)
        assert len(self.pauses) < 100

    async def _catch_up(self, _calls, _held):
        """Nothing has come since the copy."""

    async def _bring(self, calls, _held):
        self.follower._is_copying = False
        if self.errors and isinstance(self.errors[0], ConnectionError):
            raise self.errors.pop(0)
        await self.follower._copy(calls)

    async def _copy_to(self, _calls, copied, coming):
        self.copies += 1
        assert not any(one.exists() for one in (copied, coming)), "what has failed takes no room"
        copied.mkdir()
        coming.mkdir()
        if self.errors:
            raise self.errors.pop(0)
        self.is_copied = True


def no_space():
    return OSError(errno.ENOSPC, "No space left on device", "/secret/place")


def test_a_disk_that_cannot_hold_the_copy_is_tried_less_and_less_often(tmp_path, monkeypatch):
    full = Full(monkeypatch, tmp_path, [no_space() for _ in range(10)])
    asyncio.run(full.follower.prepare())
    assert full.pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert full.copies == 11
    assert len(full.said) == 1, "once: it may be a long wait"
    assert "No space left on device" in full.said[0]
    assert full.waits_for[2] == "No space left on device; next attempt in 4 s"
    assert not any("secret" in text for text in full.waits_for)


def test_what_ends_the_copy_is_no_end_of_the_server_and_a_primary_that_is_away_costs_nothing(
    tmp_path, monkeypatch
):
    errors = [StoreError("its disk has failed", reason="store"), ConnectionResetError("gone"),
              no_space(), no_space()]  # fmt: skip
    full = Full(monkeypatch, tmp_path, errors)
    asyncio.run(full.follower.prepare())
    assert full.pauses == [1, 0.5, 1, 2]
    assert full.waits_for[:3] == [
        "store; next attempt in 1 s",
        "the primary does not answer; next attempt in 0.5 s",
        "No space left on device; next attempt in 1 s",
    ]


def test_a_refusal_of_the_primary_ends_it(tmp_path, monkeypatch):
    full = Full(monkeypatch, tmp_path, [no_space()])

    async def refuse(_calls, _held):
        raise StoreError("http://x refuses to be followed")

    monkeypatch.setattr(full.follower, "_bring", refuse)
    with pytest.raises(StoreError, match="refuses"):
        asyncio.run(full.follower.prepare())


@pytest.mark.parametrize("error", [DiskFull("no room"), ConnectionResetError("it has gone")])
def test_catching_up_that_fails_half_way_starts_with_what_is_there_by_then(
    tmp_path, monkeypatch, error
):
    then = replace(LOG_HAS, name="reloaded")
    held = [FollowedData("0" * 16, 7, LOG_HAS, 3)]
    monkeypatch.setattr(module, "held_in", lambda _path: held[-1])
    own = replace(OWN, data_directory=str(tmp_path))
    follower = Follower(Upstream("http://127.0.0.1:1"), own, LogClock())

    async def bring(_calls, _held):
        pass

    async def catch_up(_calls, _held):
        held.append(FollowedData("0" * 16, 9, then, 8))
        raise error

    monkeypatch.setattr(follower, "_bring", bring)
    monkeypatch.setattr(follower, "_catch_up", catch_up)
    assert asyncio.run(follower.prepare()) == followed(then, own)
    assert len(held) == 2
    assert follower.windows(then) is None


class Extent:
    """A session in which the primary's log has another name than what is held."""

    status = 200

    def get(self, _address, **_how):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    @property
    def content(self):
        return self

    async def readany(self):
        self.said, self.left = self.left, b""
        return self.said

    left = json.dumps({"log": "f" * 16, "oldest": "1", "newest": "9"}).encode()


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
NO_SERVER = "what answers there is no SOW server, or one of an earlier version"
STRANGE = {
    "no JSON": (OK, b"x", NO_SERVER),
    "other JSON": (OK, b'{"log":"f","oldest":"0","newest":"?"}', NO_SERVER),
    "a redirect": (
        b"HTTP/1.1 307 Go\r\nLocation: http://else.example/\r\nContent-Length: 0\r\n\r\n",
        b"",
        "it redirects to http://else.example/, which is not followed",
    ),
    "an error": (b"HTTP/1.1 500 No\r\n\r\n", b"broken", "broken"),
}


@pytest.mark.parametrize(("head", "body", "why"), STRANGE.values(), ids=STRANGE)
def test_of_a_server_that_is_none_little_is_read_and_a_sentence_said(tmp_path, head, body, why):
    """An answer without an end would take all memory, and a redirect the token elsewhere."""
    sent = []

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + body)
        with suppress(ConnectionError):
            while body and len(sent) < 4_000:
                sent.append(1)
                writer.write(b" " * 65_536)
                await writer.drain()
        writer.close()

    async def bring():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        own = replace(OWN, data_directory=str(tmp_path))
        follower = Follower(Upstream(f"http://127.0.0.1:{port}"), own, LogClock())
        async with server, follower._session() as calls:
            with pytest.raises(ConnectionResetError) as error:
                await follower._bring(calls, None)
        return str(error.value)

    assert why in asyncio.run(bring())
    assert len(sent) < 500, "more than the buffers of sockets hold"


def test_what_is_of_another_log_is_not_shown_while_the_copy_fails(tmp_path, monkeypatch):
    full = Full(monkeypatch, tmp_path, [no_space() for _ in range(4)])
    then = FollowedData("f" * 16, 9, replace(LOG_HAS, name="then"), 9)
    other = FollowedData("0" * 16, 7, LOG_HAS, 7)
    monkeypatch.setattr(module, "held_in", lambda _path: then if full.is_copied else other)
    monkeypatch.setattr(full.follower, "_session", Extent)
    monkeypatch.setattr(full.follower, "_bring", partial(Follower._bring, full.follower))
    found = asyncio.run(full.follower.prepare())
    assert (found.name, full.copies) == ("then", 5)
    assert full.pauses == [module.RETRY_S, 1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize("error", [no_space(), DiskFull("no room"), ConnectionResetError("gone")])
def test_what_cannot_go_on_makes_room_for_a_new_copy_where_the_disk_has_none(
    tmp_path, monkeypatch, error
):
    full = Full(monkeypatch, tmp_path, [error])
    old = full.follower.directory
    old.mkdir(parents=True)
    other, new = (FollowedData(log * 16, 7, LOG_HAS, 7) for log in ("0", "f"))
    found = lambda path: new if full.is_copied else other if path.exists() else None  # noqa: E731
    monkeypatch.setattr(module, "held_in", found)
    monkeypatch.setattr(full.follower, "_session", Extent)
    monkeypatch.setattr(full.follower, "_bring", partial(Follower._bring, full.follower))
    copied = []

    async def copy_to(calls, *paths):
        copied.append(old.exists())
        await Full._copy_to(full, calls, *paths)

    monkeypatch.setattr(full.follower, "_copy_to", copy_to)
    asyncio.run(full.follower.prepare())
    is_gone = not isinstance(error, ConnectionResetError)
    assert copied == [True, not is_gone]
    assert full.pauses == [module.RETRY_S, 1.0]
    assert (old in full.said) == is_gone


TOTALS = View("totals", "json", ("orders",), ("COUNT(1) AS /n", "/desk"), ("/desk",))


@pytest.mark.parametrize("topics", [(ORDERS,), (ORDERS, TOTALS)])
def test_a_turn_of_views_is_applied_when_a_beat_ends_it_or_after_a_second(
    tmp_path, monkeypatch, topics
):
    follower, applied = Follower(Upstream("http://127.0.0.1:1"), OWN, LogClock()), []

    async def apply(entries):
        applied.extend(entry.seq for entry in entries)

    async def take(*frames):
        some = []
        FrameReader(lambda *one: some.append(one)).feed(b"".join(frames))
        for one in some:
            await follower._take(*one)
        return [*applied]

    async def reach(_seq):
        """Nothing was reloaded."""

    commit = SimpleNamespace(is_behind=False, failure=None)
    engine = SimpleNamespace(configuration=Configuration("of the log", topics))
    runtime = SimpleNamespace(commit=commit, note_far_behind=lambda _: None)
    monkeypatch.setattr(follower, "_runtime", runtime, raising=False)
    monkeypatch.setattr(follower, "_engine", engine, raising=False)
    monkeypatch.setattr(follower, "_apply", apply)
    monkeypatch.setattr(follower, "_reach", reach)
    with journal_at(tmp_path / "primary") as journal:
        for seq, turn in ((1, 0), (2, 1), (3, 1), (4, 0)):
            journal.append([replace(published(seq, 1, seq * 3 * SECOND_US // 4), turn=turn)])
        # A change of several entries.
        for seq in (5, 7):
            journal.append([published(seq, 2, 4 * SECOND_US)])
        one, two, three, four, *five = map(block_frame, journal.blocks(0, 8))

    async def walk():
        assert await take(one, beat_frame(Beat(0, 0))) == []
        held = await take(two, beat_frame(Beat(0, 0)))
        assert held == ([] if TOTALS in topics else [1])
        held = await take(three, beat_frame(Beat(0, 0)))
        assert held == ([1] if TOTALS in topics else [1, 2])
        assert await take(four, beat_frame(Beat(4, 0))) == [1, 2, 3, 4]
        assert await take(*five, beat_frame(Beat(7, 0))) == [1, 2, 3, 4]
        assert await take(beat_frame(Beat(8, 0))) == [1, 2, 3, 4, 5, 7]

    asyncio.run(walk())


def test_what_comes_between_two_beats_shows_how_far_behind_it_is(monkeypatch):
    block, *_ = seal_group([LogEntry("publish", "orders", 1, 10, None, [b"{}"] * 9)], 0, 0)
    frames, seen = [], []
    blocks = 3 * block_frame(block)
    reader = FrameReader(lambda *one: frames.append(one))
    reader.feed(blocks + beat_frame(Beat(9, 0)) + blocks)
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    monkeypatch.setattr(module, "FAR_BEHIND_BYTES", 2 * len(block))
    follower = Follower(Upstream("http://127.0.0.1:1"), OWN, LogClock())
    commit = SimpleNamespace(is_behind=False, failure=None)
    follower._engine = SimpleNamespace(configuration=Configuration("of the log", (ORDERS,)))
    noted = []
    follower._runtime = SimpleNamespace(commit=commit, note_far_behind=noted.append)

    async def apply(_entries):
        seen.append(noted[-1])

    async def read(_calls):
        for one in frames:
            await follower._take(*one)
        follower.is_over.set()
        raise ConnectionResetError("it has gone")

    monkeypatch.setattr(follower, "_apply", apply)
    monkeypatch.setattr(follower, "_read", read)
    asyncio.run(follower._follow())
    assert seen == [False, False, True, False, False, False, True]
    assert not noted[-1], "a primary that is away is no hurry"
