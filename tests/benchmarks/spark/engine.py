"""A conflated topic whose engine is Spark: how long a change takes from its publisher to a client.

Each record is published once, and so is the whole of a window: its update is due a second later,
and what comes on top is Spark's, from batch to batch. The server runs Spark beside it, as it does
for a user; the session of the other benchmarks waits meanwhile. The floor is the same topic by the
server's own engine.
"""

import threading
import time
from collections.abc import Iterator
from itertools import count
from statistics import median
from typing import Any

from sow.client.sync import Client
from tests.benchmarks.measure import Figure, in_turn
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.spark.sizes import Sizes

BY_SPARK, BY_SERVER = "by-spark", "by-server"
COPY = """<ConflatedTopic><Name>{}</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval><Engine>{}</Engine></ConflatedTopic>
"""
XML = f"""<SOWConfig><Name>bench</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
{COPY.format(BY_SPARK, "spark")}{COPY.format(BY_SERVER, "embedded")}
</SOW></SOWConfig>"""
EVERY_S = 0.05
BEGINS_S_MAX = 900.0
"""A safety net: a Spark begins within half a minute on a quiet machine."""


def engine(_spark: Any, sizes: Sizes) -> Iterator[Figure]:
    """The median of a repetition, of records that come steadily."""
    with ServerProcess(XML) as server:
        ids = count()
        url = f"http://{server.host}:{server.port}"
        waited_s(url, BY_SPARK, ids, 1)

        def p50(topic: str) -> float:
            return median(waited_s(url, topic, ids, round(sizes.live_s / EVERY_S)))

        ours, floor = in_turn(sizes.repetitions, lambda: p50(BY_SPARK), lambda: p50(BY_SERVER))
    yield Figure(
        "Spark conflates a topic, latency",
        "1 s, p50",
        "s",
        ours,
        floor,
        "Engine embedded",
        note=f"a record every {EVERY_S * 1000:.0f} ms",
    )


def waited_s(url: str, topic: str, ids: Iterator[int], records: int) -> list[float]:
    """How long each of so many new records took to come out of a conflated topic."""
    sent_s: dict[int, float] = {}
    with Client(url) as reader, reader.subscribe(topic) as updates:

        def feed() -> None:
            with Client(url) as writer:
                for _ in range(records):
                    new = next(ids)
                    sent_s[new] = time.perf_counter()
                    writer.publish("orders", {"id": new})
                    time.sleep(EVERY_S)

        feeding = threading.Thread(target=feed, daemon=True)
        feeding.start()
        waited = []
        while len(waited) < records:
            new = updates.next(BEGINS_S_MAX).document()["id"]
            if new in sent_s:  # not one of the other topic's turn
                waited.append(time.perf_counter() - sent_s[new])
        feeding.join()
    return waited
