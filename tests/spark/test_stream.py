"""Streams read the log from offset to offset; a server is needed here, and no Java."""

import json

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadMaxRows

from sow.spark.columns import ROW, SPARK_ROW
from sow.spark.http import ServerRefusal, read_options
from sow.spark.pipeline_io import RangeSource
from sow.spark.reader import SowReader
from sow.spark.rows import DataLoss
from sow.spark.stream import ROWS_OF_A_BATCH, SowStreamReader
from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS

pytestmark = [pytest.mark.spark, pytest.mark.edge]


def stream(server, topic="orders", **options):
    return SowStreamReader(read_options({"url": server.url, "topic": topic, **options}), ROW)


def end_of_log(server):
    return server.get("/v1/log/extent").json["newest"]


def read(reader, start, end):
    batches = [list(reader.read(part)) for part in reader.partitions(start, end)]
    return pa.Table.from_batches([one for part in batches for one in part], ROW).to_pylist()


def next_of(reader, start):
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_a_batch_holds_no_more_than_a_hundred_thousand_rows_unless_it_is_sent(server):
    limit = stream(server).getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert limit.max_rows == ROWS_OF_A_BATCH
    assert stream(server, maxRowsPerTrigger="7").getDefaultReadLimit().max_rows == 7


def test_an_offset_keeps_the_log_and_the_reader_from_batch_to_batch(server):
    reader = stream(server, startingBookmark="latest")
    start = reader.initialOffset()
    server.publish("orders", {"id": 1})
    end = next_of(reader, start)
    assert {name: end[name] for name in ("log", "reader")} == {
        name: start[name] for name in ("log", "reader")
    }
    assert [row["value"] for row in read(reader, start, end)] == ['{"id": 1}']


def test_the_checkpoint_of_another_topic_is_refused(server):
    reader, other = stream(server), stream(server, "loud")
    server.publish("orders", {"id": 1})
    end = next_of(reader, reader.initialOffset())
    for refused in (lambda: next_of(other, end), lambda: other.partitions({}, end)):
        with pytest.raises(DataLoss, match="to another topic, orders, and this query reads loud"):
            refused()
    end.pop("topic")  # as an earlier release has written it
    assert next_of(other, end)


def test_the_checkpoint_of_another_log_is_refused(server, tmp_path):
    reader = stream(server)
    start = reader.initialOffset()
    server.publish("orders", *({"id": n} for n in range(10)))
    end = next_of(reader, start)
    other = Running(configuration(TOPICS, MESSAGE_TYPES), tmp_path)
    try:
        other.publish("orders", *({"id": n} for n in range(50)))
        for options in ({}, {"failOnDataLoss": "false"}):
            astray = stream(other, **options)
            with pytest.raises(DataLoss, match="another log"):
                next_of(astray, end)
            with pytest.raises(DataLoss, match="another log"):
                astray.partitions(start, end)
            # Planned before the address became that of the other one.
            for part in reader.partitions(start, end):
                with pytest.raises(ServerRefusal, match="is of the log") as caught:
                    list(astray.read(part))
                assert caught.value.reason == "another log"
        with pytest.raises(ServerRefusal, match="is of the log"):
            stream(other, consumer="mine").commit(end)
        assert other.get("/v1/log/consumers").json == []
        begin = f"{start['log']}-{end['bookmark']}"
        assert stream(server, startingBookmark=begin).initialOffset()["bookmark"] == end["bookmark"]
        with pytest.raises(ServerRefusal, match="is of the log"):
            stream(other, startingBookmark=begin).initialOffset()
    finally:
        other.close()


def test_the_checkpoint_of_an_older_version_takes_up_the_log_that_it_finds(server):
    begin = int(end_of_log(server))
    server.publish("orders", {"id": 1})
    end = next_of(stream(server), {"bookmark": begin})
    assert end["log"] == server.get("/v1/log/extent").json["log"]
    assert "reader" not in end


