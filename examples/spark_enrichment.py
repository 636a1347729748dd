"""Spark enriches orders with their value and their trader, and writes them back.

The log of the topic `orders` is a stream; each change is joined with a table in Spark, and written
to the topic `orders-enriched`, exactly once: started again, it resumes from its checkpoint. It ends
when it has processed all changes; --follow continues.
"""

import argparse

from pyspark.sql import functions as f

from sow.spark import session

DESKS = [("ACME", "industry"), ("BETA", "banks"), ("CEDE", "energy")]


def enriched(spark, url):
    """The stream of orders with two more columns."""
    desks = spark.createDataFrame(DESKS, "symbol string, desk string")
    orders = (
        spark.readStream.format("sow")
        .options(url=url, topic="orders", startingBookmark="earliest")
        .schema("order_id string, symbol string, price double, qty long, status string")
        .load()
    )
    return orders.join(desks, "symbol", "left").withColumn(
        "notional", f.round(f.col("price") * f.col("qty"), 2)
    )


def main(url: str, checkpoint: str, follow: bool) -> None:
    """Write the stream back; the checkpoint is what makes it exactly once."""
    pace = {"processingTime": "1 second"} if follow else {"availableNow": True}
    writing = (
        enriched(session("enrichment"), url)
        .writeStream.format("sow")
        .options(url=url, topic="orders-enriched", checkpointLocation=checkpoint)
        .trigger(**pace)
        .start()
    )
    writing.awaitTermination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server")
    parser.add_argument("--checkpoint", default="enrichment-checkpoint", help="a folder of its own")
    parser.add_argument("--follow", action="store_true", help="go on with what comes")
    given = parser.parse_args()
    main(given.url, given.checkpoint, given.follow)
