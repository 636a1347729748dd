"""What a session has on its own connection, and what becomes of it when that is lost."""

import asyncio

from sow.client import Client
from sow.server.chained import own_link
from tests.edge.serving import records
from tests.server.chained.chains import ALL, BACK, Pair, lines_up_to, logged_on


def test_numbers_of_publishers_are_upstreams(pair):
    with pair.chained.socket() as one:
        assert logged_on(one, sequence=True)["sequence"] == 0
        ack = one.ask({"c": "publish", "t": "orders", "d": {"id": 1}, "seq": 1})[-1]
        assert ack["status"] == "success"
    with pair.upstream.socket() as other:
        assert logged_on(other, sequence=True)["sequence"] == 1
    with pair.chained.socket() as again:
        assert logged_on(again, sequence=True)["sequence"] == 1
        ack = again.ask({"c": "publish", "t": "orders", "d": {"id": 1}, "seq": 1})[-1]
        assert ack["duplicate"] is True
    headers = {"Idempotency-Key": "me/2", "Content-Type": "application/json"}
    for duplicate in (None, "true"):
        answer = pair.chained.request("POST", records("orders"), data=b'{"id": 2}', headers=headers)
        assert answer.headers.get("SOW-Duplicate") == duplicate


def test_a_publisher_of_numbered_messages_goes_on_over_a_loss(pair):
    async def publish():
        async with Client(pair.chained.url) as client:
            publisher = client.idempotent_publisher("me")
            await publisher.publish("orders", [{"id": 1}])
            await publisher.drain()
            await asyncio.to_thread(pair.relay.be_silent)
            await publisher.publish("orders", [{"id": 2}])
            draining = asyncio.create_task(publisher.drain())
            while (await asyncio.to_thread(pair.chained.get, "/readyz")).status != 503:
                pass
            await publisher.publish("orders", [{"id": 3}])
            await asyncio.to_thread(pair.relay.be_silent, False)
            await draining
            await publisher.drain()

    asyncio.run(publish())
    assert [one["id"] for one in pair.upstream.records("orders")] == [1, 2, 3]
    assert pair.upstream.get("/v1/log").body.count(b'"publish"') == 3


def test_a_write_on_its_way_is_never_acknowledged(pair):
    with pair.chained.socket() as one:
        one.ask({"c": "publish", "t": "orders", "d": {"id": 1}})
        pair.relay.be_silent()
        ack = one.ask({"c": "publish", "t": "orders", "d": {"id": 2}}, cid="2")[-1]
        assert (ack["status"], ack["reason"]) == ("failure", "upstream lost")
        assert own_link.UNKNOWN in ack["detail"]
        pair.relay.be_silent(False)
        one.until(**BACK)
        assert one.ask({"c": "publish", "t": "orders", "d": {"id": 3}}, cid="3")[-1]["cid"] == "3"


def test_a_client_that_reads_late_gets_all_of_a_long_answer(tmp_path):
    more = "<Sessions><QueueMaxBytes>300KB</QueueMaxBytes></Sessions>"
    pair = Pair(tmp_path, more=more)
    documents = [{"id": number, "x": "x" * 500} for number in range(8_000)]
    for at in range(0, 8_000, 1_000):
        pair.upstream.publish("orders", *documents[at : at + 1_000])
    with pair.chained.socket() as one:
        one.send({"c": "sow", "t": "orders", "cid": "1"})
        pair.chained.publish("orders", {"id": 8_000})
        lines = one.until(c="group_end")
        rows = [line["d"]["id"] for line in lines if line["c"] == "sow"]
        # The two requests came over two connections.
        assert rows in ([*range(8_000)], [*range(8_001)])
        one.send({**ALL, "cid": "2"})
        pair.chained.publish("orders", {"id": 8_001})
        lines = lines_up_to(one, 8_001)
        rows = [line["d"]["id"] for line in lines if line["c"] in ("sow", "p")]
        assert rows == [*range(8_002)]
        (session,) = pair.chained.get("/v1/sessions").json
        assert session["dropped_messages"] == 0
    pair.close()
