"""The client against a real server."""

import asyncio

import pandas
import polars
import pyarrow
import pytest

from sow.client import Client, Disconnected, Publisher, Unreachable
from sow.client.connector import checked_url
from sow.errors import BadFilter, BadMessage, ClientError, UnknownTopic
from tests.edge.serving import Running, configuration

ORDERS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
MORE = "<Topic><Name>more</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"


def publish(*documents):
    return lambda client: client.publish("orders", documents)


@pytest.mark.parametrize("body", [b'{"id":1}', b'{"id":\n1}'], ids=["websocket", "http"])
@pytest.mark.parametrize("method", ["publish", "delta_publish"])
def test_a_lifetime_of_0_is_for_ever(using, server, method, body):
    table = server.server.engine.topics["short"].records.table

    def expires_us(**lifetime):
        using(lambda client: getattr(client, method)("short", body, **lifetime))
        return server.call(table.expiries, ["1"], -1)[0]

    assert expires_us() > 0
    assert expires_us(expires_s=0) == 0


def test_publishes_at_the_same_time_do_not_mix(using, server):
    async def work(client):
        publishes = (client.publish("orders", {"id": number}) for number in range(50))
        return await asyncio.gather(*publishes)

    assert len(set(using(work))) == 50
    assert len(server.records("orders")) == 50


def test_a_connection_that_ended_while_it_was_idle_costs_the_next_publish_nothing(using, server):
    async def work(client):
        await client.publish("orders", {"id": 1})
        (session,) = await client.http.json("GET", "/v1/sessions")
        await client.http.json("DELETE", f"/v1/sessions/{session['id']}")
        while client._publishers["orders"].is_open:
            await asyncio.sleep(0)
        await client.publish("orders", {"id": 2})

    using(work)
    assert server.records("orders") == [{"id": 1}, {"id": 2}]


def test_a_body_with_line_breaks_is_published_whole(using, server):
    using(lambda client: client.publish("blobs", b"a\nb", key="k"))
    assert server.get("/v1/topics/blobs/records/k").body == b"a\nb"


def test_rows_may_carry_their_keys_which_name_them_later(using, server):
    async def work(client):
        await client.publish("orders", [{"id": 1}, {"id": 2}])
        keys = [record["k"] for record in await _all(client.rows("orders", meta=True))]
        assert (await client.query("orders", keys=keys[:1])).records == [{"id": 1}]
        return await client.delete("orders", keys=keys[:1])

    assert using(work) == 1
    assert server.records("orders") == [{"id": 2}]


async def _all(opening):
    async with opening as rows:
        return (await rows.all()).records


def test_topics_are_described_whatever_their_name(using):
    assert using(lambda client: client.topic("/my/orders"))["kind"] == "topic"
    assert {topic["name"] for topic in using(lambda client: client.topics())} >= {"/my/orders"}


def test_errors_keep_their_kind_over_http_and_websocket(using):
    async def work(client):
        with pytest.raises(UnknownTopic):
            await client.query("ordres")
        with pytest.raises(UnknownTopic):
            await client.publish("ordres", {"id": 1})
        with pytest.raises(BadFilter) as over_http:
            await client.delete("orders", filter="/id >> 1")
        with pytest.raises(BadFilter) as over_websocket:
            await client.subscribe("orders", filter="/id >> 1").open()
        return over_http.value.position, over_websocket.value.position

    assert using(work) == (5, 5)


def test_a_session_is_listed_by_the_client_s_name(using, server):
    async def work(client):
        async with client.subscribe("orders"):
            return await client.http.json("GET", "/v1/sessions")

    assert [session["client"] for session in using(work)] == ["test"]


def test_a_subscription_ended_by_an_operator_says_so(using):
    async def work(client):
        async with client.subscribe("orders") as messages:
            (session,) = await client.http.json("GET", "/v1/sessions")
            await client.http.json("DELETE", f"/v1/sessions/{session['id']}")
            await anext(messages)

    with pytest.raises(Disconnected, match="closed by an operator"):
        using(work)


def test_nobody_at_the_address_is_unreachable():
    async def work():
        async with Client("127.0.0.1:1") as client:
            await client.topics()

    with pytest.raises(Unreachable, match=r"at http://127\.0\.0\.1:1 "):
        asyncio.run(work())


def test_an_address_may_lack_its_scheme_and_nothing_else():
    assert checked_url("localhost:8080/") == "http://localhost:8080"
    for text in ("ftp://x", "http://", "http://ann:s3cret@box", "ann:s3cret@box:8080"):
        with pytest.raises(ClientError) as refused:
            checked_url(text)
        assert "s3cret" not in str(refused.value)


def test_a_client_of_another_event_loop_says_so(server):
    client = Client(server.url)

    async def use():
        return await client.topics()

    async def open_up():
        await client.publish("orders", {"id": 1})

    with pytest.raises(ClientError, match="no event loop is running"):
        client.query("orders")
    with asyncio.Runner() as first:
        first.run(open_up())
        for work in (use, open_up, client.close):
            with pytest.raises(ClientError, match="connections of another event loop"):
                asyncio.run(work())
        first.run(client.close())
    assert asyncio.run(_and_close(client, use)), "after it was closed it may be used anywhere"


