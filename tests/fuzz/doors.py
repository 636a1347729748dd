"""Doors without sockets: frames, filters and configuration files, many thousand a second."""

import json
import random

from sow.config import loads
from sow.errors import ClientError
from sow.expressions import compile_filter
from tests.fuzz.inputs import EVIL, WORDS
from tests.laws.harness import ORDERS, SLOW, World

TEXT_MAX = 1_000
LINES = [
    json.dumps(line).encode()
    for line in (
        {"c": "logon", "cid": "1", "client": "me"},
        {"c": "publish", "t": "orders", "d": {"id": 1, "symbol": "A"}, "cid": "2"},
        {"c": "delta_publish", "t": "orders", "d": {"id": 1, "v": [1]}, "a": "persisted"},
        {"c": "sow", "t": "orders", "filter": "/id > 1", "order_by": "/id DESC", "top_n": 2},
        {"c": "sow_and_subscribe", "t": "orders", "opts": "oof,conflation=1s,select=[/id]"},
        {"c": "subscribe", "t": "orders.*", "bm": "0", "s": "x", "cid": "3"},
        {"c": "sow_and_delta_subscribe", "t": "orders-C", "filter": "/symbol LIKE 'A'"},
        {"c": "sow_delete", "t": "orders", "keys": "1,2", "cid": "4"},
        {"c": "sow_delete", "t": "orders", "filter": "/id IN (1, 2)", "cid": "4"},
        {"c": "unsubscribe", "s": "x"},
        {"c": "flush", "cid": "5"},
        {"c": "heartbeat"},
    )
]
BATCH = b'{"c":"publish","t":"orders","n":2,"cid":"6"}\n{"id":1}\n{"id":2}'
FILE = b"""<?xml version="1.0"?><SOWConfig><Name>x</Name><Listen>127.0.0.1:0</Listen>
<TransactionLog><RetentionSize>1GB</RetentionSize></TransactionLog><Limits><FrameSize>64MB</FrameSize>
</Limits><SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><Index>/a</Index>
<HashIndex><Key>/b</Key></HashIndex></Topic><ConflatedTopic><Name>slow</Name>
<MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval>
<Filter>/a = 1</Filter></ConflatedTopic>
</SOW></SOWConfig>"""


def edited(rng: random.Random, data: bytes) -> bytes:
    """The same after up to four edits."""
    for _ in range(rng.randrange(5)):
        at = rng.randrange(len(data) + 1)
        put = rng.choice((rng.choice(EVIL), rng.randbytes(2), data[:at][-9:], b""))
        data = data[:at] + put + data[at + rng.choice((0, 0, 1, 2, 10)) :]
    return data


class FrameDoor:
    """A session: every frame is answered in lines, and the next publish is acknowledged."""

    def __init__(self) -> None:
        self._world = World(ORDERS, SLOW)

    def input(self, rng: random.Random) -> bytes:
        """The next frame."""
        lines = [*rng.choices(LINES, k=rng.randrange(1, 4)), *rng.choices((BATCH, b""), k=1)]
        return edited(rng, b"\n".join(lines))

    def knock(self, data: bytes) -> bool:
        """Whether nothing of it is refused."""
        client = self._world.client()
        answers = client.send(data)
        refused = [line for line in answers if line.get("status") == "failure"]
        assert all(len(line["detail"]) < TEXT_MAX for line in refused)
        (ack,) = client.say(c="flush", cid="last")[-1:]
        assert (ack["cid"], ack["status"]) == ("last", "success")
        self._world.executor.sessions.close(client.session)
        self._world.settle()
        return not refused


class FilterDoor:
    """A filter compiles, or is refused with a place within it."""

    def input(self, rng: random.Random) -> bytes:
        """The next text."""
        words = " ".join(rng.choices(WORDS, k=rng.randrange(12)))
        return edited(rng, words.encode())

    def knock(self, data: bytes) -> bool:
        """Whether it compiles."""
        text, refusal = data.decode(errors="replace"), None
        try:
            compile_filter(text)
        except ClientError as error:
            refusal = error
        if refusal is None:
            return True
        assert 0 <= (refusal.position or 0) <= len(text)
        assert len(refusal.detail) < TEXT_MAX
        return False


class ConfigurationDoor:
    """A configuration file is read, or answered with findings that have lines."""

    def input(self, rng: random.Random) -> bytes:
        """The next file."""
        return edited(rng, FILE)

    def knock(self, data: bytes) -> bool:
        """Whether it can be run."""
        loaded = loads(data)
        assert (loaded.configuration is None) == bool(loaded.errors)
        assert all(finding.line > 0 for finding in loaded.findings)
        return loaded.configuration is not None
