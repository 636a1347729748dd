"""A topic's Preprocessing and Enrichment at every door: what is made is what is found and told."""

import json

from tests.edge.arrow import committed, staged
from tests.edge.serving import Running, configuration, served

TOPIC = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
<Preprocessing><Field>CONCAT(/desk, '-', /n) AS /id HINT OPTIONAL</Field>
<Field>/desk + 0 AS /desk HINT OPTIONAL</Field></Preprocessing>
<Enrichment><Field>COALESCE(/count OF PREVIOUS, 0) + 1 AS /count</Field></Enrichment></Topic>
<ConflatedTopic><Name>copy</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>"""
SENT = {"desk": "7", "n": 1}


orders = served(configuration(TOPIC), scope="function")


def test_a_delete_makes_the_keys_of_its_messages_as_a_publish_does(orders):
    orders.publish("orders", SENT, {**SENT, "n": 2})
    body = json.dumps([SENT]).encode()
    headers = {"Content-Type": "application/json"}
    answer = orders.request("DELETE", "/v1/topics/orders/records", data=body, headers=headers)
    assert answer.json == {"deleted": 1}
    with orders.socket() as socket:
        delete = {"c": "sow_delete", "t": "orders", "d": {**SENT, "n": 2}, "a": "processed"}
        assert socket.ask(delete)[-1]["status"] == "success"
    assert orders.records("orders") == []


ARRIVALS = """<Topic><Name>ticks</Name><MessageType>json</MessageType><Key>/at</Key>
<Preprocessing><Field>UNIX_TIMESTAMP() AS /at</Field></Preprocessing></Topic>"""


def test_each_door_says_when_a_message_came(tmp_path):
    server = Running(configuration(ARRIVALS), tmp_path)
    began_s = server.server.runtime.now_us() / 1e6
    server.publish("ticks", {"by": "http"}, {"by": "http"})
    server.request("PATCH", "/v1/topics/ticks/records", json=[{"by": "patch"}])
    with server.socket() as socket:
        for command in ("publish", "delta_publish"):
            socket.ask({"c": command, "t": "ticks", "d": {"by": command}, "a": "processed"})
        socket.ask({"c": "publish", "t": "ticks", "n": 2, "a": "processed"}, '{"by":1}', '{"by":2}')
    staged(server, "ticks", [{"by": "staged"}, {"by": "staged"}])
    assert committed(server, "ticks", (0, "a", 1, 2)).status == 200
    times = [record["at"] for record in server.records("ticks")]
    ended_s = server.server.runtime.now_us() / 1e6
    server.close()
    assert len(set(times)) == len(times) == 9
    assert all(began_s <= at <= ended_s + 0.001 for at in times)
    assert server.errors == []
