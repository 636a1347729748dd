"""Reconnecting: resumed to the line, or started again after a gap message."""

import asyncio
import socket

import pytest

from sow.client import Client, Disconnected, Retry
from sow.client import subscription as module
from sow.client.subscription import LeftRecords


async def at_once(_seconds):
    """A sleep that takes no time; others get their turn."""
    await asyncio.sleep(0)


RETRY = Retry(sleep=at_once, chance=lambda: 0.0)


@pytest.fixture
def using(server):
    def run(work):
        async def session():
            async with Client(server.url, name="test", retry=RETRY) as client:
                return await work(client)

        return asyncio.run(asyncio.wait_for(session(), 60))

    return run


async def cut(subscription):
    """Break the connection without a word, as a network does."""
    subscription._socket._socket.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    await asyncio.sleep(0)


async def take(messages, count):
    return [(await anext(messages)).document()["id"] for _ in range(count)]


def end_sessions(server):
    """Let those who follow something be gone, as if their time to come back were over."""
    executor = server.server.executor

    def close_all():
        for session in executor.sessions:
            if executor.subscriptions.of(session):
                executor.sessions.close(session, "expired")

    server.call(close_all)


def break_when_logged_on(subscription):
    """The next connection breaks when its session is there and no command was sent on it."""
    connect = subscription._connect

    async def once(session=None, seen=None):
        subscription._connect = connect
        made = await connect(session, seen)
        made._socket.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        return made

    subscription._connect = once


@pytest.mark.parametrize("follow", ["subscribe", "sow_and_subscribe"])
def test_a_session_that_never_heard_what_to_follow_is_not_taken_up(server, using, follow):
    async def work(client):
        await client.publish("orders", {"id": 1})
        async with getattr(client, follow)("orders") as messages:
            while follow != "subscribe" and (await anext(messages)).c != "group_end":
                pass
            await cut(messages)
            end_sessions(server)
            break_when_logged_on(messages)
            gap = await anext(messages)
            while follow != "subscribe" and (await anext(messages)).c != "group_end":
                pass
            await client.publish("orders", {"id": 2})
            return gap.c, gap.reason, messages.gaps, messages.resumed, await take(messages, 1)

    assert using(work) == ("gap", "expired", 1, 0, [2])


def test_a_server_that_takes_a_logon_and_no_subscription_keeps_no_connection(server, using):
    """As a chained server does whose upstream is lost, at each attempt."""

    async def work(client):
        async with client.subscribe("orders") as messages:
            begin, refused = messages._begin, []

            async def refuse(*given):
                refused.append(messages._socket._socket)
                if len(refused) == 3:
                    messages._begin = begin
                raise Disconnected("upstream lost")

            messages._begin = refuse
            end_sessions(server)
            assert (await anext(messages)).c == "gap"
            return [one.closed for one in refused]

    assert using(work) == [True, True, True]


def test_what_could_not_be_opened_is_opened_when_it_is_read(server, using):
    async def work(client):
        messages = client.sow_and_subscribe("orders")
        break_when_logged_on(messages)
        with pytest.raises(Disconnected):
            await messages.open()
        await client.publish("orders", {"id": 1})
        found = [await anext(messages) for _ in range(3)]
        return [message.c for message in found], messages.gaps

    assert using(work) == (["group_begin", "sow", "group_end"], 0)


def test_a_bookmark_subscription_that_nothing_has_come_to_begins_again_where_it_did(server, using):
    async def work(client):
        first = await client.publish("orders", {"id": 1})
        async with client.subscribe("orders", bookmark=first) as messages:
            await cut(messages)
            end_sessions(server)
            await client.publish("orders", {"id": 2})
            gap = await anext(messages)
            return await take(messages, 1), gap.exact

    assert using(work) == ([2], True)


