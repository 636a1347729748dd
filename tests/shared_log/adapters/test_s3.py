"""The adapter of object stores: the conformance suite over moto's S3, the rest in memory.

Objects of a store: put once, deleted by pages; a store that overwrites is found out.
"""

import asyncio
import secrets

import pytest
from obstore.store import MemoryStore

from sow.errors import ConfigError, LogTrimmed, LogUnanswered, UnsafeLog
from sow.shared_log.adapters import s3
from sow.shared_log.adapters.s3 import (
    LOG_FOLDER,
    OBJECT_BLOCKS,
    Objects,
    S3Log,
    S3Place,
    object_name,
)
from tests.ports import free_port
from tests.shared_log.adapters.harness import EngineHarness
from tests.shared_log.adapters.s3_server import S3Server, WithoutCondition, url
from tests.shared_log.conformance import cases, check, numbered, read, unanswered


@pytest.fixture(scope="module")
def cluster():
    cluster = S3Server()
    yield cluster
    cluster.close()


class S3Harness(EngineHarness):
    """A prefix of its own in the bucket."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.name = secrets.token_hex(4)

    def _client(self, ports):
        return S3Log(S3Place(url=url(ports[0], self.name)))


@pytest.mark.edge
@pytest.mark.parametrize("case", cases(S3Harness))
def test_it_conforms(cluster, case):
    async def play():
        await check(case, S3Harness(cluster))

    asyncio.run(play())


class InMemory:
    """Clients of one log in memory."""

    def __init__(self):
        self._store = MemoryStore()

    def connect(self, unsafe=False):
        log = S3Log(S3Place(url="s3://bucket/log", unsafe=unsafe))
        log._objects._store = self._store
        return log


def played(work):
    async def play():
        async with asyncio.timeout(60):
            await work(InMemory())

    asyncio.run(play())


def test_what_overlaps_is_one_object():
    async def work(stored):
        log = stored.connect()
        first = await log.append(b"first")
        positions = await asyncio.gather(*map(log.append, numbered(3)))
        assert first == OBJECT_BLOCKS
        assert positions == [first + OBJECT_BLOCKS - left for left in (2, 1, 0)]
        assert await stored.connect().last() == positions[-1]
        for n, after in enumerate((first, *positions[:-1])):
            found = await read(log, after, 3 - n)
            assert found == [*zip(positions, numbered(3), strict=True)][n:]

    played(work)


def test_an_object_that_was_sent_twice_on_its_way_is_ours():
    async def work(stored):
        log = stored.connect()
        await log.append(b"1")
        put_new = log._objects.put_new

        async def twice(what, name, body):
            await put_new(what, name, body)
            return await put_new(what, name, body)

        log._objects.put_new = twice
        second = await log.append(b"2")
        log._objects.put_new = put_new
        third = await log.append(b"3")
        assert (second, third) == (2 * OBJECT_BLOCKS, 3 * OBJECT_BLOCKS)
        assert [one.block for one in await read(log, 0, 3)] == [b"1", b"2", b"3"]

    played(work)


def test_writers_that_meet_at_one_number_are_all_stored_once():
    async def work(stored):
        logs = [stored.connect() for _ in range(4)]
        said = await asyncio.gather(*(log.append(b"%d" % n) for n, log in enumerate(logs)))
        assert sorted(said) == [n * OBJECT_BLOCKS for n in range(1, 5)]
        found = await read(logs[0], 0, 4)
        assert {one.position: one.block for one in found} == {
            position: b"%d" % n for n, position in enumerate(said)
        }

    played(work)


def test_a_writer_that_stopped_for_long_is_not_answered_before_the_begin():
    async def work(stored):
        slept, log = stored.connect(), stored.connect()
        await slept.append(b"1")
        for block in numbered(5):
            last = await log.append(block)
        await log.trim(last)
        assert not await log._objects.is_there("", object_name(LOG_FOLDER, 2))
        await unanswered(slept.append(b"where an entry was"))
        assert await slept.append(b"behind") == last + OBJECT_BLOCKS
        found = await read(stored.connect(), last, 1)
        assert found == [(last + OBJECT_BLOCKS, b"behind")]
        # A reader that stopped at the same place does not take it for the next entry.
        with pytest.raises(LogTrimmed):
            await read(stored.connect(), OBJECT_BLOCKS, 1)

    played(work)


def test_a_reader_that_waits_hears_of_a_trim():
    async def work(stored):
        slow, log = stored.connect(), stored.connect()
        blocks = slow.read(0)
        await log.append(b"1")
        assert await anext(blocks) == (OBJECT_BLOCKS, b"1")
        for block in numbered(9):
            last = await log.append(block)
        await log.trim(last)
        with pytest.raises(LogTrimmed):
            await anext(blocks)

    played(work)


def test_an_end_that_was_trimmed_is_found_again():
    async def work(stored):
        slept, log = stored.connect(), stored.connect()
        await slept.append(b"1")
        for block in numbered(5):
            last = await log.append(block)
        await log.trim(last)
        assert await slept.last() == last
        await slept.trim(OBJECT_BLOCKS)  # an earlier one changes nothing
        assert await read(slept, last - 1, 1) == [(last, b"4")]

    played(work)


def test_what_an_interrupted_trim_has_left_goes_with_the_next():
    async def work(stored):
        log = stored.connect()
        for block in numbered(5):
            last = await log.append(block)
        delete_before = log._objects.delete_before

        async def dies(*_):
            raise LogUnanswered("it died")

        log._objects.delete_before = dies
        await unanswered(log.trim(last))
        log._objects.delete_before = delete_before
        assert await log._objects.is_there("", object_name(LOG_FOLDER, 1))
        other = stored.connect()
        with pytest.raises(LogTrimmed):
            await read(other, 0, 1)
        await other.trim(last)
        assert not await log._objects.is_there("", object_name(LOG_FOLDER, 1))

    played(work)


def test_objects_that_somebody_else_deletes_are_a_finding():
    async def work(stored):
        log = stored.connect()
        for block in numbered(3):
            await log.append(block)
        await log._objects.delete_before("", LOG_FOLDER, object_name(LOG_FOLDER, 3))
        for call in (stored.connect().last(), stored.connect().append(b"never stored")):
            with pytest.raises(UnsafeLog, match="lifecycle"):
                await call

    played(work)


def test_a_long_log_is_opened_with_few_requests():
    async def ask(last):
        asked = []

        async def is_there(number):
            asked.append(number)
            return number <= last

        assert await s3.newest(is_there, 0) == last
        return len(asked)

    for last in (*range(70), 1_000_000, 2**40):
        assert asyncio.run(ask(last)) <= 2 * last.bit_length() + 2


@pytest.mark.parametrize(
    "body",
    [b"", b"of another program", b"sow1", b"sow1" + bytes(16) + b"\xff\xff\xff\xff1", b"sow1" * 9],
)
def test_an_object_of_another_writer_is_one_void_block(body):
    async def work(stored):
        log = stored.connect()
        await log.append(b"1")
        await log._objects.put_new("", object_name(LOG_FOLDER, 2), body)
        third = await log.append(b"3")
        assert await read(log, 0, 3) == [
            (OBJECT_BLOCKS, b"1"),
            (2 * OBJECT_BLOCKS, b""),
            (third, b"3"),
        ]

    played(work)


def test_an_object_that_is_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr(s3, "STORED_BYTES_MAX", 100)

    async def work(stored):
        log = stored.connect()
        await log._objects.put_new(
            "", object_name(LOG_FOLDER, 1), s3.packed(bytes(16), [bytes(200)])
        )
        assert await read(log, 0, 1) == [(OBJECT_BLOCKS, b"")]

    played(work)


def test_a_mark_that_says_nothing_is_said():
    async def work(stored):
        log = stored.connect()
        await log._objects.put_new("", object_name(s3.MARK_FOLDER, 1), b"x")
        await unanswered(log.last())

    played(work)


def objects():
    one = Objects(S3Place(url="s3://bucket/log"), lambda: 5.0)
    one._store = MemoryStore()
    return one


def test_an_object_is_put_once():
    async def play():
        store = objects()
        assert await store.get("", "log/1", 10) is None
        assert await store.put_new("", "log/1", b"first")
        assert not await store.put_new("", "log/1", b"second")
        assert await store.get("", "log/1", 10) == b"first"
        assert await store.get("", "log/1", 4) == b""
        assert await store.is_there("", "log/1")
        assert not await store.is_there("", "log/2")

    asyncio.run(play())


def test_a_folder_is_deleted_up_to_a_name_page_by_page(monkeypatch):
    monkeypatch.setattr(s3, "LIST_NAMES", 3)

    async def play():
        store = objects()
        for n in range(10):
            await store.put_new("", f"log/{n}", b"1")
        await store.put_new("", "trim/0", b"1")
        assert await store.first_behind("", "log", "log/3") == "log/4"
        await store.delete_before("", "log", "log/8")
        assert [n for n in range(10) if await store.is_there("", f"log/{n}")] == [8, 9]
        assert await store.is_there("", "trim/0")
        assert await store.first_behind("", "log", "log/9") is None
        await store.delete_before("", "log", "log/8")

    asyncio.run(play())


def test_a_store_that_keeps_what_is_there_passes_the_probe_which_leaves_nothing():
    async def play():
        store = objects()
        await store.refuse_overwriting()
        assert await store.first_behind("", "probe", "probe/") is None

    asyncio.run(play())


@pytest.mark.edge
@pytest.mark.parametrize(("refuses", "word"), [(False, "wrote over"), (True, "does not know")])
def test_a_store_without_the_condition_is_refused_before_anything_is_written(refuses, word):
    server = S3Server()

    async def play():
        async with WithoutCondition(server.port, refuses) as without:
            log = S3Log(S3Place(url=url(without.port, "refused")), 20.0)
            with pytest.raises(UnsafeLog) as found:
                await log.append(b"never stored")
            assert word in found.value.detail
            assert "If-None-Match" in found.value.detail
            assert "secret_access_key" not in found.value.detail
            direct = S3Log(S3Place(url=url(server.port, "refused")), 20.0)
            assert await direct.last() == 0

    try:
        asyncio.run(play())
    finally:
        server.close()


@pytest.mark.edge
def test_nobody_there_is_no_answer_and_names_no_secret():
    async def play():
        nobody = free_port()
        log = S3Log(S3Place(url=url(nobody, "away")))
        with pytest.raises(LogUnanswered) as found:
            await log.last()
        assert "s3://logs/away" in found.value.detail
        assert "secret" not in found.value.detail

    asyncio.run(play())


@pytest.mark.parametrize("place", ["http://bucket/log", "s3:///log", "bucket", "s3://"])
def test_an_address_that_cannot_be_is_refused(place):
    with pytest.raises(ConfigError, match="s3://bucket"):
        S3Place(url=place)


def test_a_secret_key_with_a_plus_is_what_it_is_and_what_is_missing_is_one_line():
    options = "region=a&access_key_id=a&secret_access_key=a+b%2Fc"
    store = S3Place(url=f"s3://bucket/log?{options}").store()
    assert store.config["secret_access_key"] == "a+b/c"
    with pytest.raises(ConfigError, match=r"Missing AccessKeyId$"):
        S3Place(url="s3://bucket/log?secret_access_key=a").store()


def test_an_option_that_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match="s3://bucket/log"):
        S3Log(S3Place(url="s3://bucket/log?colour=red"))
