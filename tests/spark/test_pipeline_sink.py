"""Where a pipeline's rows go: the calls of Spark's writer, without a Spark."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sow.core.pipelines import Pipeline, PipelineOption, Sink, Source
from sow.spark.pipeline_sink import written


class Writer:
    """Notes its calls, in order."""

    def __init__(self, noted):
        self.noted = noted

    def __getattr__(self, name):
        def tell(*values, **named):
            self.noted[name] = named or (values[0] if len(values) == 1 else values)
            return self

        return tell


class Frame:
    """A frame whose writers note their calls."""

    def __init__(self):
        self.noted, self.batch = {}, {}
        self.writeStream = Writer(self.noted)
        self.write = Writer(self.batch)


class Files:
    def __init__(self):
        self.kept = {}

    def read(self, name):
        return self.kept.get(name)

    def write(self, name, text):
        self.kept[name] = text


@pytest.fixture
def state():
    return SimpleNamespace(checkpoint="/state/here", files=Files())


def noted(sink, state, once=False, **more):
    """The calls for a pipeline's sink."""
    frame = Frame()
    pipeline = Pipeline(name="p", sources=(Source(format="rate"),), sink=sink, **more)
    written(frame, pipeline, "http://host", Path("/data"), state, once)
    return frame


def test_a_query_has_a_name_a_place_for_its_state_and_a_pace(state):
    said = noted(Sink(topic="t"), state, trigger_us=2_500_000).noted
    assert said["queryName"] == "p"
    assert said["option"] == ("checkpointLocation", "/state/here")
    assert said["trigger"] == {"processingTime": "2500 milliseconds"}
    assert noted(Sink(topic="t"), state, once=True).noted["trigger"] == {"availableNow": True}


def test_appended_rows_go_to_a_topic_through_the_data_source(state):
    said = noted(Sink(topic="t", options=(PipelineOption("batchRows", "5"),)), state).noted
    assert said["format"] == "sow"
    assert said["options"] == {"url": "http://host", "topic": "t", "batchRows": "5"}


def test_files_are_below_the_data_directory_and_may_be_divided(state):
    options = (PipelineOption("partitionBy", "day,symbol"), PipelineOption("compression", "zstd"))
    frame = noted(Sink(format="parquet", path="out", options=options), state)
    said = frame.noted
    assert said["format"] == "parquet"
    assert said["option"] == ("path", "/data/out")
    assert said["options"] == {"compression": "zstd"}
    assert said["partitionBy"] == ("day", "symbol")


def test_another_format_gets_its_options_and_a_path_only_if_there_is_one(state):
    options = (PipelineOption("topic", "t"),)
    said = noted(Sink(format="kafka", options=options), state).noted
    assert (said["format"], said["options"]) == ("kafka", {"topic": "t"})
    assert said["option"] == ("checkpointLocation", "/state/here")


def test_updated_rows_are_written_batch_by_batch_under_a_name_that_stays(state):
    write = noted(Sink(topic="t"), state, output_mode="update").noted["foreachBatch"]
    first, second = Frame(), Frame()
    write(first, 7)
    name = state.files.kept["writer"]
    assert first.batch["options"] == {
        "url": "http://host", "topic": "t", "writer": name, "epoch": "7"
    }  # fmt: skip
    again = noted(Sink(topic="t"), state, output_mode="update").noted["foreachBatch"]
    again(second, 8)
    assert second.batch["options"]["writer"] == name
    assert name.startswith("pipeline p ")


def test_who_begins_anew_replaces_all_there_is_by_the_first_batch(state):
    frame = Frame()
    pipeline = Pipeline(name="p", sources=(Source(format="rate"),), sink=Sink(topic="t"))
    written(frame, pipeline, "http://host", Path("/data"), state, False, restarts=True)
    assert frame.noted["outputMode"] == "append"
    write = frame.noted["foreachBatch"]
    write(frame, 1)
    named = {"writer": state.files.kept["writer"], "url": "http://host", "topic": "t"}
    assert frame.batch["options"] == {**named, "epoch": "1"}
    write(frame, 0)
    assert frame.batch["options"] == {"mode": "replace", "allowEmpty": "true"}