def test_a_range_of_the_log_ends_also_when_its_connection_broke(server, using):
    async def work(client):
        first = int(await client.publish("orders", {"id": 0}))
        await client.publish("orders", [{"id": number} for number in range(1, 6)])
        found = []
        for cuts in (False, True):
            async with client.subscribe("orders", bookmark=f"[{first}:{first + 3}]") as messages:
                read = [(await anext(messages)).document()["id"]]
                if cuts:
                    await cut(messages)
                    end_sessions(server)
                read += [each.document()["id"] async for each in messages if each.c == "p"]
                found.append(read)
        async with client.subscribe("orders", bookmark=f"({first + 5}:]") as messages:
            found.append([each async for each in messages])
        return found

    assert using(work) == [[0, 1, 2, 3], [0, 1, 2, 3], []]


def test_a_subscription_of_several_topics_goes_on_in_the_order_of_the_changes(server, using):
    async def work(client):
        async with client.subscribe("^(orders|/my/orders)$", bookmark="now") as messages:
            found = []
            for number in range(3):
                for topic in ("/my/orders", "orders"):
                    await client.publish(topic, {"id": number})
                found += [(await anext(messages)).t for _ in range(2)]
                await cut(messages)
                end_sessions(server)
                for topic in ("/my/orders", "orders"):
                    await client.publish(topic, {"id": -number})
                gap = await anext(messages)
                assert (gap.c, gap.exact) == ("gap", True)
                found += [(await anext(messages)).t for _ in range(2)]
            return found

    assert using(work) == ["/my/orders", "orders"] * 6


def test_a_server_that_stays_away_ends_the_subscription(server):
    async def nobody(*_):
        raise Disconnected("gone")

    async def work():
        retry = Retry(give_up_s=1, sleep=at_once, chance=lambda: 0.0)
        client = Client(server.url, retry=retry)
        async with client, client.subscribe("orders") as messages:
            await cut(messages)
            messages._connect = nobody
            await anext(messages)

    with pytest.raises(Disconnected):
        asyncio.run(asyncio.wait_for(work(), 60))


# Live views.


def test_a_live_view_and_an_answer_are_tables_of_the_types_of_the_topic(server, using):
    async def work(client):
        await client.publish("orders", [{"id": 1, "px": 1.5, "t": 7}, {"id": 2, "note": "x"}])
        await client.publish("orders", {"id": 3, "t": "text", "gone": 2**63})
        before = await client.query("orders").to_arrow()
        await client.delete("orders", filter="/id = 3")
        async with client.live("orders") as live, client.live("orders", select=["/t"]) as some:
            answer = await client.query("orders")
            whole = await client.query("orders").to_arrow()
            return before, whole, await answer.to_arrow(), await live.to_arrow(), some, (
                await some.to_arrow(), await live.to_pandas()
            )  # fmt: skip

    before, whole, answer, live, _, (some, frame) = using(work)
    assert whole.schema.equals(before.schema, check_metadata=True)
    assert answer.equals(whole)
    assert live.column_names == ["sow_key", *whole.column_names]
    assert live.drop_columns(["sow_key"]).schema.equals(whole.schema, check_metadata=True)
    assert live.drop_columns(["sow_key"]).to_pylist() == whole.to_pylist()
    assert whole.column("t").to_pylist() == ["7", None]
    assert some.column_names == ["sow_key", "t"]
    assert some.schema.field("t").equals(whole.schema.field("t"), check_metadata=True)
    assert len(frame) == 2


def test_what_has_left_is_remembered_within_a_bound(monkeypatch):
    monkeypatch.setattr(module, "LEFT_BYTES_MAX", 100)
    left = LeftRecords()
    for number in range(1000):
        left.add(("t", f"{number:09}"))
        left.add(("t", f"{number:09}"))
    assert len(left) == 10
    assert not left.take(("t", f"{1:09}"))
    assert left.take(("t", f"{999:09}"))
    assert not left.take(("t", f"{999:09}"))
    left.add(("t", b"x" * 101))
    assert len(left) == 0, "a body that is larger by itself is not kept"
    left.add(("t", None))
    left.clear()
    assert not left.take(("t", None))
    left.add(("t", "k" * 99))
    assert len(left) == 1, "what was forgotten does not count"
