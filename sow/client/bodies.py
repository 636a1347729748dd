"""From what a program publishes to bodies: bytes and text as they are, anything else as JSON.

What JSON cannot say is refused by the path of its field before anything is sent. Above all NaN and
the infinities, which a writer of JSON would turn into null, so that a number would silently become
no value. A body without a null in it holds none of them, so most are never looked through.
"""

import dataclasses
import enum
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from sow.errors import BadMessage, clipped, shown

Document = bytes | str | Mapping[str, Any] | int | float
"""A message: bytes and str are bodies as they are, anything else is written as JSON."""

DEPTH_MAX = 250
"""Levels of nesting that the server takes, which is what the writer of JSON can write; what holds
itself is found by it, too."""
INTEGERS = range(-(2**63), 2**64)
"""What the writer of JSON can write; the server takes longer ones as text."""
READY = bytes | bytearray | memoryview


def encode_all(messages: Document | Iterable[Document]) -> list[bytes]:
    """Bodies of one message or many, in order.

    Mappings, texts, bytes and what is not iterable are one message; any other iterable is many.
    Raises BadMessage with the index of the first that has no body.
    """
    one = isinstance(messages, READY | str | Mapping) or not isinstance(messages, Iterable)
    if one or (_is_numpy(messages, "ndarray") and not messages.ndim):  # type: ignore[union-attr]
        return [encode(messages)]
    return [
        message if type(message) is bytes else encode(message, index)
        for index, message in enumerate(messages)  # type: ignore[arg-type]
    ]


def encode(message: Any, index: int = 0) -> bytes:
    """The body of one message; `index` is its place among others, for the error.

    Raises BadMessage with the path of the field that JSON does not have a value for.
    """
    if isinstance(message, READY):
        return bytes(message)
    try:
        if isinstance(message, str):
            return message.encode()
        body = orjson.dumps(message, _as_dict, orjson.OPT_SERIALIZE_NUMPY)
    except (TypeError, UnicodeEncodeError) as error:
        path, why = next(_unsuited(message), ("", f"cannot be written as JSON: {error}"))
    else:
        if b"null" not in body:
            return body
        found = next(_unsuited(message), None)
        if found is None:
            return body
        path, why = found
    raise BadMessage(f"message {index}: {clipped(path) or 'it'} {why}", index=index)


def _is_numpy(value: object, kind: str) -> bool:
    """Whether a value is of this type of numpy, which whoever has such a value has imported; a
    command would take a fifth longer to begin if it were imported here."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, kind, ()))


def _as_dict(value: object) -> object:
    """Mappings of other kinds than dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError


def _unsuited(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Where a document holds what JSON does not: the path, and what is wrong there."""
    if depth > DEPTH_MAX:
        yield path, f"nests deeper than {DEPTH_MAX} levels, or holds itself; flatten it"
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(name, str):
                yield from _unsuited_text(name, path)
                yield from _unsuited(inner, f"{path}/{name}", depth + 1)
            else:
                kind = type(name).__name__
                yield path, f"has a field named by {kind} {shown(repr(name))}; name it by text"
    elif isinstance(value, list | tuple) or (_is_numpy(value, "ndarray") and value.ndim):
        for at, inner in enumerate(value):
            yield from _unsuited(inner, f"{path}[{at}]", depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _unsuited(getattr(value, field.name), f"{path}/{field.name}", depth + 1)
    elif isinstance(value, enum.Enum):
        yield from _unsuited(value.value, path, depth + 1)
    else:
        yield from _unsuited_scalar(value, path)


def _unsuited_scalar(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield from _unsuited_text(value, path)
    elif isinstance(value, float) or _is_numpy(value, "floating"):
        if not math.isfinite(value):
            name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            yield path, f"is {name}, which JSON does not have; send None, or leave the field out"
    elif _is_numpy(value, "datetime64") and value != value:
        yield path, "is NaT, no time at all; send None, or leave the field out"
    elif isinstance(value, int):
        if value not in INTEGERS:
            yield path, "is an integer of more than 64 bits; send the message as JSON text"
    elif value is not None:
        try:
            orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
        except TypeError:
            kind = type(value).__name__
            yield path, f"is of the type {kind}, which JSON does not have; convert it{_to(value)}"


def _unsuited_text(text: str, path: str) -> Iterator[tuple[str, str]]:
    try:
        text.encode()
    except UnicodeEncodeError:
        yield path, f"has half a surrogate pair in {text[:40]!a}; send whole characters"


def _to(value: object) -> str:
    if isinstance(value, set | frozenset | Iterator):
        return " to a list"
    if isinstance(value, READY):
        return " to text, such as base64"
    return " to text or a number"
