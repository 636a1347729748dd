"""What is said of an error of Spark's: one sentence of its hundred lines.

Errors of ours are raised in Spark's workers and come back inside Spark's own; the sentence is
looked for there. Nothing is decided by it.
"""

from sow.errors import BadFilter, ClientError, SowError
from sow.spark.http import ServerRefusal
from sow.spark.rows import DataLoss

KINDS = (ServerRefusal, BadFilter, ClientError, SowError, DataLoss, ValueError)
OURS = tuple(f"{kind.__name__}: " for kind in KINDS)
MISSING = "Failed to find the data source: kafka"
KAFKA = (
    "Spark's connector for Kafka is not here; add <Setting Name='spark.jars.packages' "
    "Value='org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0'/> to the pipeline"
)

OTHER_SOURCES = "sources in the checkpoint offsets and now there are"
EARLIER_RELEASE = (
    "this checkpoint was begun by an earlier release, without Conflate or with other sources, and "
    "cannot be gone on with; begin again by removing it, which is the Checkpoint of the pipeline "
    "or its directory under pipelines in the data directory"
)


def reason(error: BaseException) -> str:
    """One sentence of what Spark says in a hundred lines."""
    text = str(error)
    if MISSING in text or ("kafka" in text and "DATA_SOURCE_NOT_FOUND" in text):
        return KAFKA
    if OTHER_SOURCES in text:
        return EARLIER_RELEASE
    for mark in OURS:
        if mark in text:
            return text.rpartition(mark)[2].splitlines()[0].strip().strip("'\"")
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
