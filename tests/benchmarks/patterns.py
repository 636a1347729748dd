"""Pattern topics: what a server grows by for each topic that a pattern makes, a record in each.

Once by itself, and once with a conflated topic on the pattern that a client follows, so that each
topic has a copy and each copy a follower. The floor is the bytes of the record alone.
"""

import time
from collections.abc import Iterator

import orjson

from tests.benchmarks.measure import Figure
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.readers import Readers
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import Client, frame

FRAME = 100
WINDOW = 8
SETTLED_S = 3.0
"""After so long every copy has let its record go: three times the interval."""
COPIES = """<ConflatedTopic><UnderlyingTopic>desks</UnderlyingTopic><MessageType>json</MessageType>
<Interval>1s</Interval><TopicFormat>%n-C</TopicFormat></ConflatedTopic>"""
FOLLOW = '{"c":"subscribe","t":"^/desk/.*-C$","cid":"1"}'


def patterns(sizes: Sizes) -> Iterator[Figure]:
    """The memory of a topic."""
    yield _held(sizes.pattern_topics, "", followed=False)
    yield _held(sizes.pattern_topics, COPIES, followed=True)


def configuration(copies: str) -> str:
    """The XML of a server with one pattern, and what else belongs to it."""
    return f"""<SOWConfig><Name>bench</Name><SOW><Topic><Name>desks</Name>
<MessageType>json</MessageType><Key>/id</Key><Pattern>^/desk/[0-9]+$</Pattern></Topic>{copies}
</SOW></SOWConfig>"""


def _held(count: int, copies: str, followed: bool) -> Figure:
    with ServerProcess(configuration(copies)) as server:
        readers = [Readers(server.host, server.port, 1, FOLLOW)] if followed else []
        for one in readers:
            one.ready()
        before = server.memory_bytes
        start_s = server.cpu_s
        bodies = published(server, count)
        taken_us = (server.cpu_s - start_s) * 1e6 / count
        if followed:
            time.sleep(SETTLED_S)
        each = (server.memory_bytes - before) / count
        for one in readers:
            one.check()
            one.end()
    case = f"{count} topics" + (", each with a copy that is followed" if followed else "")
    note = f"{taken_us:.0f} µs of the server's processor time each"
    return Figure("patterns", case, "B/topic", [each], [bodies / count], "raw bytes", note=note)


def published(server: ServerProcess, count: int) -> int:
    """Make so many topics by a message to each; returns how many bytes these have."""
    body = {"id": 1, "px": 101.25, "text": "the only record of its topic"}
    frames = []
    for start in range(0, count, FRAME):
        lines = [
            {"c": "publish", "t": f"/desk/{at}", "d": body}
            for at in range(start, min(start + FRAME, count))
        ]
        lines[-1] |= {"cid": "1", "a": "persisted"}
        frames.append(frame(b"\n".join(map(orjson.dumps, lines))))
    client = Client(server.host, server.port)
    client.publish(frames, WINDOW)
    client.close()
    return count * len(orjson.dumps(body))
