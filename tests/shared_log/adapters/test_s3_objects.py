"""Objects of a store: put once, deleted by pages; a store that overwrites is found out."""

import asyncio

import pytest
from obstore.store import MemoryStore

from sow.errors import ConfigError, LogUnanswered, UnsafeLog
from sow.shared_log.adapters import s3_objects
from sow.shared_log.adapters.s3 import S3Log
from sow.shared_log.adapters.s3_objects import Objects, S3Place
from tests.ports import free_port
from tests.shared_log.adapters.s3_server import S3Server, WithoutCondition, url


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
    monkeypatch.setattr(s3_objects, "LIST_NAMES", 3)

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
