"""The Python client's own publisher against the same server, since that is what users run."""

import asyncio
from collections.abc import Iterator, Sequence

from sow.client import Client
from tests.benchmarks.ingest import FLOOR, decoding
from tests.benchmarks.measure import Figure, in_turn
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import configuration, every_order, framed, parts, updates
from tests.benchmarks.sizes import Sizes

FRAME = 100


def client_publisher(sizes: Sizes) -> Iterator[Figure]:
    """`sow.client` publishing frames of 100, each acknowledged once durable."""
    bodies = updates(sizes.messages, sizes.keys)
    with ServerProcess(configuration(index=True)) as server:
        url = f"http://{server.host}:{server.port}"
        asyncio.run(_publish(url, every_order(sizes.keys)))
        ours, floor = in_turn(
            sizes.repetitions,
            lambda: len(bodies) / asyncio.run(_publish(url, bodies)),
            decoding(framed(bodies, FRAME)),
        )
    yield Figure(
        "ingest by sow.client", "frames of 100, hash index", "messages/s", ours, floor, FLOOR
    )


async def _publish(url: str, bodies: Sequence[bytes]) -> float:
    """How many seconds it took."""
    async with Client(url) as client, await client.publisher("orders") as publisher:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        for part in parts(bodies, FRAME):
            await publisher.send(part)
        await publisher.drain()
        return loop.time() - start_s
