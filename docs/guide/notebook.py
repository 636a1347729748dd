"""A notebook of Spark and SOW: each cell begins with `# %%`, as editors and Jupyter read them.

Start a server with `sow serve --topic orders:/id`. docs/guide/spark.md explains the calls; a test
runs the cells as they stand.
"""

# %%
from conflated_topics.spark import conflate
from sow.client.sync import Client
from sow.spark import session

URL = "http://127.0.0.1:8080"
spark = session("notebook")

with Client(URL) as client:
    before = client.publish("orders", {"id": 0, "sym": "OLD", "px": 1.0})
    client.publish("orders", [{"id": 1, "sym": "A", "px": 10.0}, {"id": 2, "sym": "B", "px": 20.0}])
    client.publish("orders", {"id": 1, "sym": "A", "px": 10.5})
    client.publish("orders", {"id": 3, "sym": "A", "px": 11.0})
    client.delete("orders", filter="/id = 0")

# %% [markdown]
# ## Records
# Without a schema a row is what the server knows of a record: its bookmark, topic, SowKey,
# operation and time, and its body as text. With a schema the columns are fields of the body;
# names that begin with an underscore are those of the row. A filter of the server's leaves rows
# out there.


# %%
def orders(**options):
    """A read of the topic."""
    return spark.read.format("sow").options(url=URL, topic="orders", **options)


rows = orders().load()
assert rows.columns == ["bookmark", "topic", "key", "op", "ts", "value"]
rows.show(truncate=False)
typed = orders().schema("id long, sym string, px double, _bookmark long").load()
found = typed.orderBy("id").collect()
assert [(row.id, row.px) for row in found] == [(1, 10.5), (2, 20.0), (3, 11.0)]
assert orders(filter="/sym = 'A' AND /px > 10.7").load().count() == 1

# %% [markdown]
# A DataFrame is one moment. Later publishes are in the next one.

# %%
moment = orders(columns="value").load()
assert moment.count() == 3
with Client(URL) as client:
    client.publish("orders", {"id": 4, "sym": "C", "px": 5.0})
assert moment.count() == 3
assert orders().load().count() == 4

# %% [markdown]
# ## The log, conflated, and as a stream
# With `startingBookmark` the rows are changes, deletes included. `asOf` reads the records as of a
# bookmark or a time. `conflate` keeps at most one row of each key in an interval, with the window
# that it stands for; `delete` names the column that is true for deletes. `availableNow` reads it
# as a stream to its present end.

# %%
log = orders(startingBookmark=before).load()
happened = [row.op for row in log.orderBy("bookmark").collect()]
assert happened == ["publish"] * 4 + ["delete", "publish"]
assert orders(asOf=before, columns="value").load().first().value == '{"id":0,"sym":"OLD","px":1.0}'

changes = log.selectExpr("*", "op <> 'publish' AS gone")
windows = conflate(changes, "key", "ts", "1h", delete="gone")
assert windows.where("NOT gone").select("value", "window_start", "window_end").count() == 4

stream = (
    spark.readStream.format("sow")
    .options(url=URL, topic="orders", startingBookmark=before, maxRowsPerTrigger="4")
    .schema("id long, sym string, px double")
    .load()
)
query = stream.writeStream.format("memory").queryName("changes").trigger(availableNow=True).start()
query.awaitTermination()
assert [row.id for row in spark.table("changes").collect()] == [1, 2, 1, 3, 4]

# %% [markdown]
# ## Writing
# Each row becomes a document. `delta` merges it into its record, without its nulls. A batch with
# a writer and an epoch is applied once, however often it is written; another one under its epoch
# is refused. A row whose `op` is `delete` is a delete.


# %%
def save(frame, **options):
    """Write a frame into the topic."""
    frame.write.format("sow").options(url=URL, topic="orders", **options).mode("append").save()


save(typed.selectExpr("id", "round(px * 1.1, 2) AS limit"), mode="delta")
for _ in range(2):
    save(spark.sql("SELECT 9 AS id, 'once' AS sym"), writer="notebook", epoch="1")
with Client(URL) as client:
    two = {"id": 2, "sym": "B", "px": 20.0, "limit": 22.0}
    assert client.query("orders", filter="/id = 2").records == [two]
    assert client.query("orders", filter="/id = 9").records == [{"id": 9, "sym": "once"}]
save(spark.sql("SELECT 9 AS id, 'delete' AS op"))
assert orders(filter="/id = 9").load().count() == 0
