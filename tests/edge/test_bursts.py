"""More at once than a queue holds, for clients that read: everything arrives."""

import io
import json

BATCH = 25_000


def lines_of(documents):
    return io.BytesIO(b"\n".join(json.dumps(document).encode() for document in documents))


def test_a_batch_larger_than_the_queue_reaches_a_client_that_reads(server):
    documents = [{"id": number} for number in range(BATCH)]
    with server.socket() as ws:
        ws.ask({"c": "subscribe", "t": "orders"})
        answer = server.post("orders", lines_of(documents), kind="application/x-ndjson")
        assert answer.status == 200
        assert [ws.line()["d"] for _ in range(BATCH)] == documents


def test_a_large_snapshot_reaches_a_client_while_updates_follow(server):
    documents = [{"id": number, "pad": "x" * 200} for number in range(20_000)]
    server.post("orders", lines_of(documents), kind="application/x-ndjson")
    with server.socket() as ws:
        ws.ask({"c": "sow_and_subscribe", "t": "orders"})
        server.publish("orders", {"id": 7, "new": True})
        lines = ws.until(c="p")
    assert sum(line["c"] == "sow" for line in lines) == 20_000
    assert [line["c"] for line in lines[-2:]] == ["group_end", "p"]
