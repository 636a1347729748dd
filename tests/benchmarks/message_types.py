"""Message types: how fast keys are read, of messages that arrive and of those that are stored.

A message has ten fields, of which the key is wanted. What arrives is checked whole; of what is
stored only the key is read, where the type allows it. The floor is the least that somebody who
reads such bytes has to do: what the library does that knows the format, asked for the key alone
where it can be, or the bytes cut at the separator.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.parsers import expat

import bson
import msgspec

from sow.core.definitions import MessageTypeOptions, RecordField
from sow.core.paths import parse_path
from sow.messages import message_type
from tests.benchmarks.measure import Figure, Measure, cpu_seconds, in_turn
from tests.benchmarks.sizes import Sizes

BATCH = 100
"""Messages of a frame, which are read together."""
NAMES = ("id", "symbol", "side", "px", "qty", "venue", "acct", "state", "note", "trader")


def _plain(*names: str) -> tuple[MessageTypeOptions, ...]:
    return tuple(MessageTypeOptions(name, name) for name in names)


MESSAGE_TYPES = {
    "record": MessageTypeOptions(
        "record", "record", b"\x02", fields=tuple(RecordField(name) for name in NAMES)
    ),
    "composite-local": MessageTypeOptions(
        "composite-local", "composite-local", parts=_plain("json", "binary")
    ),
    "composite-global": MessageTypeOptions(
        "composite-global", "composite-global", parts=_plain("json", "nvfix")
    ),
}


class OnlyKey(msgspec.Struct):
    """A message of which nothing else is read."""

    id: Any


def _expat(body: bytes) -> object:
    return expat.ParserCreate("utf-8").Parse(body, True)


Floor = Callable[[bytes], object]
_OF_JSON: Floor = msgspec.json.Decoder(OnlyKey).decode
FLOORS: dict[str, tuple[str, Floor]] = {
    "json": ("msgspec, the key alone", _OF_JSON),
    "msgpack": ("msgspec, the key alone", msgspec.msgpack.Decoder(OnlyKey).decode),
    "bson": ("pymongo's decode", bson.decode),
    "xml": ("expat, nothing kept", _expat),
    "nvfix": ("cut at the separator", lambda body: body.split(b"\x01")),
    "fix": ("cut at the separator", lambda body: body.split(b"\x01")),
    "record": ("cut at the separator", lambda body: body.split(b"\x02")),
    "bflat": ("a copy of the bytes", bytearray),
    "composite-local": ("msgspec, the key alone", lambda body: _OF_JSON(_first_part(body))),
    "composite-global": ("msgspec, the key alone", lambda body: _OF_JSON(_first_part(body))),
}


def _first_part(body: bytes) -> bytes:
    return body[4 : 4 + int.from_bytes(body[:4], "big")]


def message_types(sizes: Sizes) -> Iterator[Figure]:
    """Megabytes a second of processor time: arriving, and stored."""
    count = max(BATCH, sizes.messages // 10 // BATCH * BATCH)
    for name, (floor_name, floor) in FLOORS.items():
        kind, path = message_type(name, MESSAGE_TYPES), parse_path(_key_of(name))
        decoder = kind.decoder((path,))
        bodies = [kind.encode(_document(name, at)) for at in range(count)]
        (keys,) = decoder.columns(bodies[:BATCH])
        assert keys == [f"o-{at:07}" for at in range(BATCH)], name
        batches = [bodies[start : start + BATCH] for start in range(0, count, BATCH)]
        megabytes = sum(map(len, bodies)) / 1e6
        arriving, stored, least = in_turn(
            sizes.repetitions,
            _rate(megabytes, decoder.read, batches),
            _rate(megabytes, decoder.columns, batches),
            _rate(megabytes, lambda batch, floor=floor: list(map(floor, batch)), batches),
        )
        yield Figure("message types", f"{name}, arriving", "MB/s", arriving, least, floor_name)
        yield Figure("message types", f"{name}, stored", "MB/s", stored, least, floor_name)


def _rate(
    megabytes: float, read: Callable[[Sequence[bytes]], object], batches: list[list[bytes]]
) -> Measure:
    def work() -> None:
        for batch in batches:
            read(batch)

    return lambda: megabytes / cpu_seconds(work)


def _key_of(name: str) -> str:
    return {"xml": "/order/id", "fix": "/id", "composite-local": "/0/id"}.get(name, "/id")


def _document(name: str, at: int) -> dict[str, Any]:
    values = (
        f"o-{at:07}",
        "ACME",
        "buy",
        "101.25",
        "1500",
        "XLON",
        "acct-17",
        "open",
        "none",
        "me",
    )
    fields = dict(zip(NAMES, values, strict=True))
    if name == "xml":
        return {"order": fields}
    if name == "composite-local":
        return {"0": fields, "1": ""}
    return fields
