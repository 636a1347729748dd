"""A DataFrame as Spark describes it, without a session: enough for what is checked beforehand."""

from types import SimpleNamespace


class Frame:
    """Columns as `"key string, ts timestamp"`; `NOT NULL` may follow. Nothing can be computed."""

    def __init__(self, columns, streams=False, conf=()):
        from pyspark.sql import types

        kinds = {
            "string": types.StringType(),
            "timestamp": types.TimestampType(),
            "bigint": types.LongType(),
            "double": types.DoubleType(),
        }
        self.schema = types.StructType()
        for column in columns.split(", "):
            name, kind, *not_null = column.split()
            self.schema.add(name, kinds[kind], not not_null)
        self.columns = self.schema.names
        self.isStreaming = streams
        settings = {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "3",
            **dict(conf),
        }
        self.sparkSession = SimpleNamespace(conf=SimpleNamespace(get=settings.__getitem__))
