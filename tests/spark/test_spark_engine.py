"""A conflated topic whose engine is Spark, run by the query that runs it for real."""

from dataclasses import replace

import pytest

from sow.spark.pipeline_conflation import SparkConflation
from sow.spark.pipelines import Running, topic_pipeline
from tests.edge.serving import Running as Server
from tests.edge.serving import configuration, records

pytestmark = [pytest.mark.spark, pytest.mark.edge]

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>orders-S</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval>
  <Filter>/px &lt; 100</Filter><Engine>spark</Engine></ConflatedTopic>
"""


@pytest.fixture
def server(tmp_path):
    running = Server(configuration(TOPICS), tmp_path / "data")
    yield running
    running.close()


@pytest.fixture
def engine(spark, server, tmp_path):
    definition = server.server.engine.topics["orders-S"].definition
    pipeline = replace(topic_pipeline(definition), trigger_us=500_000)  # tests are in a hurry

    def start():
        running = Running(
            pipeline, server.url, tmp_path / "state", False, None, SparkConflation(definition)
        )
        running.start()
        running.query.processAllAvailable()  # Spark's own start takes a while
        return running

    return start


def test_it_conflates_deletes_and_goes_on_where_it_was(server, engine):
    server.publish("orders", {"id": 0, "px": 1})  # before: what the copy is filled with
    running = engine()
    with server.socket() as client:
        client.ask({"c": "sow_and_subscribe", "t": "orders-S", "opts": "oof"})
        server.publish("orders", *({"id": 1, "px": px} for px in range(50)))
        server.publish("orders", {"id": 2, "px": 200})
        client.until(c="p", d={"id": 1, "px": 49})
        server.publish("orders", {"id": 1, "px": 300})
        gone = client.until(c="oof")[-1]
        assert (gone["reason"], gone["d"]) == ("match", {"id": 1, "px": 300})
        said = [line["d"] for line in client.seen if line["c"] == "p"]
        assert said.count({"id": 1, "px": 49}) == 1
    running.stop()
    server.publish("orders", {"id": 3, "px": 3})
    server.request("DELETE", records("orders", filter="/id = 0"))
    running = engine()
    try:
        # A client of its own: nobody would answer pings while Spark starts.
        with server.socket() as client:
            client.ask({"c": "sow_and_subscribe", "t": "orders-S", "opts": "oof"})
            if {"id": 0, "px": 1} in server.records("orders-S"):
                client.until(c="oof", reason="deleted")
            client.settled()
            said = [line["d"] for line in client.seen if "d" in line]
            assert said.count({"id": 3, "px": 3}) == 1
    finally:
        running.stop()
    assert server.records("orders-S") == [{"id": 3, "px": 3}]
    (described,) = (t for t in server.get("/v1/topics").json if t["name"] == "orders-S")
    assert described["updates_in"] == 55
    assert 0 < described["updates_out"] < 10
