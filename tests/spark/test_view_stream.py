"""A view whose engine is Spark, run by the query that runs it for real."""

from dataclasses import replace

import pytest

from sow.spark.grouped_view import SparkView
from sow.spark.pipelines import Running, topic_pipeline
from tests.edge.serving import Running as Server
from tests.edge.serving import configuration, records

pytestmark = [pytest.mark.spark, pytest.mark.edge]

VIEW = """
<View><Name>{name}</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/desk</Field><Field>COUNT(1) AS /n</Field><Field>SUM(/qty) AS /qty</Field>
    <Field>MAX(/qty) AS /most</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping><KeyDomain>desks</KeyDomain>
  <Filter>/qty &lt; 100</Filter><Engine>{engine}</Engine></View>
"""
TOPICS = f"""
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
{VIEW.format(name="desks", engine="spark")}{VIEW.format(name="twin", engine="embedded")}
<ConflatedTopic><Name>desks-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>desks</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>
"""


@pytest.fixture
def server(tmp_path):
    running = Server(configuration(TOPICS), tmp_path / "data")
    yield running
    running.close()


@pytest.fixture
def engine(spark, server, tmp_path):
    view = server.server.engine.topics["desks"].definition.view

    def start(cores="1", view=view):
        spark.conf.set("spark.sql.shuffle.partitions", cores)
        pipeline = replace(topic_pipeline(view), trigger_us=200_000)  # tests are in a hurry
        running = Running(
            pipeline, server.url, tmp_path / "state", False, None, SparkView(view, "json")
        )
        running.start()
        running.query.processAllAvailable()  # Spark's own start takes a while
        return running

    yield start
    spark.conf.set("spark.sql.shuffle.partitions", "1")


def rows(server, topic="desks"):
    return sorted(server.records(topic), key=lambda row: row["desk"])


def bodies(server, topic):
    """The rows as they are, by SowKey."""

    def found():
        table = server.server.engine.topics[topic].records.table
        return {table.sow_key(slot): table.bodies[slot] for slot in table.slots.values()}

    return server.call(found)


def test_rows_follow_records_and_go_on_where_they_were(server, engine, tmp_path):
    server.publish("orders", {"id": 0, "desk": "a", "qty": 1}, {"id": 1, "desk": "b", "qty": 2.5})
    running = engine()
    before = [
        {"desk": "a", "n": 1, "qty": 1, "most": 1},
        {"desk": "b", "n": 1, "qty": 2.5, "most": 2.5},
    ]
    assert rows(server) == before
    with server.socket() as client:
        client.ask({"c": "sow_and_subscribe", "t": "desks", "opts": "oof"})
        server.publish("orders", {"id": 1, "desk": "a", "qty": 0.1})
        gone = client.until(c="oof")[-1]
        assert (gone["reason"], gone["d"]) == ("match", before[1])
    assert rows(server) == [{"desk": "a", "n": 2, "qty": 1.1, "most": 1}]
    running.stop()
    server.publish("orders", {"id": 0, "desk": "a", "qty": 100}, {"id": 2, "desk": "c", "qty": 7})
    server.request("DELETE", records("orders", filter="/id = 1"))
    # The last batch was written, and Spark does not know it: it is made once more.
    commits = tmp_path / "state/pipelines/desks/checkpoint/commits"
    max(commits.glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    running = engine(cores="3")
    try:
        assert rows(server) == [{"desk": "c", "n": 1, "qty": 7, "most": 7}]
        desks = ["d", "d", None, "", 7, "7", 7.5]
        orders = [{"id": at, "desk": desk, "qty": at / 10} for at, desk in enumerate(desks, 3)]
        server.publish("orders", *orders)
        running.query.processAllAvailable()
    finally:
        running.stop()
    assert len(bodies(server, "desks")) == 5
    assert bodies(server, "desks") == bodies(server, "twin")


def test_another_definition_begins_anew_in_place_of_what_was(server, engine):
    desks = [{"id": at, "desk": desk, "qty": at} for at, desk in enumerate("abc")]
    server.publish("orders", *desks)
    engine().stop()
    assert len(rows(server)) == 3
    view = server.server.engine.topics["desks"].definition.view
    engine(view=replace(view, filter="/qty > 0")).stop()
    assert [row["desk"] for row in rows(server)] == ["b", "c"]
