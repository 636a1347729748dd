"""What is published: JSON orders of about 220 bytes and 11 leaf fields, keyed by /order/id.

Always the same for the same numbers. A record's symbol, one of 5000, is drawn anew each time, so
that an index on it has to move almost every record on every pass.
"""

from collections.abc import Iterator, Sequence
from random import Random

import orjson

SYMBOLS = 5000
REGIONS = "ABCDEFGH"
ACCOUNTS = 1000
PRICE_MAX = 1000.0

HASH_INDEX = "<HashIndex><Key>/symbol</Key></HashIndex>"
CONFLATED = """<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval></ConflatedTopic>"""


def record(key: int, draw: Random) -> bytes:
    """The next state of one order."""
    document = {
        "order": {"id": key},
        "symbol": f"S{draw.randrange(SYMBOLS)}",
        "px": round(draw.random() * PRICE_MAX, 3),
        "qty": draw.randrange(1000),
        "region": REGIONS[draw.randrange(len(REGIONS))],
        "side": "buy" if draw.random() < 0.5 else "sell",
        "status": "partially filled",
        "acct": f"acct-{key % ACCOUNTS}",
        "ccy": "EUR",
        "note": "some text to bring the record to its usual length",
        "ts": 1731000000000000 + draw.randrange(10**9),
    }
    # Copied: what orjson hands out stands 4 KiB apart in memory, as nothing from a socket does.
    return bytes(memoryview(orjson.dumps(document)))


def updates(count: int, keys: int, seed: int = 1) -> list[bytes]:
    """`count` updates of orders drawn from `keys`."""
    draw = Random(seed)
    return [record(draw.randrange(keys), draw) for _ in range(count)]


def every_order(keys: int, seed: int = 2) -> list[bytes]:
    """Each of `keys` orders once, in order of its key."""
    draw = Random(seed)
    return [record(key, draw) for key in range(keys)]


def framed(bodies: Sequence[bytes], size: int) -> list[bytes]:
    """Bodies in lines, `size` to a frame."""
    return [b"\n".join(part) for part in parts(bodies, size)]


def parts(bodies: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """Bodies in runs of `size`."""
    for start in range(0, len(bodies), size):
        yield bodies[start : start + size]


def configuration(index: bool = False, conflated: bool = False, durable: bool = True) -> str:
    """The XML of a server with one topic `orders`, and `orders-C` when `conflated`."""
    durability = "persistent" if durable else "transient"
    return f"""<SOWConfig><Name>bench</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/order/id</Key>
<Durability>{durability}</Durability>{HASH_INDEX * index}</Topic>{CONFLATED * conflated}
</SOW></SOWConfig>"""
