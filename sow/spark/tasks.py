"""Which task this is: what Spark tells a worker about the work that it does."""

import uuid

from pyspark import TaskContext

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def part_and_attempt() -> tuple[int, str]:
    """The number of the part that this task does, and a name that no other attempt at it has."""
    context = TaskContext.get()
    part = context.partitionId() if context else 0
    return part, f"{context.taskAttemptId() if context else 0}-{uuid.uuid4().hex[:8]}"


def query_and_batch() -> tuple[str, int]:
    """The streaming query that this task belongs to, as its checkpoint calls it, and the batch."""
    context = TaskContext.get()
    assert context is not None
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    assert query is not None
    assert batch is not None
    return query, int(batch)
