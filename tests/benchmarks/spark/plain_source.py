"""Data sources of the plain server: the least that a Python data source can do, in two ways.

`plain` carries Arrow batches between Spark and HTTP and does nothing else: the floor of ours.
`plain_rows` does as most data sources do, one Python object for each row: what ours is not.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from sow.spark.columns import SPARK_ROW

ROWS_OF_A_REQUEST = 50_000
TIMEOUT_S = 60


class Part(InputPartition):
    """One file."""

    def __init__(self, name: str) -> None:
        self.name = name


class Reader(DataSourceReader):
    """Reads each file in a task of its own."""

    def __init__(self, options: dict[str, str], suffix: str) -> None:
        self.url = options["url"]
        self.names = [f"{part}.{suffix}" for part in range(int(options["parts"]))]

    def partitions(self) -> Sequence[InputPartition]:
        return [Part(name) for name in self.names]

    def content(self, partition: InputPartition) -> bytes:
        assert isinstance(partition, Part)
        with urlopen(f"{self.url}/{partition.name}", timeout=TIMEOUT_S) as answer:
            found: bytes = answer.read()
        return found


class ArrowReader(Reader):
    """Hands on what came."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(pa.ipc.open_stream(self.content(partition)))


class RowReader(Reader):
    """Parses lines into tuples."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for line in self.content(partition).splitlines():
            yield tuple(json.loads(line))


def post(url: str, content: bytes) -> None:
    with urlopen(Request(url, content, method="POST"), timeout=TIMEOUT_S) as answer:
        answer.read()


class ArrowWriter(DataSourceArrowWriter):
    """Posts the batches as they are, some in each request."""

    def __init__(self, options: dict[str, str]) -> None:
        self.url = options["url"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        waiting: list[pa.RecordBatch] = []
        for batch in iterator:
            waiting.append(batch)
            if sum(map(len, waiting)) >= ROWS_OF_A_REQUEST:
                self._send(waiting)
                waiting = []
        if waiting:
            self._send(waiting)
        return WriterCommitMessage()

    def _send(self, batches: Iterable[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        post(self.url, sink.getvalue().to_pybytes())


class RowWriter(DataSourceWriter):
    """Posts each row as a line of JSON, some in each request."""

    def __init__(self, options: dict[str, str]) -> None:
        self.url = options["url"]

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        waiting: list[str] = []
        for row in iterator:
            waiting.append(json.dumps(row.asDict()))
            if len(waiting) >= ROWS_OF_A_REQUEST:
                post(self.url, "\n".join(waiting).encode())
                waiting = []
        post(self.url, "\n".join(waiting).encode())
        return WriterCommitMessage()


class Plain(DataSource):
    """`format("plain")`."""

    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return SPARK_ROW

    def reader(self, schema: object) -> DataSourceReader:
        return ArrowReader(dict(self.options), "arrow")

    def writer(self, schema: object, overwrite: bool) -> DataSourceWriter:
        return ArrowWriter(dict(self.options))


class PlainRows(DataSource):
    """`format("plain_rows")`."""

    @classmethod
    def name(cls) -> str:
        return "plain_rows"

    def schema(self) -> str:
        return "bookmark long, topic string, key string, op string, value string"

    def reader(self, schema: object) -> DataSourceReader:
        return RowReader(dict(self.options), "ndjson")

    def writer(self, schema: object, overwrite: bool) -> DataSourceWriter:
        return RowWriter(dict(self.options))
