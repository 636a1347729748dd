"""BSON messages: a record is one BSON document, kept byte for byte.

They are read and written by MongoDB's own library, all of a message at once, which checks lengths
and texts as it goes. What JSON has no kind for is a text or a number in documents that knows what
it was (`sow.messages.documents`): an ObjectId its 24 digits, a time its milliseconds since
1970, a decimal its digits, bytes their base64 form. The library is loaded with the first topic of
the type.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion, TypeDecoder, TypeRegistry
from bson.errors import BSONError

from sow.core.media_types import BSON
from sow.errors import BadMessage, clipped
from sow.messages.documents import (
    VALUES_MAX,
    Base64,
    BinaryTypes,
    BytesType,
    TypedInt,
    TypedText,
    too_deep,
    too_many_values,
)

# Times as they are: a Python datetime ends with the year 9999.
CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS
)
FAILURES = (BSONError, ValueError, TypeError, OverflowError, RecursionError)
DEAR_FACTOR = 10
"""The weight of a value that takes some ten times as long as others, such as a decimal."""
PLAIN_KINDS = frozenset({str, int, float, bool, type(None)})


class BsonCensus:
    """Counts the values of one document that are dear to make, while the library makes them: it
    gives up at the first that is one too many. Plain ones cost it some 20 ns each."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.is_over = False
        registry = TypeRegistry([counted(self._pass_on) for counted in DEAR_VALUES])
        self.codec: CodecOptions[dict[str, Any]] = CODEC.with_options(type_registry=registry)

    def _pass_on(self, value: Any) -> Any:
        if next(self._numbers) > VALUES_MAX:
            self.is_over = True
            raise ValueError("too many")
        return value


def _counted(kind: type) -> Callable[[Callable[[Any], Any]], TypeDecoder]:
    """Called by the library with each value of a native type."""

    class DearDecoder(TypeDecoder):
        bson_type = kind

        def __init__(self, pass_on: Callable[[Any], Any]) -> None:
            self._pass_on = pass_on

        def transform_bson(self, value: Any) -> Any:
            return self._pass_on(value)

    return DearDecoder


def check_values(document: Any, size_bytes: int) -> None:
    """Raise LargeMessage if a decoded message of `size_bytes` has too many values.

    The values of a list of plain ones do not count, since they are not processed one by one. Those
    decimals count `DEAR_FACTOR` times.
    """
    if size_bytes <= VALUES_MAX:
        return  # each takes a byte at least, and a dear one more than ten
    waiting, count = [document], 0
    while waiting:
        values = waiting.pop()
        if isinstance(values, dict):
            values = values.values()
        elif PLAIN_KINDS.issuperset(map(type, values)):
            continue
        count += len(values)
        count += (DEAR_FACTOR - 1) * list(map(type, values)).count(bson.Decimal128)
        if count > VALUES_MAX:
            raise too_many_values()
        waiting += [value for value in values if isinstance(value, dict | list)]


class Bson(BytesType):
    """The BSON message type."""

    media_type = BSON

    def parse(self, body: bytes) -> dict[str, Any]:
        """The document; raises BadMessage."""
        return self._parsed(body)

    def arriving(self, body: bytes) -> dict[str, Any]:
        """The document of a message with a bounded number of values; raises BadMessage."""
        if len(body) <= VALUES_MAX:
            return self.parse(body)  # no room for too many
        census = BsonCensus()
        try:
            found = bson.decode(body, census.codec)
        except FAILURES:
            if census.is_over:
                raise too_many_values() from None
            return self.parse(body)  # raises with the reason
        check_values(found, len(body))
        return self._parsed(body, lambda: found)

    def _parsed(self, body: bytes, read: Callable[[], Any] | None = None) -> dict[str, Any]:
        try:
            return KINDS.document(read() if read else bson.decode(body, CODEC))
        except FAILURES as error:
            if isinstance(error, RecursionError) or "recursion" in str(error):
                raise too_deep() from None
            raise BadMessage(f"not a BSON document: {clipped(str(error))}") from None

    def encode(self, document: object) -> bytes:
        """A BSON document of the fields; raises BadMessage for what BSON cannot hold."""
        if not isinstance(document, dict):
            raise BadMessage("a BSON message must be an object of fields")
        try:
            return bson.encode(KINDS.message(document), codec_options=CODEC)
        except FAILURES as error:
            raise BadMessage(f"cannot be written as BSON: {clipped(str(error))}") from None


def _marked(value: Any) -> Any:
    """A scalar of BSON's own."""
    match value:
        case bytes() if type(value) is bytes:
            return Base64.of(value)
        case bson.Int64() | bson.DatetimeMS():
            return TypedInt(int(value), value)
        case bson.ObjectId() | bson.Decimal128():
            return TypedText(str(value), value)
        case bson.Binary():
            return TypedText(Base64.of(bytes(value)), value)
        case bson.Timestamp():
            return TypedInt(value.time << 32 | value.inc, value)
        case bson.Regex():
            return TypedText(str(value.pattern), value)
        case str():  # code in JavaScript
            return TypedText(str(value), value)
    return TypedText(type(value).__name__, value)  # the least and the greatest of all keys


OWN_KINDS = (
    bson.Int64,
    bson.DatetimeMS,
    bson.ObjectId,
    bson.Decimal128,
    bson.Binary,
    bson.Timestamp,
    bson.Regex,
    bson.Code,
    bson.MinKey,
    bson.MaxKey,
)
"""The kinds of values that BSON alone has."""
DEAR_VALUES = [_counted(kind) for kind in (dict, list, bson.DBRef, *OWN_KINDS)]
"""Types that the library takes up to two microseconds to make: 16 MiB take over a second."""


class _BsonKinds(BinaryTypes):
    """The types of BSON that JSON lacks."""

    def shown(self, value: Any, level: int) -> Any:
        """The object of a reference, else a scalar."""
        if type(value) is bson.DBRef:
            return self.document(dict(value.as_doc()), level + 1)
        return _marked(value)

    def remembered(self, value: TypedText | TypedInt) -> Any:
        """The original, if that is a native type of BSON."""
        if isinstance(value.original, OWN_KINDS):
            return value.original
        return super().remembered(value)


KINDS = _BsonKinds()
