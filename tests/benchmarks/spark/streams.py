"""Streams: a topic's log through Spark into another topic, conflated on the way.

*Capacity* is how many rows a second go through while there are more, batch after batch; the rows
have times as if ten of each key had come every second. *Duty* is which part of its
time a stream that is triggered every second is at work while rows come in at a steady rate; above
one it falls behind. The first batches, in which Spark warms up, do not count.

The floor is the same stream without conflation: what Spark takes for reading, writing and its own
book-keeping. (It has more to write.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conflated_topics.spark import conflate
from tests.benchmarks.followers import Load, Scene
from tests.benchmarks.measure import Figure, in_turn
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.spark.sizes import Sizes
from tests.benchmarks.spark.transfers import save

XML = """<SOWConfig><Name>bench</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/order/id</Key></Topic>
<Topic><Name>loud</Name><MessageType>json</MessageType><Key>/order/id</Key></Topic>
</SOW></SOWConfig>"""
BATCHES = {"batches of a second": 1, "batches of two seconds": 2}
ROWS_A_KEY_AND_SECOND = 10
ROWS_AT_ONCE = 500_000
WARM_UP_BATCHES = 2
PASS_THROUGH = "not conflated"


def streams(spark: Any, sizes: Sizes) -> Iterator[Figure]:
    """Capacity, and duty beside a live feed."""
    with ServerProcess(XML) as server:
        url = f"http://{server.host}:{server.port}"
        _fill(spark, sizes, url)
        for case, seconds in BATCHES.items():
            yield from _capacity(spark, sizes, url, case, seconds)
    yield from _live(spark, sizes)


def _fill(spark: Any, sizes: Sizes, url: str) -> None:
    for start in range(0, sizes.stream_rows, ROWS_AT_ONCE):
        rows = spark.range(start, min(start + ROWS_AT_ONCE, sizes.stream_rows)).selectExpr(
            f"named_struct('id', pmod(xxhash64(id), {sizes.keys})) order",
            "round(pmod(hash(id, 1), 1000000) / 1000D, 3) px",
            "cast(pmod(hash(id, 2), 1000) as int) qty",
            "'a note of some length' note",
        )
        save(rows.selectExpr("to_json(struct(*)) value"), "sow", url=url, topic="orders")


def _capacity(spark: Any, sizes: Sizes, url: str, case: str, seconds: int) -> Iterator[Figure]:
    a_second = ROWS_A_KEY_AND_SECOND * sizes.keys
    time = f"timestamp_micros(bookmark * 1000000 div {a_second})"

    def rate(conflated: bool) -> float:
        with running(spark, url, conflated, "0", seconds * a_second, time) as query:
            query.awaitTermination()
            done = query.recentProgress
        assert sum(batch["numInputRows"] for batch in done) == sizes.stream_rows
        counted = [batch for batch in done if batch["numInputRows"]][WARM_UP_BATCHES:]
        return sum(batch["numInputRows"] for batch in counted) / _busy_s(counted)

    ours, floor = in_turn(sizes.repetitions, lambda: rate(True), lambda: rate(False))
    yield Figure(
        "Spark conflates a stream, capacity",
        case,
        "rows/s",
        ours,
        floor,
        PASS_THROUGH,
    )


def _live(spark: Any, sizes: Sizes) -> Iterator[Figure]:
    late: list[float] = []

    def duty(conflated: bool) -> float:
        with ServerProcess(XML) as server:
            url = f"http://{server.host}:{server.port}"
            load = Load(
                server.host, server.port, Scene("live", 0, sizes.live_rate, sizes.keys, 1000)
            )
            try:
                with running(spark, url, conflated, "now", None, "ts") as query:
                    load.run(sizes.live_s / 2)
                    before = len(query.recentProgress)
                    seconds, counted = 0.0, []
                    while not counted:
                        # On a busy machine no batch may have ended by now.
                        load.run(sizes.live_s)
                        seconds += sizes.live_s
                        counted = query.recentProgress[before:]
                    query.processAllAvailable()
            finally:
                load.close()
        late.append(max(batch["numInputRows"] for batch in counted) / sizes.live_rate)
        return _busy_s(counted) / seconds

    ours, floor = in_turn(max(1, sizes.repetitions // 2), lambda: duty(True), lambda: duty(False))
    yield Figure(
        "Spark conflates a stream, live",
        "every second",
        "of its time",
        ours,
        floor,
        PASS_THROUGH,
        note=f"the largest batch held {max(late):.1f} s",
    )


def _busy_s(batches: list[Any]) -> float:
    return sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000


@contextmanager
def running(
    spark: Any, url: str, conflated: bool, start: str, rows_max: int | None, time: str
) -> Iterator[Any]:
    """A stream from `orders` to `loud`: all that is there where batches are bounded, else live."""
    options = {"url": url, "topic": "orders", "startingBookmark": start}
    if rows_max is not None:
        options["maxRowsPerTrigger"] = str(rows_max)
    frame = spark.readStream.format("sow").options(**options).load()
    if conflated:
        timed = frame.selectExpr("bookmark", "key", f"{time} ts", "value")
        frame = conflate(timed, ["key"], "ts", "1s", order="bookmark")
    with TemporaryDirectory(prefix="sow-bench-") as checkpoint:
        writer = (
            frame.select("value")
            .writeStream.format("sow")
            .options(url=url, topic="loud", checkpointLocation=str(Path(checkpoint)))
        )
        live = {"processingTime": "1 second"} if rows_max is None else {"availableNow": True}
        query = writer.trigger(**live).start()
        try:
            yield query
        finally:
            query.stop()
