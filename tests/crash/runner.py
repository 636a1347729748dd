"""A server to be killed: ``python -m tests.crash.runner DATA [GROWTH_BYTES]``.

Serves the topics of the crash tests on a free port and says its address. Checkpoints are written
after `GROWTH_BYTES` of messages, so that kills fall into them too.
"""

import asyncio
import sys
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
    port=0,
)


async def serve(data, growth_bytes):
    checkpointer.GROWTH_BYTES_MIN = growth_bytes
    checkpointer.CHECK_S = 0.02
    app.Checkpointer.__init__.__defaults__ = (0, growth_bytes)
    server = app.Server(CONFIGURATION, Path(data))
    print(await server.start(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
