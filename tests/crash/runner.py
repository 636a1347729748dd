"""A server to be killed: ``python -m tests.crash.runner DATA GROWTH_BYTES PORT``.

Serves the topics of the crash tests on a port (0: a free one) and says its address. Checkpoints
are written after `GROWTH_BYTES` of messages, so that kills fall into them too.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from sow.server import app, checkpointer
from sow.topics import Configuration, ConflatedTopic, Topic

CONFIGURATION = Configuration(
    "crash",
    (
        Topic("orders", "json", keys=("/id",), hash_indexes=(("/batch",),)),
        Topic("trades", "json", keys=("/id",)),
        ConflatedTopic("orders-C", "json", "orders", interval_us=100_000),
    ),
)


async def serve(data, growth_bytes, port):
    checkpointer.GROWTH_BYTES_MIN = growth_bytes
    checkpointer.CHECK_S = 0.02
    app.Checkpointer.__init__.__defaults__ = (0, growth_bytes)
    server = app.Server(replace(CONFIGURATION, port=port), Path(data))
    print(await server.start(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
