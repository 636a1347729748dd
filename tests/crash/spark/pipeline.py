"""A driver to be killed: ``python -m tests.crash.spark.pipeline URL CHECKPOINT [FILES]``.

Copies the topic `orders` into `loud`, a few rows a batch, until it has caught up; with FILES by
rows of changes, into the topic and into these files at the same time, of which the one that comes
to its end makes one file, `whole`.
"""

import sys
from pathlib import Path

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


def copy_changes(spark, url, checkpoint, files):
    """Both copies by rows of changes, to their end."""
    changes = spark.readStream.format("sow").options(
        url=url, topic="orders", changeFormat="cdc", maxRowsPerTrigger=ROWS_A_BATCH
    )
    topic = changes.load().writeStream.format("sow").options(url=url, topic="loud")
    typed = changes.schema("id long, px long, _change_type string, _commit_version long").load()
    # One at a time they would be killed in the first alone.
    queries = [
        sink.option("checkpointLocation", f"{checkpoint}-{name}").trigger(availableNow=True).start()
        for name, sink in (
            ("topic", topic),
            ("files", typed.writeStream.format("parquet").option("path", files)),
        )
    ]
    for query in queries:
        query.awaitTermination()
    # Spark's own notes say which of the files count.
    whole = str(Path(files).with_name("whole"))
    spark.read.parquet(files).coalesce(1).write.mode("overwrite").parquet(whole)


if __name__ == "__main__":
    session_ = session("pipeline", "local[2]")
    if len(sys.argv) > 3:
        copy_changes(session_, *sys.argv[1:])
    else:
        copy(session_, *sys.argv[1:]).awaitTermination()