def test_the_log_is_the_same_one_after_a_restart(server):
    before = server.get("/v1/log/extent").json["log"]
    server.stop()
    server.start()
    assert server.get("/v1/log/extent").json["log"] == before


def test_of_two_queries_that_use_one_consumer_the_lower_position_counts(server):
    first, second = (stream(server, consumer="shared") for _ in range(2))
    ahead, behind = first.initialOffset(), second.initialOffset()
    server.publish("orders", *({"id": n} for n in range(10)))
    newest = int(end_of_log(server))
    second.commit({**behind, "bookmark": newest - 5})
    first.commit({**ahead, "bookmark": newest})
    (found,) = server.get("/v1/log/consumers").json
    assert (found["name"], int(found["bookmark"])) == ("shared", newest - 5)
    second.commit({**behind, "bookmark": newest})
    assert int(server.get("/v1/log/consumers").json[0]["bookmark"]) == newest
    server.request("DELETE", "/v1/log/consumers/shared")


@pytest.mark.parametrize("name", ["/desk/awaited", "/desk/awaited, too"])
def test_a_topic_that_a_pattern_would_make_is_waited_for(server, name):
    reader = stream(server, name, startingBookmark="latest")
    start = reader.initialOffset()
    assert next_of(reader, start) == start
    server.publish(name, {"id": 1})
    end = next_of(reader, start)
    assert [row["topic"] for row in read(reader, start, end)] == [name]


def test_a_pattern_is_read_with_topics_that_it_gets_later(server):
    reader = stream(server, "desks", startingBookmark="latest")
    start = reader.initialOffset()
    server.publish("/desk/one", {"id": 1})
    server.publish("orders", {"id": 1})
    server.publish("/desk/two", {"id": 1})
    end = next_of(reader, start)
    assert [row["topic"] for row in read(reader, start, end)] == ["/desk/one", "/desk/two"]


def documents(reader, start, end):
    return sorted(row["value"] or row["op"] for row in read(reader, start, end))


def test_a_stream_may_begin_with_the_records_and_go_on_with_the_log(server):
    server.publish("orders", *({"id": n, "v": 1} for n in range(5)))
    server.publish("orders", {"id": 0, "v": 2})
    reader = stream(server, startingBookmark="snapshot", maxRowsPerTrigger="2")
    begin = reader.initialOffset()
    first = next_of(reader, begin)
    assert next_of(reader, first) == first
    server.publish("orders", *({"id": n, "v": 3} for n in range(3)))
    of_records = ['{"id": 0, "v": 2}', *(f'{{"id": {n}, "v": 1}}' for n in range(1, 5))]
    assert documents(reader, begin, first) == of_records
    second = next_of(reader, first)
    third = next_of(reader, second)
    assert documents(reader, first, second) == ['{"id": 0, "v": 3}', '{"id": 1, "v": 3}']
    assert documents(reader, second, third) == ['{"id": 2, "v": 3}']
    assert next_of(reader, third) == third


def test_the_records_that_a_stream_begins_with_are_the_same_when_they_are_read_again(server):
    server.publish("orders", {"id": 1, "v": 1}, {"id": 2})
    reader = stream(server, startingBookmark="snapshot")
    end = json.loads(json.dumps(next_of(reader, reader.initialOffset())))
    server.publish("orders", {"id": 1, "v": 2}, {"id": 3})
    again = stream(server, startingBookmark="snapshot")
    begin = again.initialOffset()  # of a query that was killed in its first batch
    of_then = ['{"id": 1, "v": 1}', '{"id": 2}']
    assert documents(again, begin, end) == of_then
    ((name, _),) = end["records"]
    server.request("DELETE", f"/v1/snapshots/{name}")  # as after a restart, or an idle hour
    assert documents(again, begin, end) == of_then
    assert documents(again, end, next_of(again, end)) == ['{"id": 1, "v": 2}', '{"id": 3}']


