"""The sink of a pipeline: a topic of the server, or a sink of Spark's own, such as files.

Spark's own sinks keep their abilities. A topic takes appended rows through `format("sow")`, and
updates batch by batch, under a name that outlives the run: so the server recognizes a batch that
Spark repeats.
"""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sow.core.pipelines import Pipeline, located
from sow.spark.pipeline_rows import for_topic
from sow.spark.pipeline_source import given
from sow.spark.run_state import RunState
from sow.spark.write_target import writer_of


def written(
    frame: Any,
    pipeline: Pipeline,
    url: str,
    data_directory: Path,
    state: RunState,
    once: bool,
    restarts: bool = False,
) -> Any:
    """The query that writes the rows, with its checkpoint in `state`. If it `restarts`, its first
    batch is the complete content of the topic."""
    sink = pipeline.sink
    frame, written_by = (frame, {}) if sink.topic is None else for_topic(frame, pipeline)
    writer = frame.writeStream.queryName(pipeline.name).outputMode(pipeline.output_mode)
    writer = writer.option("checkpointLocation", state.checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        assert pipeline.trigger_us is not None
        writer = writer.trigger(processingTime=f"{pipeline.trigger_us / 1000:g} milliseconds")
    options = given(sink.options)
    if sink.topic is None:
        columns = [name for name in options.pop("partitionBy", "").split(",") if name]
        if sink.path is not None:
            writer = writer.option("path", located(sink.path, str(data_directory)))
        writer = writer.format(sink.format).options(**options)
        return (writer.partitionBy(*columns) if columns else writer).start()
    options = {"url": url, "topic": sink.topic, **written_by, **options}
    if pipeline.output_mode == "append" and not restarts:
        return writer.format("sow").options(**options).start()
    name = _writer_name(state, pipeline)
    return writer.foreachBatch(_upsert(options, name, restarts)).start()


def _writer_name(state: RunState, pipeline: Pipeline) -> str:
    """The name under which the server knows this pipeline's batches, from its first run until its
    state is removed."""
    name = state.files.read("writer")
    if name is None:
        name = f"{writer_of(pipeline.name)}{uuid.uuid4()}"
        state.files.write("writer", name)
    return name


def _upsert(options: Mapping[str, str], name: str, restarts: bool) -> Callable[[Any, int], None]:
    """Writes a batch under the pipeline's name: a Python sink supports neither updates nor
    replacing."""

    def write(frame: Any, batch: int) -> None:
        writer = frame.write.format("sow").options(**options, writer=name, epoch=str(batch))
        if restarts and batch == 0:
            writer = writer.options(mode="replace", allowEmpty="true")
        writer.mode("append").save()

    return write
