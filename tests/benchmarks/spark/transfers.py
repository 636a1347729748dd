"""Transfers: a topic read into a DataFrame, and a DataFrame written into a topic.

The floor is the same rows in Arrow between Spark and a server that does nothing with them; the
other comparison is a data source that handles each row by itself, on fewer rows.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from sow.spark.http import SowServer
from sow.spark.rows import part_of_snapshot
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.processes import Child, ServerProcess
from tests.benchmarks.spark.plain_source import Plain, PlainRows
from tests.benchmarks.spark.sizes import Sizes

XML = """<SOWConfig><Name>bench</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
</SOW></SOWConfig>"""
TYPED = "id long, symbol string, px double, qty int, note string"
PARTS = 4
PLAIN, ONE_BY_ONE = "the same in Arrow, a server that does nothing", "row by row in Python"


def orders(spark: Any, rows: int) -> Any:
    """Orders of about a hundred bytes as JSON."""
    return spark.range(0, rows, 1, PARTS).selectExpr(
        "id",
        "concat('S', pmod(hash(id), 5000)) symbol",
        "round(pmod(hash(id, 1), 1000000) / 1000D, 3) px",
        "cast(pmod(hash(id, 2), 1000) as int) qty",
        "'a note of some length' note",
    )


def transfers(spark: Any, sizes: Sizes) -> Iterator[Figure]:
    """Reads and writes, as they are and in typed columns."""
    spark.dataSource.register(Plain)
    spark.dataSource.register(PlainRows)
    typed = orders(spark, sizes.rows).cache()
    raw = typed.selectExpr("to_json(struct(*)) value").cache()
    assert typed.count() == raw.count() == sizes.rows
    try:
        with ServerProcess(XML) as server:
            url = f"http://{server.host}:{server.port}"
            save(raw, "sow", url=url, topic="orders")
            with plain_server(url, sizes) as plain:
                yield from _reads(spark, sizes, server, url, plain)
                yield from _writes(sizes, server, url, plain, raw, typed)
    finally:
        raw.unpersist()
        typed.unpersist()


def _reads(
    spark: Any, sizes: Sizes, server: ServerProcess, url: str, plain: str
) -> Iterator[Figure]:
    def sow(schema: str | None = None) -> Any:
        reader = spark.read.format("sow").options(url=url, topic="orders", partitions=str(PARTS))
        return (reader.schema(schema) if schema else reader).load()

    def arrow() -> Any:
        return spark.read.format("plain").options(url=plain, parts=str(PARTS)).load()

    def tuples() -> Any:
        return spark.read.format("plain_rows").options(url=plain, parts=str(PARTS)).load()

    assert sow().count() == arrow().count() == sizes.rows
    assert tuples().count() == sizes.rows_one_by_one
    cpu_s: list[float] = []
    ours, in_columns, floor, rows = in_turn(
        sizes.repetitions,
        _spending(server, cpu_s, lambda: sizes.rows / seconds(lambda: consume(sow()))),
        lambda: sizes.rows / seconds(lambda: consume(sow(TYPED))),
        lambda: sizes.rows / seconds(lambda: consume(arrow())),
        lambda: sizes.rows_one_by_one / seconds(lambda: consume(tuples())),
    )
    cpu_us, name = _median_us(cpu_s, sizes.rows), "Spark reads a topic"
    yield Figure(name, "rows", "rows/s", ours, floor, PLAIN, cpu_us)
    yield Figure(name, "typed columns", "rows/s", in_columns, floor, PLAIN)
    yield Figure("Spark reads rows", "Arrow", "rows/s", ours, rows, ONE_BY_ONE)


def _writes(
    sizes: Sizes, server: ServerProcess, url: str, plain: str, raw: Any, typed: Any
) -> Iterator[Figure]:
    few = typed.limit(sizes.rows_one_by_one).repartition(PARTS).cache()
    assert few.count() == sizes.rows_one_by_one

    def rate(frame: Any, kind: str, rows: int, **options: str) -> float:
        return rows / seconds(lambda: save(frame, kind, **options))

    cpu_s: list[float] = []
    ours, in_columns, floor, typed_floor, rows = in_turn(
        sizes.repetitions,
        _spending(server, cpu_s, lambda: rate(raw, "sow", sizes.rows, url=url, topic="orders")),
        lambda: rate(typed, "sow", sizes.rows, url=url, topic="orders"),
        lambda: rate(raw, "plain", sizes.rows, url=plain),
        lambda: rate(typed, "plain", sizes.rows, url=plain),
        lambda: rate(few, "plain_rows", sizes.rows_one_by_one, url=plain),
    )
    few.unpersist()
    cpu_us, name = _median_us(cpu_s, sizes.rows), "Spark writes a topic"
    yield Figure(name, "documents", "rows/s", ours, floor, PLAIN, cpu_us)
    yield Figure(name, "typed columns", "rows/s", in_columns, typed_floor, PLAIN)
    name = "Spark writes rows"
    yield Figure(name, "documents", "rows/s", ours, rows, ONE_BY_ONE)
    yield Figure(name, "typed columns", "rows/s", in_columns, rows, ONE_BY_ONE)


def consume(frame: Any) -> None:
    """Read everything and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def save(frame: Any, kind: str, **options: str) -> None:
    """Write a DataFrame."""
    frame.write.format(kind).options(**options).mode("append").save()


def _spending(
    server: ServerProcess, spent_s: list[float], measure: Callable[[], float]
) -> Callable[[], float]:
    """The measure, noting what processor time the server takes meanwhile."""

    def measured() -> float:
        before_s = server.cpu_s
        found = measure()
        spent_s.append(server.cpu_s - before_s)
        return found

    return measured


def _median_us(spent_s: list[float], rows: int) -> float:
    return sorted(spent_s)[len(spent_s) // 2] / rows * 1e6


@contextmanager
def plain_server(url: str, sizes: Sizes) -> Iterator[str]:
    """The address of a server that hands out what the topic holds."""
    with TemporaryDirectory(prefix="sow-bench-") as name:
        _copy(SowServer(url), Path(name), sizes)
        with Child("-m", "tests.benchmarks.spark.plain_server", name) as process:
            yield f"http://127.0.0.1:{process.hear()}"


def _copy(server: SowServer, directory: Path, sizes: Sizes) -> None:
    taken = server.json("POST", "/v1/snapshots", topic="orders", parts=PARTS)
    for part in range(PARTS):
        table = pa.Table.from_batches(part_of_snapshot(server, taken["snapshot"], part))
        with pa.ipc.new_stream(directory / f"{part}.arrow", table.schema) as stream:
            stream.write_table(table)
        few = table.slice(0, sizes.rows_one_by_one // PARTS).drop_columns("ts").to_pylist()
        lines = "\n".join(json.dumps(list(row.values())) for row in few)
        (directory / f"{part}.ndjson").write_text(lines)