def test_a_stream_begins_with_those_records_that_match(server):
    server.publish("orders", *({"id": n} for n in range(5)))
    reader = stream(server, startingBookmark="snapshot", filter="/id > 3")
    begin = reader.initialOffset()
    assert documents(reader, begin, next_of(reader, begin)) == ['{"id": 4}']


def test_a_stream_begins_with_all_topics_of_a_pattern_at_one_moment(server):
    server.publish("/desk/first", {"id": 1})
    server.publish("/desk/second", {"id": 2})
    reader = stream(server, "desks", startingBookmark="snapshot")
    begin = reader.initialOffset()
    end = next_of(reader, begin)
    server.publish("/desk/third", {"id": 3})
    assert {'{"id": 1}', '{"id": 2}'} <= set(documents(reader, begin, end))
    assert documents(reader, end, next_of(reader, end)) == ['{"id": 3}']


def test_a_topic_that_is_not_there_yet_has_no_records_to_begin_with(server):
    reader = stream(server, "/desk/snapshot-of-none", startingBookmark="snapshot")
    begin = reader.initialOffset()
    end = next_of(reader, begin)
    assert read(reader, begin, end) == []
    server.publish("/desk/snapshot-of-none", {"id": 1})
    assert documents(reader, end, next_of(reader, end)) == ['{"id": 1}']


def test_records_to_begin_with_that_nobody_has_any_more_are_no_mere_error(server, monkeypatch):
    server.publish("orders", {"id": 1})
    reader = stream(server, startingBookmark="snapshot")
    begin = reader.initialOffset()
    end = next_of(reader, begin)

    def trimmed(*_):
        raise ServerRefusal("the log no longer says", {"reason": "invalid bookmark"})

    monkeypatch.setattr("sow.spark.rows.part_of_snapshot", trimmed)
    with pytest.raises(DataLoss, match="Start again with a new checkpoint"):
        read(reader, begin, end)


def test_a_silent_stream_that_began_with_records_reports_the_time_too(server):
    server.publish("orders", {"id": 1})
    reader = stream(server, startingBookmark="snapshot", closesWithin="1us")
    first = next_of(reader, reader.initialOffset())
    (tick,) = read(reader, first, next_of(reader, first))
    assert tick["op"] == "tick"


def test_a_filter_of_the_servers_leaves_publishes_there(server):
    reader = stream(server, startingBookmark="latest", filter="/px > 9")
    start = reader.initialOffset()
    server.publish("orders", *({"id": n, "px": n * 1.5} for n in range(10)))
    server.request("DELETE", "/v1/topics/orders/records?filter=/id=1")
    rows = read(reader, start, next_of(reader, start))
    assert [json.loads(row["value"])["id"] for row in rows if row["op"] == "publish"] == [7, 8, 9]
    assert [row["op"] for row in rows if row["op"] != "publish"] == ["delete"]


def test_the_last_change_of_each_key_of_a_batch(server):
    reader = stream(server, startingBookmark="latest", readMode="latest", partitions="1")
    start = reader.initialOffset()
    server.publish("orders", *({"id": n % 3, "n": n} for n in range(9)))
    rows = read(reader, start, next_of(reader, start))
    found = sorted(json.loads(row["value"])["n"] for row in rows)
    assert found == [6, 7, 8]


def test_a_topic_without_a_log_cannot_be_streamed(server):
    with pytest.raises(ServerRefusal, match="orders-C has no log; read the log of orders"):
        stream(server, "orders-C").initialOffset()


def test_where_a_query_begins_is_a_batch_without_rows():
    reader = SowStreamReader(read_options({"topic": "orders", "startingBookmark": "latest"}), ROW)
    # Nothing came until the first trigger, and rows did when Spark requested them again.
    assert reader.partitions({"bookmark": 7}, {"bookmark": 5}) == []


