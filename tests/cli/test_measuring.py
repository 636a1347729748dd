"""What many times come to."""

import pytest

from sow.cli.measuring import Percentiles, ProbeRecords, samples
from sow.client import Client
from sow.errors import ClientError


def test_of_a_hundred_times_99_keep_to_the_last_but_one():
    found = Percentiles.of([number / 1000 for number in range(100, 0, -1)])
    assert found == (100, 0.001, 0.05, 0.099)


def test_one_time_is_all_of_them():
    assert Percentiles.of([0.25]) == (1, 0.25, 0.25, 0.25)


def test_for_people_and_for_programs():
    found = Percentiles.of([0.0012])
    assert found.row("durable") == {
        "what": "durable", "median": "1.2 ms", "p99": "1.2 ms", "min": "1.2 ms", "times": "1",
    }  # fmt: skip
    assert found.document() == {"count": 1, "min_ms": 1.2, "median_ms": 1.2, "p99_ms": 1.2}


def with_client(server, work):
    async def run():
        async with Client(server.url) as client:
            return await work(client)

    return server.wait(run())


def begin(server, topic):
    return with_client(server, lambda client: ProbeRecords.begin(client, topic, "sow-test"))


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("orders-C", "is of kind conflated, which takes no messages; name a json topic"),
        ("notes", "are of type string; name a json topic"),
        ("nowhere", "no topic 'nowhere'"),
    ],
)
def test_a_topic_that_cannot_have_them_is_refused(server, topic, said):
    with pytest.raises(Exception, match=said):
        begin(server, topic)


def test_records_that_look_like_them_are_left_alone(server, orders):
    orders({"id": "sow-test-7"})
    with pytest.raises(ClientError, match="holds 1 record of an earlier run") as raised:
        begin(server, "orders")
    assert "sow delete orders --filter \"/id LIKE '^sow-test-'\"" in str(raised.value)
    assert server.records("orders") == [{"id": "sow-test-7"}]


def test_they_are_taken_away_and_nothing_else_is(server, orders):
    orders({"id": 1}, {"id": "sow-test"})

    async def work(client):
        scratch = await ProbeRecords.begin(client, "orders", "sow-test")
        async with await client.publisher("orders") as publisher:
            await publisher.send([scratch.document(number, px=5) for number in range(1500)])
            await publisher.drain()
            there = (await client.query("orders", top_n=0)).matches
            await scratch.take_away(publisher)
        return there

    assert with_client(server, work) == 1502
    assert server.records("orders") == [{"id": 1}, {"id": "sow-test"}]


def test_a_key_may_be_nested(server):
    async def work(client):
        made = await ProbeRecords.begin(client, "pairs", "w")
        return made.document(3, px=1)

    assert with_client(server, work) == {"px": 1, "a": "w-3", "b": {"c": "w-3"}}


TEXT = """# HELP sow_step_longest_seconds The longest.
# TYPE sow_step_longest_seconds gauge
sow_step_longest_seconds{step="a query"} 0.25
sow_step_longest_seconds{step="a stream"} 0.5
# HELP sow_connections Connections.
# TYPE sow_connections gauge
sow_connections 3
"""


def test_a_figure_is_found_by_its_name_and_label():
    found = samples(TEXT)
    assert found["sow_step_longest_seconds"] == {"a query": 0.25, "a stream": 0.5}
    assert found["sow_connections"] == {"": 3.0}
