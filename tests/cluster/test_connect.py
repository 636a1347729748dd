"""The same over Spark Connect: a client that has neither a JVM nor a SparkContext.

The client is a process of its own, since one process is either Spark's driver or Connect's client.
"""

import json
import subprocess
import sys

import pytest

from tests.cluster.daemons import ROOT, connect_server

pytestmark = [pytest.mark.spark, pytest.mark.edge]

ROWS = 1_000
CLIENT_S_MAX = 900
"""A safety net: a minute on a quiet machine, many times as long beside others."""
CLIENT = """
import json, sys
from conflated_topics.spark import asof_join
from sow.spark import session

address, url, rows, start, checkpoint = sys.argv[1:]
spark = session(master=address)
options = {"url": url, "topic": "orders"}
found = spark.range(int(rows)).selectExpr("id", "id * 2 twice")
found.write.format("sow").options(**options).mode("append").save()
log = spark.readStream.format("sow").options(**options, startingBookmark=start).load()
sink = log.select("value", "op").writeStream.format("sow").options(url=url, topic="loud")
query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
typed = spark.read.format("sow").options(**options).schema("id long, twice long, _bookmark long")
row = typed.load().where("twice = 2 * id").selectExpr(
    "count(*) rows", "count(distinct _bookmark) bookmarks"
).first()
log = spark.read.format("sow").options(**options, startingBookmark=start).load()
# Both sides are of one frame, and have its columns of keys and time.
states = log.select("key", "ts", "bookmark", "value")
joined = asof_join(log.selectExpr("key", "ts", "op what"), states, "key", "ts", "5s")
own = joined.where("bookmark is not null and value is not null and what = 'publish'").count()
print(json.dumps({
    "kind": type(spark).__module__, "rows": row.rows, "bookmarks": row.bookmarks, "joined": own,
}))
"""


def test_a_connect_session_writes_streams_and_reads(server, python, tmp_path):
    server.clear()
    start = server.get("/v1/log/extent").json["newest"]
    with connect_server(tmp_path, python) as connect:
        port = connect.said(r"Spark Connect server started at: \S*:(\d+)")
        address, checkpoint = f"sc://127.0.0.1:{port}", str(tmp_path / "checkpoint")
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, address, server.url, str(ROWS), str(start), checkpoint],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=CLIENT_S_MAX,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == {
        "kind": "pyspark.sql.connect.session",
        "rows": ROWS,
        "bookmarks": ROWS,
        "joined": ROWS,
    }
    extent = server.get(f"/v1/log/extent?topics=orders&from={start}").json
    assert extent["rows"] == ROWS
    assert {row["id"] for row in server.records("loud")} == set(range(ROWS))