def test_the_lag_is_what_is_in_no_batch_yet(server):
    reader = stream(server, startingBookmark="latest", maxRowsPerTrigger="2")
    start = reader.initialOffset()
    server.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    server.publish("loud", {"id": 1})
    assert "lag_rows" in reader.reportLatestOffset()
    end = next_of(reader, start)
    behind = reader.reportLatestOffset()
    assert (behind["bookmark"], behind["lag_rows"]) == (int(end_of_log(server)), 1)
    assert behind["lag_seconds"] > 0
    next_of(reader, end)
    at_the_end = reader.reportLatestOffset()
    assert (at_the_end["lag_rows"], at_the_end["lag_seconds"]) == (0, 0)


def test_the_lag_follows_a_batch_that_an_earlier_run_has_planned(server):
    reader = stream(server, startingBookmark="latest", maxRowsPerTrigger="2")
    start = reader.initialOffset()
    server.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    end = next_of(reader, start)
    again = stream(server)
    again.partitions(start, end)
    assert again.reportLatestOffset()["lag_rows"] == 1


def test_a_lag_that_the_log_does_not_have_any_more_fails_no_query(server, monkeypatch):
    reader = stream(server, startingBookmark="latest")
    next_of(reader, reader.initialOffset())
    reader._reached = 10**12
    assert reader.reportLatestOffset() == {"bookmark": int(end_of_log(server))}


def test_a_consumer_is_at_the_end_when_the_last_batch_is_done(server):
    reader = stream(server, startingBookmark="latest", consumer="ended")
    start = reader.initialOffset()
    server.publish("orders", {"id": 1}, {"id": 2})
    end = next_of(reader, start)
    read(reader, start, end)
    assert server.get("/v1/log/consumers").json == []
    assert next_of(reader, end) == end  # nothing follows, so that Spark says nothing more
    (found,) = server.get("/v1/log/consumers").json
    assert int(found["bookmark"]) == end["bookmark"]
    server.publish("loud", {"id": 1})
    (line,) = [
        one for one in server.get("/metrics").body.decode().splitlines() if "lag_rows{" in one
    ]
    assert line == 'sow_consumer_lag_rows{consumer="ended"} 0.0'
    server.request("DELETE", "/v1/log/consumers/ended")


def test_a_lag_that_takes_long_to_count_is_counted_a_tenth_of_the_time(server):
    reader = stream(server, startingBookmark="latest")
    next_of(reader, reader.initialOffset())
    moments = iter([0, 3, 29, 31, 31, 32, 32])
    reader.now_s = lambda: next(moments)
    lags = []
    for _ in range(4):
        server.publish("orders", {"id": 1})
        lags.append(reader.reportLatestOffset()["lag_rows"])
    assert lags == [1, 1, 3, 4]


def test_a_stream_of_a_range_ends_with_it(server):
    server.publish("orders", *({"id": number} for number in range(5)))
    newest = int(end_of_log(server))
    given = {"url": server.url, "topic": "orders", "startingBookmark": str(newest - 4)}
    source = RangeSource({**given, "until": str(newest - 1)})
    assert source.schema() == SPARK_ROW
    reader = source.streamReader(from_arrow_schema(ROW))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    server.publish("orders", {"id": 9})
    end = next_of(reader, start)
    assert (len(read(reader, start, end)), end["bookmark"]) == (3, newest - 1)
    assert next_of(reader, end) == end


def test_changes_of_a_pattern_are_refused_when_they_are_planned(server):
    reader = stream(server, "desks", changeFormat="cdc")
    with pytest.raises(ServerRefusal, match="the changes of one topic, which is no pattern"):
        reader.initialOffset()
    checkpoint = stream(server, "desks").initialOffset()
    with pytest.raises(ServerRefusal, match="which is no pattern"):
        next_of(reader, checkpoint)
    options = {"url": server.url, "topic": "desks", "changeFormat": "cdc"}
    batch = SowReader(read_options({**options, "startingBookmark": "0"}), ROW, from_log=True)
    with pytest.raises(ServerRefusal, match="which is no pattern"):
        batch.partitions()