async def _and_close(client, work):
    try:
        return await work()
    finally:
        await client.close()


def test_two_readers_of_one_subscription_are_sent(using):
    async def work(client):
        async with client.subscribe("orders") as messages:
            first = asyncio.ensure_future(messages.batch())
            await asyncio.sleep(0)
            with pytest.raises(ClientError, match="is being read already"):
                await messages.batch()
            await client.publish("orders", {"id": 1})
            return [message.document() for message in await first]

    assert using(work) == [{"id": 1}]


def test_order_and_place_without_a_number_of_records_are_refused(using):
    async def work(client):
        for one in ({"order_by": "/id"}, {"skip_n": 1}):
            with pytest.raises(ClientError, match="give top_n"):
                client.live("orders", **one)

    using(work)


def test_nothing_is_kept_of_subscriptions_that_were_closed(using):
    async def work(client):
        for _ in range(3):
            async with client.subscribe("orders"):
                pass
        return [*client._subscriptions]

    assert using(work) == []


FRAME = {"id": list(range(5000)), "px": [at / 2 for at in range(5000)]}
DOCUMENTS = [dict(zip(FRAME, row, strict=True)) for row in zip(*FRAME.values(), strict=True)]


@pytest.mark.parametrize("kind", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_the_rows_of_a_frame_are_published_and_come_back_as_one(using, server, kind):
    async def work(client):
        await client.publish("orders", kind(FRAME))
        answer = await client.query("orders", order_by="/id")
        return answer.records, await answer.to_arrow()

    records, table = using(work)
    assert records == DOCUMENTS
    using(lambda client: client.publish("orders", table))
    assert server.records("orders", order_by="/id") == DOCUMENTS


def test_of_a_frame_with_a_bad_row_nothing_is_published(using, server):
    bad = pandas.DataFrame(FRAME)
    bad.loc[4321, "px"] = float("nan")
    with pytest.raises(BadMessage, match="message 4321: /px is NaN"):
        using(lambda client: client.publish("orders", bad))
    assert server.records("orders") == []
    using(lambda client: client.publish("orders", bad, nan_as_null=True))
    assert server.records("orders", filter="/px IS NULL") == [{"id": 4321, "px": None}]


def test_a_row_that_the_server_refuses_is_named_by_its_number(using):
    async def work(client):
        await client.publish("orders", {"id": -1})
        with pytest.raises(BadMessage) as caught:
            await client.publish("orders", polars.DataFrame({"id": [*range(2345), None]}))
        return caught.value.index

    assert using(work) == 2345


def test_a_server_that_dies_midway_leaves_a_frame_that_can_be_gone_on_with(tmp_path, monkeypatch):
    """The second life has another configuration than the first."""
    first = Running(configuration(ORDERS), tmp_path)
    send, sent = Publisher.send, []

    async def sending(publisher, bodies, **more):
        if len(sent) == 2:
            await publisher.settle()
            await asyncio.to_thread(first.close)
        sent.append(len(bodies))
        await send(publisher, bodies, **more)

    async def publish(url, rows):
        async with Client(url) as client:
            await client.publish("orders", rows)

    frame = pandas.DataFrame(FRAME)
    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "send", sending)
        with pytest.raises(Disconnected, match="the first 2,000 messages are stored") as caught:
            asyncio.run(publish(first.url, frame))
    second = Running(configuration(ORDERS + MORE), tmp_path)
    try:
        assert len(second.records("orders")) == caught.value.published == 2000
        asyncio.run(publish(second.url, frame.iloc[caught.value.published :]))
        assert second.records("orders", order_by="/id") == DOCUMENTS
        log = second.get("/v1/log?topics=orders&limit=100000").body.splitlines()
        assert len(log) == 5000, "nothing twice"
    finally:
        second.close()


def test_events_are_read_edited_and_followed(using, server):
    async def work(client):
        await client.publish("prices", [{"id": 1, "n": number} for number in range(4)])
        rows = await client.events("prices", "key=1", limit=3)
        await client.edit_event("prices", "key=1", rows[0]["seq"], {"id": 1, "n": 10})
        found = await client.events("prices", "key=1", from_=rows[0]["seq"], to=rows[1]["seq"])
        async with client.live("prices", last=2) as live:
            (record,) = live.values()
            first = await client.events("prices", "key=1", limit=1)
            await client.edit_event("prices", "key=1", rows[0]["seq"], {"id": 1, "n": 11})
            await client.edit_event("prices", "key=1", first[0]["seq"], {"id": 1, "n": 12})
            changed = await anext(live.changes())
        return rows, found, record, changed.new

    rows, found, record, new = using(work)
    assert [row["d"]["n"] for row in rows] == [1, 2, 3]
    assert [(row["author"], row["d"]["n"]) for row in found] == [("", 10), ("test", 2)]
    assert (record, new) == ({"id": 1, "n": 3}, {"id": 1, "n": 12})


def test_a_topic_without_a_series_has_no_events(using, server):
    using(publish({"id": 1}))
    with pytest.raises(ClientError, match="no series"):
        using(lambda client: client.events("orders", "key=1"))
