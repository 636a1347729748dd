"""A driver to be killed: ``python -m tests.crash.spark.pipeline URL CHECKPOINT``.

Copies the topic `orders` into `loud`, a few rows a batch, until it has caught up.
"""

import sys

from sow.spark import session

ROWS_A_BATCH = 20


def copy(spark, url, checkpoint, sink="sow", **options):
    """A stream from `orders` into `loud`."""
    there = {"url": url}
    return (
        spark.readStream.format("sow")
        .options(**there, topic="orders", maxRowsPerTrigger=ROWS_A_BATCH, partitions=1)
        .load()
        .select("value", "op")
        .writeStream.format(sink)
        .options(**there, topic="loud", **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    copy(session("pipeline", "local[2]"), *sys.argv[1:]).awaitTermination()
