"""Message types: their table, and lookup by name.

A type is a class beside this file that implements `sow.messages.base.MessageType`, and one line in
`MESSAGE_TYPES`. A `<MessageType>` element of the configuration gives a built-in type another name
or other separators; its `Module` is the name in the table.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from conflated_topics.user_texts import nearest
from sow.core.definitions import MessageTypeOptions
from sow.core.paths import Path
from sow.errors import BadMessage, ClientError, NotAvailable
from sow.messages.base import Column, Decoder, MessageType
from sow.messages.bflat import BFlat
from sow.messages.composite import CompositeGlobal, CompositeLocal
from sow.messages.documents import Binary, Double, Int64, String
from sow.messages.json import Json, json_bodies, read_document
from sow.messages.msgpack import MsgPack
from sow.messages.separated import Fix, Record
from sow.messages.xml import Xml

__all__ = [
    "MESSAGE_TYPES",
    "MESSAGE_TYPES_REFUSED",
    "Column",
    "Decoder",
    "MessageType",
    "decoder_of",
    "decoders_of",
    "encoded",
    "line_bodies",
    "message_type",
]


def _bson(options: MessageTypeOptions) -> MessageType:
    # Loaded on first use: the library takes longer to load than the rest of this folder.
    from sow.messages.bson import Bson

    return Bson(options)


MESSAGE_TYPES: Mapping[str, Callable[[MessageTypeOptions], MessageType]] = {
    "json": Json,
    "nvfix": Fix,
    "fix": Fix,
    "xml": Xml,
    "bson": _bson,
    "msgpack": MsgPack,
    "bflat": BFlat,
    "binary": Binary,
    "string": String,
    "int64": Int64,
    "double": Double,
    "record": Record,
    "composite-local": lambda options: CompositeLocal(options, _parts(options)),
    "composite-global": lambda options: CompositeGlobal(options, _parts(options)),
}


MESSAGE_TYPES_REFUSED: Mapping[str, str] = {
    "protobuf": "its messages do not contain the names of their fields, so each topic would need "
    "compiled .proto files that change with its publishers; publish json, msgpack or bson, which "
    "bring their names along",
    "struct": "its messages are bytes at fixed places, which cannot be merged, selected or made "
    "by the server; publish msgpack or bflat, which are compact, too, and name their fields, or "
    "binary with a key",
}
"""Types of AMPS that this server does not have, and why."""


OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("text", "txt", "str", "plain", "utf8", "utf-8"), "string"),
    **dict.fromkeys(("bytes", "raw", "blob"), "binary"),
    **dict.fromkeys(("int", "integer", "long", "bigint"), "int64"),
    **dict.fromkeys(("float", "float64", "number"), "double"),
    **dict.fromkeys(("ndjson", "jsonl", "object", "document"), "json"),
    **dict.fromkeys(("messagepack", "message-pack"), "msgpack"),
    "composite": "composite-local",
}
"""Other products' names for these types."""


MESSAGE_TYPES_MAX = 64
"""Configured message types that are kept, to be shared by all topics that have them."""
DECODERS_MAX = 512
"""Sets of fields with a cached decoder, some kilobytes each: those of keys and indexes, and of
filters that come and go. A hostile set of a thousand fields takes a quarter of a megabyte."""


def message_type(name: str, options: Mapping[str, MessageTypeOptions] | None = None) -> MessageType:
    """The message type `name`, as configured by `options[name]` if there is such an entry.

    Raises NotAvailable for a type of AMPS that this server does not have, with the reason,
    ClientError with the nearest known name for any other, ConfigError for one that must be
    configured.
    """
    options = options or {}
    chosen = options.get(name) or MessageTypeOptions(name=name, module=name)
    _check(chosen, options)
    return _made(chosen)


def _check(chosen: MessageTypeOptions, options: Mapping[str, MessageTypeOptions]) -> None:
    """Raise NotAvailable or ClientError if there is no such type, or none of one of its parts."""
    if chosen.module in MESSAGE_TYPES:
        for part in chosen.parts:
            _check(part, options)
        return
    known = ", ".join(MESSAGE_TYPES)
    if reason := MESSAGE_TYPES_REFUSED.get(chosen.module):
        raise NotAvailable(f"message type {chosen.module!r} is not available: {reason}")
    other = OTHER_NAMES.get(chosen.module.lower())
    meant = other or nearest(chosen.module, [*MESSAGE_TYPES, *options])
    hint = f"did you mean {meant!r}?" if meant else f"known are {known}"
    raise ClientError(f"there is no message type {chosen.module!r}; {hint}")


@lru_cache(maxsize=MESSAGE_TYPES_MAX)
def _made(options: MessageTypeOptions) -> MessageType:
    return MESSAGE_TYPES[options.module](options)


def _parts(options: MessageTypeOptions) -> list[MessageType]:
    """The types of a composite's parts."""
    return list(map(_made, options.parts))


@lru_cache(maxsize=DECODERS_MAX)
def decoder_of(kind: MessageType, paths: tuple[Path, ...]) -> Decoder:
    """A decoder of these paths, made once for all topics of the message type."""
    return kind.decoder(paths)


@lru_cache(maxsize=MESSAGE_TYPES_MAX)
def decoders_of(kind: MessageType) -> Callable[[tuple[Path, ...]], Decoder]:
    """A function that gives a decoder of any paths, one for all topics of the message type."""
    return partial(decoder_of, kind)


def encoded(kind: MessageType, documents: Sequence[dict[str, Any]]) -> list[bytes]:
    """The bodies of these documents; raises BadMessage if one of them cannot be encoded."""
    if isinstance(kind, Json):
        return json_bodies(documents)
    return list(map(kind.encode, documents))


def line_bodies(kind: MessageType, texts: Sequence[bytes]) -> list[bytes]:
    """The bodies for JSON texts that clients send: in lines, in JSON over HTTP, in rows.

    For a topic of another type than JSON, an object is the document of the message, so that clients
    that speak only JSON can publish to every topic; any other text is the message as in lines.
    Raises BadMessage, with the index of the first text that has none; the type's decoder validates
    the bodies.
    """
    if kind.name == "json":
        return list(texts)  # the texts themselves
    bodies: list[bytes] = []
    for index, text in enumerate(texts):
        try:
            bodies.append(_body(kind, text))
        except BadMessage as error:
            error.index = index
            raise
    return bodies


def _body(kind: MessageType, text: bytes) -> bytes:
    if not kind.structured or not text.lstrip().startswith(b"{"):
        return kind.from_line(text)
    return kind.encode(read_document(text, kind.has_only_texts))
