"""Backfills: a pipeline over a range of the log, once, whatever ends it in between."""

import json
from dataclasses import replace

import pytest

from sow.core.pipelines import Conflate, Pipeline, PipelineOption, Sink, Source
from sow.errors import ClientError
from sow.spark.pipeline_io import backfill
from sow.spark.pipelines import Running
from tests.spark.proxy import Sent

pytestmark = [pytest.mark.spark, pytest.mark.edge]


def of_range(server, tmp_path, pipeline, start, end):
    return backfill(pipeline, server.url, tmp_path, str(start), str(end))


def test_a_range_is_run_again_as_the_pipeline_runs_it_and_its_own_progress_stays(
    run, spark, server, tmp_path
):
    begin = int(server.get("/v1/log/extent").json["newest"])
    own = (
        PipelineOption("startingBookmark", str(begin)),
        PipelineOption("consumer", "its own"),
    )
    source = Source(
        format="sow",
        topic="orders",
        schema="id long, px long, _ts timestamp, _op string, _bookmark long",
        time_column="_ts",
        options=own,
    )
    pipeline = Pipeline(
        name="ranged",
        sources=(source,),
        conflate=Conflate(keys=("/id",), interval_us=3_600_000_000, policy="max"),
        sink=Sink(topic="loud"),
    )
    for px in (1, 5, 3, 4, 2):
        server.publish("orders", {"id": 1, "px": px})
    run(pipeline)
    assert server.records("loud") == []  # the window is open
    state = tmp_path / "pipelines" / "ranged"
    before = {
        path.name: path.read_bytes() for path in (state / "checkpoint/offsets").glob("[0-9]*")
    }
    consumers = server.get("/v1/log/consumers").json
    part = of_range(server, tmp_path, pipeline, begin + 2, begin + 4)
    assert (part.rows, part.after, part.until) == ({"source": 2}, begin + 2, begin + 4)
    running = Running(part.pipeline, server.url, tmp_path, True, None, until=part.until)
    running.start()
    assert list(state.glob("backfill-*/lock"))
    running.query.awaitTermination()
    running.complete()
    running.stop()
    assert [(row["id"], row["px"]) for row in server.records("loud")] == [(1, 4)]
    assert not list(state.glob("backfill-*"))
    after = {path.name: path.read_bytes() for path in (state / "checkpoint/offsets").glob("[0-9]*")}
    assert after == before
    assert [one["bookmark"] for one in server.get("/v1/log/consumers").json] == [
        one["bookmark"] for one in consumers
    ]
    server.request("DELETE", "/v1/log/consumers/its%20own")


def test_a_range_that_ends_between_its_batches_is_written_once(spark, server, proxy, tmp_path):
    """The driver hears nothing of a commit, as if it had died; the next one begins with it. Once it
    is complete nothing is left of it: the same command would be another backfill."""
    begin = server.get("/v1/log/extent").json["newest"]
    for number in range(6):
        server.publish("orders", {"id": number})
    source = Source(
        format="sow", topic="orders", options=(PipelineOption("maxRowsPerTrigger", "2"),)
    )
    pipeline = Pipeline(name="broken-off", sources=(source,), sink=Sink(topic="loud"))
    commits = []

    def unheard(requested, forward):
        told = forward()
        if requested.step == "commit":
            commits.append(json.loads(told.body)["duplicate"])
            if len(commits) == 2:
                return Sent(409, {}, b'{"detail":"nobody hears this"}')
        return told

    proxy.way = unheard
    for ends in (False, True):
        part = backfill(pipeline, proxy.url, tmp_path, begin, "latest")
        running = Running(part.pipeline, proxy.url, tmp_path, True, None, until=part.until)
        running.start()
        try:
            if ends:
                running.query.awaitTermination()
                running.complete()
            else:
                with pytest.raises(Exception, match="nobody hears this"):
                    running.query.awaitTermination()
        finally:
            running.stop()
        assert bool(list((tmp_path / "pipelines").glob("*/backfill-*"))) != ends
    assert commits == [False, False, True, False]
    rows = server.get(f"/v1/log?topics=loud&from={begin}").rows
    assert [row["d"]["id"] for row in rows] == list(range(6))
    assert not list((tmp_path / "pipelines").glob("*/backfill-*"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sources": (Source(format="csv", path="in"),)}, "reads csv, which has no bookmarks"),
        ({"sink": Sink(format="parquet", path="out")}, "it would pass over those of a backfill"),
    ],
)
def test_a_pipeline_that_has_no_range_is_refused(server, tmp_path, changes, says):
    given = {"sources": (Source(format="sow", topic="orders"),), "sink": Sink(topic="loud")}
    with pytest.raises(ClientError, match=says):
        of_range(server, tmp_path, Pipeline(name="p", **{**given, **changes}), 0, 1)


def test_a_range_that_makes_no_sense_is_refused(server, tmp_path, monkeypatch):
    server.publish("orders", *({"id": number} for number in (8, 9, 1, 2, 3)))
    log, newest = (server.get("/v1/log/extent").json[name] for name in ("log", "newest"))
    options = (PipelineOption("filter", "/id > 1"),)
    copy = Pipeline(
        name="p",
        sources=(Source(format="sow", topic="orders", options=options),),
        sink=Sink(topic="loud"),
    )
    begin = int(newest) - 3
    assert of_range(server, tmp_path, copy, begin, "latest").rows == {"source": 2}
    assert of_range(server, tmp_path, copy, "earliest", f"{log}-{newest}").until == int(newest)
    places = {
        of_range(server, tmp_path, one, begin, newest).pipeline.checkpoint
        for one in (copy, replace(copy, line=7), replace(copy, sql="SELECT * FROM source"))
    }
    assert len(places) == 2, "another definition does not go on with the state of this one"
    for start, end, says in (
        (newest, newest, "is empty: it begins after bookmark"),
        (newest, begin, "is empty"),
        (begin, int(newest) + 1, f"is not there yet: the newest bookmark is {newest}"),
        (begin, f"{'ab' * 8}-{newest}", "is of another log; this is the log"),
        (begin, "2999-01-01T00:00:00Z", "--to 2999-01-01T00:00:00Z lies in the future"),
        ("soon", newest, "Topic orders: .*'soon' is not a bookmark"),
        (begin, "soon", "--to: .*'soon' is not a bookmark"),
    ):
        with pytest.raises(ClientError, match=says):
            of_range(server, tmp_path, copy, start, end)
    monkeypatch.setattr(server.server.runtime.journal, "_base_seq", begin)
    with pytest.raises(ClientError, match="is not kept"):
        of_range(server, tmp_path, copy, begin - 1, newest)
    with pytest.raises(ClientError, match="write --from earliest for what there is"):
        of_range(server, tmp_path, copy, "2001-01-01T00:00:00Z", newest)
