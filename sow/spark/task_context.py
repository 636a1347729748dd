"""The identity of the current task, from Spark's task context."""

import uuid

from pyspark import TaskContext

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
EXECUTION, OUTERMOST = "spark.sql.execution.id", "spark.sql.execution.root.id"


def part_and_attempt() -> tuple[int, str]:
    """The number of this task's part, and a name that no other attempt at it has."""
    context = TaskContext.get()
    part = context.partitionId() if context else 0
    return part, f"{context.taskAttemptId() if context else 0}-{uuid.uuid4().hex[:8]}"


def query_and_batch() -> tuple[str, int]:
    """The streaming query of this task, as its checkpoint names it, and the batch."""
    context = TaskContext.get()
    assert context is not None
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    assert query is not None
    assert batch is not None
    return query, int(batch)


def makes_a_table() -> bool:
    """Whether this writes for a statement that creates a table, such as `saveAsTable`.

    Such a statement runs the write as a nested execution; so does a batch of a stream with the
    writes of its `foreachBatch`, and nothing else does.
    """
    context = TaskContext.get()
    if context is None or context.getLocalProperty(QUERY_ID) is not None:
        return False
    outermost = context.getLocalProperty(OUTERMOST)
    return outermost is not None and outermost != context.getLocalProperty(EXECUTION)
