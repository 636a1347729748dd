"""Spark and SOW in one file: publish, read a batch, stream, conflate, write back.

    sow serve config.xml &
    python docs/guide/spark_example.py --url http://127.0.0.1:8080

It needs the topics `orders` and `quotes` of the shipped config.xml, and leaves four records there.
"""

import argparse
import time

from pyspark.sql.functions import max_by

from conflated_topics.spark import conflate
from sow.client.sync import Client
from sow.spark import session

QUOTES = [("EX-A", 10.1), ("EX-B", 20.5), ("EX-A", 10.2), ("EX-A", 10.3), ("EX-B", 20.4)]
INTERVAL_S = 0.5


def publish(url: str) -> int:
    """Orders, and quotes in two bursts; the bookmark before all of it."""
    with Client(url) as client:
        first = client.publish("orders", {"order_id": "ex-1", "symbol": "EX-A", "qty": 100})
        client.publish("orders", {"order_id": "ex-2", "symbol": "EX-B", "qty": 5})
        for _burst in range(2):
            client.publish("quotes", [{"symbol": name, "bid": bid} for name, bid in QUOTES])
            time.sleep(2 * INTERVAL_S)  # so that the bursts are in different windows
    return int(first) - 1


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server")
    url = parser.parse_args().url
    start = publish(url)
    spark = session("example")

    print("1. The records as they stand, as columns.")
    orders = (
        spark.read.format("sow")
        .options(url=url, topic="orders", filter="/order_id LIKE '^ex-'")
        .schema("order_id string, symbol string, qty long, _ts timestamp")
        .load()
    )
    orders.orderBy("order_id").show(truncate=False)

    print("2. The log as a stream: each change of the quotes, counted by symbol.")
    changes = (
        spark.readStream.format("sow")
        .options(url=url, topic="quotes", startingBookmark=str(start))
        .schema("symbol string, bid double, _ts timestamp")
        .load()
    )
    query = (
        changes.groupBy("symbol")
        .count()
        .writeStream.format("memory")
        .queryName("changes")
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.table("changes").orderBy("symbol").show()

    print(f"3. The same changes, conflated: at most one of each symbol in {INTERVAL_S} s.")
    log = (
        spark.read.format("sow")
        .options(url=url, topic="quotes", startingBookmark=str(start))
        .schema("symbol string, bid double, _ts timestamp, _bookmark long")
        .load()
    )
    windows = conflate(log, "symbol", "_ts", f"{int(INTERVAL_S * 1000)}ms", order="_bookmark")
    windows.select("symbol", "bid", "window_start", "window_end").orderBy("_bookmark").show(
        truncate=False
    )

    print("4. The last bid of each symbol, merged into the orders: one batch, applied once.")
    last = windows.groupBy("symbol").agg(max_by("bid", "_bookmark").alias("price"))
    orders.join(last, "symbol").select("order_id", "price").write.format("sow").options(
        url=url, topic="orders", mode="delta"
    ).mode("append").save()
    with Client(url) as client:
        for record in client.query("orders", filter="/order_id LIKE '^ex-'").records:
            print(record)
    spark.stop()


if __name__ == "__main__":
    main()
